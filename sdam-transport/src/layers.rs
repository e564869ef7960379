//! The layers between the name of a server and the messages of a connection.

use std::{fmt::Debug, sync::Arc};

use sdam_core::{address::ServerAddress, options::ProxyOptions};

use crate::tls::Tls;

/// The layers between a transport's sockets and its messages; by default there are none.
///
/// A topology makes them of its options, and adds them by
/// [`Transport::with_layers`](crate::connect::Transport::with_layers).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Layers {
    /// Says where to dial for a server.
    pub translate: Option<Arc<dyn Translate>>,
    /// The proxy that opens the connections.
    pub proxy: Option<ProxyOptions>,
    /// Encrypts connections and checks the servers' certificates.
    pub tls: Option<Arc<dyn Tls>>,
}

impl Layers {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.translate.is_none() && self.proxy.is_none() && self.tls.is_none()
    }
}

/// The steps that a transport performs without a layer of this crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guards {
    /// It negotiates TLS on every connection, and has got the options for it elsewhere.
    pub tls: bool,
    /// It opens every connection through the proxy.
    pub proxy: bool,
}

impl Guards {
    /// A transport that connects in plain text and directly.
    pub const NONE: Self = Self {
        tls: false,
        proxy: false,
    };

    /// Adds TLS.
    #[must_use]
    pub const fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Adds the proxy.
    #[must_use]
    pub const fn with_proxy(mut self) -> Self {
        self.proxy = true;
        self
    }
}

/// Says where to dial for a member whose name does not lead there, such as the members of a
/// deployment inside Kubernetes or behind a tunnel.
///
/// The member keeps its name in descriptions and events, and TLS checks that name.
///
/// # Contract
///
/// - The caller holds no lock, and may call from any thread, for several members at once.
/// - It returns at once: it is called at each attempt to connect.
/// - Equal members lead to the same server.
pub trait Translate: Send + Sync + Debug + 'static {
    /// Returns where to dial for `member`: `member` itself if its name leads there.
    fn translate(&self, member: &ServerAddress) -> ServerAddress;
}
