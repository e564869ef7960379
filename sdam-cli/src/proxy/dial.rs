//! Opens streams of bytes to members.
//!
//! The connections that a transport returns carry complete messages, not bytes. Only the TLS layer
//! gets the underlying stream of bytes, after the transport has translated the address and possibly
//! connected through a SOCKS proxy. Therefore this module uses a special TLS layer that captures
//! the stream.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::io::Cursor;
use sdam::{
    Error, ErrorReport, PoolClear, PoolContext, PoolFactory, PoolHandle, Stage, async_trait,
    transport::{
        layers::Layers,
        stream::{ByteStream, NonBlocking},
        tls::Tls,
    },
};
use sdam_core::address::ServerAddress;

use crate::lock::lock;

/// Creates a [`Way`] for each member of a deployment.
#[derive(Debug)]
pub(super) struct Ways {
    /// The TLS layer for connections to members; `None` if the proxy relays bytes without using TLS
    /// itself.
    pub(super) tls: Option<Arc<dyn Tls>>,
}

impl PoolFactory for Ways {
    type Pool = Way;

    fn create(&self, context: PoolContext) -> Way {
        let tls = self.tls.clone();
        Way { context, tls }
    }
}

/// Opens connections to one member. It stands in for a connection pool, but pools nothing: each
/// connection belongs to the task that relays it. This task watches the topology itself, because a
/// step-down does not clear a pool.
#[derive(Debug)]
pub(super) struct Way {
    context: PoolContext,
    tls: Option<Arc<dyn Tls>>,
}

impl PoolHandle for Way {
    fn ready(&self) {}
    fn clear(&self, _: &PoolClear) {}
    fn close(&self) {}
}

impl Way {
    /// Opens a stream to the member within `limit`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the socket.
    pub(super) async fn open(&self, limit: Option<Duration>) -> Result<Box<dyn ByteStream>, Error> {
        let backend = &self.context.backend;
        let slot = Arc::new(Slot { tls: self.tls.clone(), stream: Mutex::new(None) });
        let mut layers = Layers::default();
        layers.tls = Some(slot.clone());
        let none = || Error::network(Stage::Connect, "the transport has no byte streams");
        let transport = backend.transport.with_layers(layers).ok_or_else(none)?;
        let deadline = limit.map(|limit| backend.clock.now() + limit);
        transport.connect(&self.context.address, deadline).await?;
        lock(&slot.stream).take().ok_or_else(none)
    }

    /// Reports a connection error to the topology.
    pub(super) fn report(&self, error: &ErrorReport) {
        self.context.reporter.handle_error(error);
    }
}

/// A TLS layer that captures the stream of a single connection.
#[derive(Debug)]
struct Slot {
    tls: Option<Arc<dyn Tls>>,
    stream: Mutex<Option<Box<dyn ByteStream>>>,
}

#[async_trait]
impl Tls for Slot {
    async fn negotiate(
        &self,
        stream: Box<dyn ByteStream>,
        server: &ServerAddress,
    ) -> Result<Box<dyn ByteStream>, Error> {
        let stream = match &self.tls {
            Some(tls) => tls.negotiate(stream, server).await?,
            None => stream,
        };
        *lock(&self.stream) = Some(stream);
        // The transport wraps this empty stream in a connection that is dropped without being used.
        Ok(Box::new(NonBlocking(Cursor::new(Vec::new()))))
    }
}
