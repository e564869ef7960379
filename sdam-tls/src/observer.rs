//! An observer of handshakes.

use std::sync::Arc;

use rustls::ClientConnection;
use sdam_core::address::ServerAddress;

/// A function that is called after each successful handshake, with the server and the session.
#[derive(Clone)]
pub(crate) struct Observer(pub(crate) Arc<Observe>);

type Observe = dyn Fn(&ServerAddress, &ClientConnection) + Send + Sync;

sdam_core::opaque!(Observer);
