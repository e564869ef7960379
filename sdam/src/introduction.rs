//! What new connections tell servers about the client.

use std::sync::{Arc, PoisonError};

use sdam_core::hello::{Handshake, HelloRequest};
use sdam_transport::handshake::{ClientMetadata, InvalidMetadata, Library};

use crate::sync::{ArcSwap, Mutex};

/// The metadata of the client, to which libraries may be added while it runs.
#[derive(Debug)]
pub(crate) struct Introduction {
    metadata: Mutex<ClientMetadata>,
    /// The same, encoded; read by every new connection.
    handshake: ArcSwap<Handshake>,
    load_balanced: bool,
}

impl Introduction {
    pub(crate) fn new(metadata: ClientMetadata, load_balanced: bool) -> Self {
        Self {
            handshake: ArcSwap::from_pointee(encode(&metadata, load_balanced)),
            metadata: Mutex::new(metadata),
            load_balanced,
        }
    }

    /// What a connection that is opened now says.
    pub(crate) fn handshake(&self) -> Arc<Handshake> {
        self.handshake.load_full()
    }

    /// Appends a library; whether that changed anything.
    pub(crate) fn append(&self, library: Library) -> Result<bool, InvalidMetadata> {
        let mut metadata = self.metadata.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = metadata.append(library)?;
        if changed {
            // Under the lock, so that of two libraries none is lost.
            let handshake = encode(&metadata, self.load_balanced);
            self.handshake.store(Arc::new(handshake));
        }
        Ok(changed)
    }

    /// The same request; the first one of a connection says what is true now.
    pub(crate) fn renew(&self, request: HelloRequest) -> HelloRequest {
        if request.handshake.is_some() {
            request.with_handshake(self.handshake())
        } else {
            request
        }
    }
}

fn encode(metadata: &ClientMetadata, load_balanced: bool) -> Handshake {
    Handshake::new(metadata.encode()).with_load_balanced(load_balanced)
}
