//! The client metadata in the handshakes of new connections.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sdam_core::{
    hello::{Handshake, HelloRequest},
    options::{ConfigError, Options},
};
use sdam_transport::handshake::{ClientMetadata, DriverInfo};

/// The client metadata.
#[derive(Debug)]
pub(crate) enum Metadata {
    /// The default metadata, or the metadata set on the builder. Wrapping libraries may be appended
    /// at run time.
    Own(Mutex<ClientMetadata>),
    Driver(DriverDocument),
}

/// The `client` document of a driver, which may change at run time.
pub(crate) struct DriverDocument {
    pub(crate) is_faas: bool,
    pub(crate) encode: Arc<dyn Fn() -> Vec<u8> + Send + Sync>,
}

/// The data for the first message of each new connection.
#[derive(Debug)]
pub(crate) struct MetadataHandshake {
    metadata: Metadata,
    load_balanced: bool,
}

impl MetadataHandshake {
    /// Creates the handshakes. Returns an error if a driver's document is not valid. The
    /// application's name is not added to a driver's document, which already contains it.
    pub(crate) fn new(metadata: Metadata, options: &Options) -> Result<Self, ConfigError> {
        match (&metadata, &options.app_name) {
            (Metadata::Own(metadata), Some(name)) => {
                let mut metadata = lock(metadata);
                *metadata = metadata.clone().with_application(name)?;
            }
            (Metadata::Own(_), None) => {}
            (Metadata::Driver(document), _) => ClientMetadata::check_encoded(&(document.encode)())?,
        }
        Ok(Self { metadata, load_balanced: options.load_balanced })
    }

    /// Returns whether the program runs on a FaaS platform.
    pub(crate) fn is_faas(&self) -> bool {
        match &self.metadata {
            Metadata::Own(metadata) => lock(metadata).is_faas(),
            Metadata::Driver(document) => document.is_faas,
        }
    }

    /// Returns the handshake for a new connection.
    pub(crate) fn handshake(&self) -> Arc<Handshake> {
        let client = match &self.metadata {
            Metadata::Own(metadata) => lock(metadata).encode(),
            Metadata::Driver(document) => {
                let client = (document.encode)();
                // Omits an invalid document, because servers refuse a connection whose document is
                // too long.
                let is_valid = ClientMetadata::check_encoded(&client).is_ok();
                if is_valid { client.into() } else { Box::default() }
            }
        };
        Arc::new(Handshake::new(client).with_load_balanced(self.load_balanced))
    }

    /// Appends a library; returns false if it was already appended.
    pub(crate) fn append(&self, library: DriverInfo) -> Result<bool, ConfigError> {
        match &self.metadata {
            Metadata::Own(metadata) => lock(metadata).append(library),
            Metadata::Driver(_) => {
                let reason = "the driver makes the client document itself";
                let remedy = "append the library to that";
                Err(ConfigError::new("driver name", "", reason, remedy))
            }
        }
    }

    /// Replaces the handshake of a connection's first request with the current handshake.
    pub(crate) fn renew(&self, request: HelloRequest) -> HelloRequest {
        if request.handshake.is_some() { request.with_handshake(self.handshake()) } else { request }
    }
}

fn lock(metadata: &Mutex<ClientMetadata>) -> MutexGuard<'_, ClientMetadata> {
    metadata.lock().unwrap_or_else(PoisonError::into_inner)
}

sdam_core::opaque!(DriverDocument, |this| is_faas: this.is_faas);
