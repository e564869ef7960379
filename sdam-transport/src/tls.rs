//! The TLS traits: encryption of any stream of bytes.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use sdam_core::{
    address::ServerAddress,
    options::{ConfigError, TlsOptions},
};

use crate::{error::TransportError, stream::ByteStream};

/// Makes the TLS of a topology from its options: what a TLS library implements.
pub trait TlsProvider: Send + Sync + Debug + 'static {
    /// Returns the TLS that `options` ask for. It is called once when a topology starts, with no
    /// lock held, and may read files.
    ///
    /// # Errors
    ///
    /// An option is not supported, or its file cannot be read or used. No option may be ignored
    /// that makes connections safer.
    fn tls(&self, options: &TlsOptions) -> Result<Arc<dyn Tls>, ConfigError>;

    /// Returns whether servers that ask for it are shown a certificate of the client, without which
    /// MONGODB-X509 authenticates no user.
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
/// - An error has [`Stage::Tls`](sdam_core::error::Stage::Tls) and names the cause: which part of
///   the certificate is wrong, or that the server answered in plain text.
/// - The returned stream passes its deadline on to `stream`, and closes it when it is dropped.
/// - If the server rejects the client after the negotiation, as TLS 1.3 does, the read that fails
///   returns an [`io::Error`](std::io::Error) with such a [`TransportError`] inside.
#[async_trait]
pub trait Tls: Send + Sync + Debug + 'static {
    /// Negotiates TLS over `stream` with `server`, whose certificate has to name its host.
    ///
    /// `server` is the name by which the deployment calls the member, also where a
    /// [translation](crate::layers::Translate) or a proxy leads elsewhere. The caller has set the
    /// deadline of `stream`, and drops the future when it has passed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the stream.
    async fn negotiate(
        &self,
        stream: Box<dyn ByteStream>,
        server: &ServerAddress,
    ) -> Result<Box<dyn ByteStream>, TransportError>;
}
