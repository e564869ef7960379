//! TLS for servers and for this crate's clients.

use std::error::Error;
use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use crate::certificates::{Certificates, ServerCertificate};

/// The TLS settings of a server that requires TLS and checks the certificates of clients.
///
/// The clients of this crate present the [client's certificate](Certificates::client) and accept
/// the certificate of every server.
#[derive(Clone, Debug)]
#[must_use]
pub struct ServerTls {
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) certificate: ServerCertificate,
    requires_clients: bool,
    arguments: Vec<String>,
}

impl ServerTls {
    /// Creates settings with a valid server certificate. Clients may have a certificate, but need
    /// none.
    pub fn new(certificates: &Arc<Certificates>) -> Self {
        Self {
            certificates: Arc::clone(certificates),
            certificate: ServerCertificate::Valid,
            requires_clients: false,
            arguments: Vec::new(),
        }
    }

    /// Sets the server's certificate.
    pub fn certificate(mut self, certificate: ServerCertificate) -> Self {
        self.certificate = certificate;
        self
    }

    /// Refuses clients without a certificate.
    pub fn require_client_certificates(mut self) -> Self {
        self.requires_clients = true;
        self
    }

    /// Disables TLS 1.3, with which clients learn only after the handshake that the server rejected
    /// them.
    pub fn without_tls_1_3(mut self) -> Self {
        self.arguments = ["--tlsDisabledProtocols", "TLS1_3"].map(str::to_owned).to_vec();
        self
    }

    /// Returns the server's command line arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        let mut arguments = vec![
            "--tlsMode".to_owned(),
            "requireTLS".to_owned(),
            "--tlsCertificateKeyFile".to_owned(),
            path(&self.certificates.server(self.certificate)),
            "--tlsCAFile".to_owned(),
            path(&self.certificates.authority()),
        ];
        if !self.requires_clients {
            arguments.push("--tlsAllowConnectionsWithoutCertificates".to_owned());
        }
        arguments.extend(self.arguments.iter().cloned());
        arguments
    }
}

/// Negotiates TLS as a client that every server of [`ServerTls`] accepts.
pub(crate) fn negotiate(
    stream: TcpStream,
    certificates: &Certificates,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::from(stream.peer_addr()?.ip());
    let config = config(certificates).map_err(io::Error::other)?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    stream.conn.complete_io(&mut stream.sock)?;
    Ok(stream)
}

fn config(certificates: &Certificates) -> Result<ClientConfig, Box<dyn Error + Send + Sync>> {
    let provider = Arc::new(ring::default_provider());
    let file = certificates.client();
    let own = CertificateDer::pem_file_iter(&file)?.collect::<Result<Vec<_>, _>>()?;
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
        .with_client_auth_cert(own, PrivateKeyDer::from_pem_file(&file)?)?;
    Ok(config)
}

/// Accepts every certificate. Tests identify a server by its data directory instead.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = self.0.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
