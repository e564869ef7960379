//! The errors of a connection and their messages.

use sdam_transport::error;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustls::{SignatureScheme, client::ResolvesClientCert, sign::CertifiedKey};
use sdam_core::error::{Error, Stage};

use crate::reason;

/// Creates the errors of connections to one server.
#[derive(Clone, Debug)]
pub(crate) struct Errors {
    /// The name that the server's certificate must contain.
    pub(crate) host: Arc<str>,
    pub(crate) requests: Arc<CertificateRequests>,
}

impl Errors {
    /// Converts an error that the TLS library reported before the server accepted the client.
    pub(crate) fn refused(&self, error: rustls::Error) -> Error {
        let message = reason::describe(&error, &self.host);
        Error::protocol(Stage::Tls, message).with_cause(error)
    }

    /// Converts an error from the TLS library on an established connection, which was broken by an
    /// alert, a corrupt record or the end of the socket. The user of the connection sets the stage
    /// of the error.
    pub(crate) fn broken(&self, error: rustls::Error) -> Error {
        let message = reason::describe(&error, &self.host);
        Error::network(Stage::Hello, message).with_cause(error)
    }

    /// Converts an error that ended the handshake.
    pub(crate) fn of_handshake(&self, error: io::Error) -> Error {
        let message = if is_closed(&error) {
            if let Some(rejected) = self.rejected("during") {
                return rejected;
            }
            "the server closed the connection during the TLS handshake; it may not use TLS at this \
             port, or require a client certificate (`tlsCertificateKeyFile`)"
        } else if error.kind() == io::ErrorKind::TimedOut {
            "the server did not finish the TLS handshake in time; it may not use TLS at this port"
        } else {
            "the TLS handshake failed"
        };
        error::from_io(Stage::Tls, message, error)
    }

    /// Returns the error for a connection that was closed before the server sent data, or `None` if
    /// the server has not requested a client certificate. `mongod` rejects clients this way,
    /// without an alert, after the handshake.
    pub(crate) fn rejected(&self, when: &str) -> Option<Error> {
        let guess = if !self.requests.seen.load(Ordering::Relaxed) {
            return None;
        } else if self.requests.resolver.has_certs() {
            "reject the client's certificate: check"
        } else {
            "require a client certificate: set"
        };
        let message = format!(
            "the server closed the connection {when} the TLS handshake; it may {guess} \
             `tlsCertificateKeyFile`"
        );
        Some(Error::network(Stage::Tls, message))
    }
}

/// Remembers whether a server has requested a client certificate. This is necessary because a
/// server does not repeat the request on a connection that resumes an earlier session.
#[derive(Debug)]
pub(crate) struct CertificateRequests {
    resolver: Arc<dyn ResolvesClientCert>,
    seen: AtomicBool,
}

impl CertificateRequests {
    pub(crate) fn new(resolver: Arc<dyn ResolvesClientCert>) -> Self {
        Self { resolver, seen: AtomicBool::new(false) }
    }
}

impl ResolvesClientCert for CertificateRequests {
    fn resolve(
        &self,
        authorities: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.seen.store(true, Ordering::Relaxed);
        self.resolver.resolve(authorities, schemes)
    }

    fn only_raw_public_keys(&self) -> bool {
        self.resolver.only_raw_public_keys()
    }

    fn has_certs(&self) -> bool {
        self.resolver.has_certs()
    }
}

/// Returns whether the peer has closed the connection.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::WriteZero
    )
}
