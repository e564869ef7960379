//! An observer of handshakes.

use std::sync::Arc;

use rustls::ClientConnection;
use sdam_core::address::ServerAddress;

/// A function that is called with the server and the session of each successful handshake.
#[derive(Clone)]
pub(crate) struct Observer(Arc<Observe>);

type Observe = dyn Fn(&ServerAddress, &ClientConnection) + Send + Sync;

impl Observer {
    pub(crate) fn new(
        observe: impl Fn(&ServerAddress, &ClientConnection) + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(observe))
    }

    pub(crate) fn see(&self, server: &ServerAddress, session: &ClientConnection) {
        (self.0)(server, session);
    }
}

sdam_core::opaque!(Observer);
