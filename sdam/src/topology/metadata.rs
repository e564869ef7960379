//! The client metadata in the handshakes of new connections.

use std::sync::{Arc, PoisonError};

use sdam_core::{
    hello::{Handshake, HelloRequest},
    options::ConfigError,
};
use sdam_transport::handshake::{ClientMetadata, DriverInfo};

use crate::sync::{ArcSwap, Mutex};

/// The client metadata from a builder.
#[derive(Debug)]
pub(crate) enum Metadata {
    Own(ClientMetadata),
    Driver(DriverDocument),
}

/// The `client` document of a driver, which may change at run time.
#[derive(Clone)]
pub(crate) struct DriverDocument {
    pub(crate) is_faas: bool,
    pub(crate) encode: Arc<dyn Fn() -> Vec<u8> + Send + Sync>,
}

/// The arguments of the first message of new connections.
#[derive(Debug)]
pub(crate) struct MetadataHandshake {
    source: Source,
    load_balanced: bool,
}

#[derive(Debug)]
enum Source {
    /// The metadata, to which wrapping libraries may be appended at run time.
    Own {
        metadata: Mutex<ClientMetadata>,
        /// The encoded metadata, read by every new connection.
        handshake: ArcSwap<Handshake>,
    },
    Driver(DriverDocument),
}

impl Metadata {
    /// Returns whether the program runs on a FaaS platform.
    pub(crate) fn is_faas(&self) -> bool {
        match self {
            Self::Own(metadata) => metadata.is_faas(),
            Self::Driver(document) => document.is_faas,
        }
    }

    /// Sets the name of the application, unless a driver's document has it already.
    pub(crate) fn with_application(self, name: &str) -> Result<Self, ConfigError> {
        Ok(match self {
            Self::Own(metadata) => Self::Own(metadata.with_application(name)?),
            Self::Driver(document) => Self::Driver(document),
        })
    }
}

impl MetadataHandshake {
    /// Encodes the metadata for the first time; an error if a driver's document is not valid.
    pub(crate) fn new(metadata: Metadata, load_balanced: bool) -> Result<Self, ConfigError> {
        let source = match metadata {
            Metadata::Own(metadata) => Source::Own {
                handshake: ArcSwap::from_pointee(encode(&metadata, load_balanced)),
                metadata: Mutex::new(metadata),
            },
            Metadata::Driver(document) => {
                ClientMetadata::check_encoded(&(document.encode)())?;
                Source::Driver(document)
            }
        };
        Ok(Self { source, load_balanced })
    }

    /// Returns the handshake of a new connection.
    pub(crate) fn handshake(&self) -> Arc<Handshake> {
        match &self.source {
            Source::Own { handshake, .. } => handshake.load_full(),
            Source::Driver(document) => {
                let mut client = (document.encode)();
                // Servers refuse connections with a longer document.
                if ClientMetadata::check_encoded(&client).is_err() {
                    client.clear();
                }
                Arc::new(Handshake::new(client).with_load_balanced(self.load_balanced))
            }
        }
    }

    /// Appends a library; returns false if it was already appended.
    pub(crate) fn append(&self, library: DriverInfo) -> Result<bool, ConfigError> {
        let Source::Own { metadata, handshake } = &self.source else {
            let reason = "the driver makes the client document itself";
            let remedy = "append the library to that";
            return Err(ConfigError::new("driver name", "", reason, remedy));
        };
        let mut metadata = metadata.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = metadata.append(library)?;
        if changed {
            // Stored under the lock, so that concurrent appends lose no library.
            handshake.store(Arc::new(encode(&metadata, self.load_balanced)));
        }
        Ok(changed)
    }

    /// Replaces the handshake of a connection's first request with the current one.
    pub(crate) fn renew(&self, request: HelloRequest) -> HelloRequest {
        if request.handshake.is_some() { request.with_handshake(self.handshake()) } else { request }
    }
}

fn encode(metadata: &ClientMetadata, load_balanced: bool) -> Handshake {
    Handshake::new(metadata.encode()).with_load_balanced(load_balanced)
}

sdam_core::opaque!(DriverDocument, |this| is_faas: this.is_faas);
