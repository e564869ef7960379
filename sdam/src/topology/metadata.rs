//! The client metadata of new connections' handshakes.

use std::sync::{Arc, PoisonError};

use sdam_core::hello::{Handshake, HelloRequest};
use sdam_transport::handshake::{ClientMetadata, InvalidMetadata, Library};

use crate::sync::{ArcSwap, Mutex};

/// The client metadata, to which wrapping libraries may be appended at run time.
#[derive(Debug)]
pub(crate) struct MetadataHandshake {
    metadata: Mutex<ClientMetadata>,
    /// The encoded metadata, read by every new connection.
    handshake: ArcSwap<Handshake>,
    load_balanced: bool,
}

impl MetadataHandshake {
    pub(crate) fn new(metadata: ClientMetadata, load_balanced: bool) -> Self {
        Self {
            handshake: ArcSwap::from_pointee(encode(&metadata, load_balanced)),
            metadata: Mutex::new(metadata),
            load_balanced,
        }
    }

    /// Returns the handshake of a connection that is opened now.
    pub(crate) fn handshake(&self) -> Arc<Handshake> {
        self.handshake.load_full()
    }

    /// Appends a library and returns whether that changed the metadata.
    pub(crate) fn append(&self, library: Library) -> Result<bool, InvalidMetadata> {
        let mut metadata = self.metadata.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = metadata.append(library)?;
        if changed {
            // Stored under the lock, so that concurrent appends lose no library.
            let handshake = encode(&metadata, self.load_balanced);
            self.handshake.store(Arc::new(handshake));
        }
        Ok(changed)
    }

    /// Replaces the handshake of a connection's first request with the current one.
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
