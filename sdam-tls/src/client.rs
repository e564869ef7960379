//! The client side of TLS.

use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
};
use sdam_transport::{async_trait, stream::ByteStream, tls::Tls};

use crate::{
    error::{CertificateRequests, Errors},
    observer::Observer,
    stream::TlsStream,
};

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
