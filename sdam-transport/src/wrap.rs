//! Transports around other transports.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use sdam_core::{address::ServerAddress, error::Error, time::Instant};

use crate::{
    connect::{Connection, Transport},
    layers::{Guards, Layers},
};

/// A hook around the connections of another transport. It may count or limit the connections,
/// inject faults, or wrap each [`Connection`]. [`Wrapped`] is the resulting transport.
///
/// # Contract
///
/// Implementations must satisfy the part of the contract of [`Transport`] that concerns `connect`.
#[async_trait]
pub trait Wrap: Send + Sync + Debug + 'static {
    /// Opens a connection to `target` with `inner`, or refuses it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the attempt.
    async fn connect(
        &self,
        inner: &dyn Transport,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error>;
}

/// A transport that wraps another one and keeps its features: address translation, proxies and TLS
/// become layers of the inner transport, below the wrapper.
///
/// In contrast, a type that implements [`Transport`] itself and forwards only `connect` has no
/// layers. A topology whose options need a layer then refuses to start.
#[derive(Clone, Debug)]
pub struct Wrapped {
    inner: Arc<dyn Transport>,
    wrap: Arc<dyn Wrap>,
}

impl Wrapped {
    /// Creates a transport that opens the connections of `inner` through `wrap`.
    pub fn new(inner: Arc<dyn Transport>, wrap: impl Wrap) -> Self {
        let wrap = Arc::new(wrap);
        Self { inner, wrap }
    }
}

#[async_trait]
impl Transport for Wrapped {
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        self.wrap.connect(&*self.inner, target, deadline).await
    }

    fn guards(&self) -> Guards {
        self.inner.guards()
    }

    fn with_layers(&self, layers: Layers) -> Option<Arc<dyn Transport>> {
        Some(Arc::new(Self {
            inner: self.inner.with_layers(layers)?,
            wrap: Arc::clone(&self.wrap),
        }))
    }
}
