//! The TLS traits: encryption of any byte stream.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use sdam_core::{
    address::ServerAddress,
    error::Error,
    options::{ConfigError, TlsOptions},
};

use crate::stream::ByteStream;

/// Creates a [`Tls`] from the options of a topology. Implemented by TLS libraries.
pub trait TlsProvider: Send + Sync + Debug + 'static {
    /// Returns the [`Tls`] for `options`. Called once, when a topology starts, with no lock held.
    /// The implementation may read files.
    ///
    /// # Errors
    ///
    /// If an option is not supported, or its file cannot be read or used. Options that make
    /// connections safer must not be ignored.
    fn tls(&self, options: &TlsOptions) -> Result<Arc<dyn Tls>, ConfigError>;

    /// Returns whether a client certificate is sent to servers that request one. MONGODB-X509
    /// requires a client certificate.
    fn has_client_certificate(&self, options: &TlsOptions) -> bool {
        options.certificate_key_file.is_some()
    }
}

/// Negotiates TLS over streams.
///
/// # Contract
///
/// - The caller holds no lock, and may poll the future by any executor on any thread.
/// - No byte of the caller is sent before the server has proved its identity, unless the options
///   allow invalid certificates.
/// - An error has [`Stage::Tls`](sdam_core::error::Stage::Tls) and names the cause: the fault of
///   the certificate, or that the server answered in plain text.
/// - The returned stream passes its deadline on to `stream`, and closes it when it is dropped.
/// - If the server rejects the client after the negotiation, as TLS 1.3 does, the read that fails
///   returns an [`io::Error`](std::io::Error) with such an [`Error`] inside.
#[async_trait]
pub trait Tls: Send + Sync + Debug + 'static {
    /// Negotiates TLS over `stream` with `server`. The certificate has to name the host of
    /// `server`.
    ///
    /// `server` is the member's name in the deployment, even if a
    /// [translation](crate::layers::Translate) or a proxy leads elsewhere. The caller sets the
    /// deadline of `stream` beforehand, and drops the future once the deadline has passed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the stream.
    async fn negotiate(
        &self,
        stream: Box<dyn ByteStream>,
        server: &ServerAddress,
    ) -> Result<Box<dyn ByteStream>, Error>;
}
