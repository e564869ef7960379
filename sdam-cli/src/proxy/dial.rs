//! Connections to members as streams of bytes.
//!
//! A transport returns connections that carry complete messages. It passes the underlying stream
//! only to the TLS layer, after translating the address and possibly connecting through a proxy.
//! Therefore a special TLS layer captures the stream.

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

/// Creates the connection settings for each member of a deployment.
#[derive(Debug)]
pub(super) struct Ways {
    /// The TLS layer for relayed bytes; `None` if the bytes are relayed unchanged.
    pub(super) tls: Option<Arc<dyn Tls>>,
}

impl PoolFactory for Ways {
    type Pool = Way;

    fn create(&self, context: PoolContext) -> Way {
        let tls = self.tls.clone();
        Way { context, tls }
    }
}

/// The connection settings for one member. Connections are not pooled: each belongs to the task
/// that relays it. The task follows the state of the topology itself, because a step-down does not
/// clear a pool.
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
        // The transport wraps this in a connection, which is dropped unused.
        Ok(Box::new(NonBlocking(Cursor::new(Vec::new()))))
    }
}
