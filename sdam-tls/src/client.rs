//! The client side of TLS: the negotiation, and the errors of connections with their messages.

use std::{
    future::poll_fn,
    io,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustls::{
    ClientConfig, ClientConnection, SignatureScheme, client::ResolvesClientCert,
    pki_types::ServerName, sign::CertifiedKey,
};
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
};
use sdam_transport::{async_trait, error, stream::ByteStream, tls::Tls};

use crate::{reason, stream::TlsStream};

/// Negotiates TLS with the same configuration each time, so that later connections can resume
/// sessions.
#[derive(Debug)]
pub(crate) struct Client {
    config: Arc<ClientConfig>,
    requests: Arc<CertificateRequests>,
    checks_name: bool,
    observer: Option<Observer>,
}

impl Client {
    pub(crate) fn new(
        mut config: ClientConfig,
        checks_name: bool,
        observer: Option<Observer>,
    ) -> Self {
        let requests = CertificateRequests::new(config.client_auth_cert_resolver);
        let requests = Arc::new(requests);
        config.client_auth_cert_resolver = requests.clone();
        Self { config: Arc::new(config), requests, checks_name, observer }
    }

    /// Returns the name that the certificate of `server` must contain. Unless the name is an IP
    /// address, it is also sent to the server as SNI.
    fn name(&self, server: &ServerAddress) -> Result<ServerName<'static>, Error> {
        // A zone has a meaning on this host only, so no certificate contains it.
        let host = server.host().split('%').next().unwrap_or_default();
        match ServerName::try_from(host.to_owned()) {
            Ok(name) => Ok(name),
            // The name is neither sent nor checked, so a placeholder is sufficient.
            Err(_) if !self.checks_name => Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED).into()),
            Err(_) => {
                let message = "no certificate can have the name of this server; connect by a host \
                               name or an IP address";
                Err(Error::protocol(Stage::Tls, message))
            }
        }
    }
}

#[async_trait]
impl Tls for Client {
    async fn negotiate(
        &self,
        stream: Box<dyn ByteStream>,
        server: &ServerAddress,
    ) -> Result<Box<dyn ByteStream>, Error> {
        let errors = Errors { host: server.host().into(), requests: Arc::clone(&self.requests) };
        let session = ClientConnection::new(Arc::clone(&self.config), self.name(server)?)
            .map_err(|error| errors.refused(error))?;
        let mut stream = TlsStream::new(stream, session, errors.clone());
        poll_fn(|cx| stream.poll_handshake(cx))
            .await
            .map_err(|error| errors.of_handshake(error))?;
        if let Some(Observer(observe)) = &self.observer {
            observe(server, stream.session());
        }
        Ok(Box::new(stream))
    }
}

/// A function that is called after each successful handshake, with the server and the session.
#[derive(Clone)]
pub(crate) struct Observer(pub(crate) Arc<Observe>);

type Observe = dyn Fn(&ServerAddress, &ClientConnection) + Send + Sync;

sdam_core::opaque!(Observer);

/// Creates the errors of connections to one server.
#[derive(Clone, Debug)]
pub(crate) struct Errors {
    /// The name that the server's certificate must contain.
    host: Arc<str>,
    requests: Arc<CertificateRequests>,
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
    fn of_handshake(&self, error: io::Error) -> Error {
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
struct CertificateRequests {
    resolver: Arc<dyn ResolvesClientCert>,
    seen: AtomicBool,
}

impl CertificateRequests {
    fn new(resolver: Arc<dyn ResolvesClientCert>) -> Self {
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
