//! TLS for servers and for this crate's clients. Both read their certificates from files.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SerialNumber, date_time_ymd,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use tempfile::TempDir;

use crate::daemon::work_dir;
use crate::error::Error;

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
    /// Creates settings with a valid server certificate. Clients may present a certificate, but
    /// need not.
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

    /// Disables TLS 1.3. With TLS 1.3, clients learn only after the handshake that the server
    /// rejected them.
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

fn config(
    certificates: &Certificates,
) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
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

/// The first and last year in which certificates are valid, except the expired certificate and the
/// certificate that is not yet valid. This period includes the dates on which servers with these
/// two certificates run.
const YEARS: [i32; 2] = [2000, 2049];

/// The serial number of the revoked certificate.
const REVOKED: u64 = 13;

/// The names and addresses in server certificates.
const NAMES: [&str; 4] = ["localhost", "127.0.0.1", "::1", "*.sdam.example"];

/// The kinds of server certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCertificate {
    /// Valid for `localhost`, the loopback addresses and every name in the domain `sdam.example`.
    Valid,
    /// A certificate that was valid only in 2020.
    Expired,
    /// A certificate that is valid only in 2048.
    NotYetValid,
    /// A certificate for the name `other.example` only.
    WrongName,
    /// A certificate from another authority.
    UnknownIssuer,
    /// A self-signed certificate.
    SelfSigned,
    /// A certificate that the authority has revoked.
    Revoked,
}

impl ServerCertificate {
    /// All certificates.
    pub const ALL: [Self; 7] = [
        Self::Valid,
        Self::Expired,
        Self::NotYetValid,
        Self::WrongName,
        Self::UnknownIssuer,
        Self::SelfSigned,
        Self::Revoked,
    ];

    /// Returns a date on which a server can start with the certificate, in the format of
    /// libfaketime, or `None` if the server can start today.
    pub(crate) fn day(self) -> Option<&'static str> {
        match self {
            Self::Expired => Some("@2020-06-01 00:00:00"),
            Self::NotYetValid => Some("@2048-06-01 00:00:00"),
            _ => None,
        }
    }

    fn years(self) -> [i32; 2] {
        match self {
            Self::Expired => [2020, 2021],
            Self::NotYetValid => [2048, 2049],
            _ => YEARS,
        }
    }
}

/// An authority, the certificates that it issued, and some certificates of other issuers. They are
/// PEM files in a directory that is removed on drop. The files for servers and clients include the
/// private key.
#[derive(Debug)]
pub struct Certificates {
    dir: TempDir,
}

impl Certificates {
    /// The user name for the client's certificate, which is the certificate's subject in the form
    /// of RFC 2253.
    pub const CLIENT: &str = "CN=client,OU=clients,O=sdam";

    /// Creates all keys and certificates.
    pub fn create() -> Result<Self, Error> {
        let dir = work_dir("certificates").map_err(Error::io("creating a directory"))?;
        let certificates = Self { dir };
        let ours = &issuer("sdam authority")?;
        let other = issuer("another authority")?;
        certificates.write("authority", &ours.pem())?;
        certificates.write("other-authority", &other.pem())?;
        let save = |name: &str, params, issuer| {
            let (pem, key) = issue(params, issuer)?;
            certificates.write(name, &(pem + &key.serialize_pem()))
        };
        for certificate in ServerCertificate::ALL {
            let issuer = match certificate {
                ServerCertificate::UnknownIssuer => Some(&other),
                ServerCertificate::SelfSigned => None,
                _ => Some(ours),
            };
            save(&server_file(certificate), server(certificate)?, issuer)?;
        }
        save("client", client()?, Some(ours))?;
        save("unknown-client", client()?, Some(&other))?;
        certificates.write("revocations", &revocations(ours)?)?;
        Ok(certificates)
    }

    /// Returns the path of the certificate of the authority that clients and servers trust.
    pub fn authority(&self) -> PathBuf {
        self.file("authority")
    }

    /// Returns the path of the certificate of the authority that issued
    /// [`UnknownIssuer`](ServerCertificate::UnknownIssuer).
    pub fn other_authority(&self) -> PathBuf {
        self.file("other-authority")
    }

    /// Returns the file that a server with the certificate uses.
    pub fn server(&self, certificate: ServerCertificate) -> PathBuf {
        self.file(&server_file(certificate))
    }

    /// Returns the file of a client whose certificate has the name [`Certificates::CLIENT`].
    pub fn client(&self) -> PathBuf {
        self.file("client")
    }

    /// Returns the file of a client with a certificate from another authority.
    pub fn unknown_client(&self) -> PathBuf {
        self.file("unknown-client")
    }

    /// Returns the file of the authority's revocation list.
    pub fn revocations(&self) -> PathBuf {
        self.file("revocations")
    }

    /// Returns the connection string options for a client that trusts the authority.
    pub fn options(&self) -> String {
        format!("tls=true&tlsCAFile={}", self.authority().display())
    }

    /// Returns the directory with all files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name).with_extension("pem")
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        fs::write(self.file(name), text).map_err(Error::io("writing a certificate"))
    }
}

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issuer(name: &str) -> Result<Issuer, Error> {
    let mut params = params(&[], YEARS)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(failed)?;
    CertifiedIssuer::self_signed(params, key).map_err(failed)
}

fn server_file(certificate: ServerCertificate) -> String {
    format!("server-{certificate:?}")
}

fn params(names: &[&str], [from, until]: [i32; 2]) -> Result<CertificateParams, Error> {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn server(certificate: ServerCertificate) -> Result<CertificateParams, Error> {
    let names: &[&str] = match certificate {
        ServerCertificate::WrongName => &["other.example"],
        _ => &NAMES,
    };
    let mut params = params(names, certificate.years())?;
    let name = server_file(certificate);
    params.distinguished_name.push(DnType::CommonName, name);
    // Members of a set are also clients of each other.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    if certificate == ServerCertificate::Revoked {
        params.serial_number = Some(SerialNumber::from(REVOKED));
    }
    Ok(params)
}

fn client() -> Result<CertificateParams, Error> {
    let mut params = params(&[], YEARS)?;
    for (part, value) in [
        (DnType::OrganizationName, "sdam"),
        (DnType::OrganizationalUnitName, "clients"),
        (DnType::CommonName, "client"),
    ] {
        params.distinguished_name.push(part, value);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// Returns a certificate with a new key. Without an issuer, the certificate is self-signed.
fn issue(
    mut params: CertificateParams,
    issuer: Option<&Issuer>,
) -> Result<(String, KeyPair), Error> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = match issuer {
        Some(issuer) => params.signed_by(&key, issuer),
        None => params.self_signed(&key),
    };
    Ok((certificate.map_err(failed)?.pem(), key))
}

fn revocations(issuer: &Issuer) -> Result<String, Error> {
    let [from, until] = YEARS.map(|year| date_time_ymd(year, 1, 1));
    let revoked = RevokedCertParams {
        serial_number: SerialNumber::from(REVOKED),
        revocation_time: from,
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: from,
        next_update: until,
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(issuer).and_then(|list| list.pem()).map_err(failed)
}

fn failed(error: impl Debug) -> Error {
    Error::io("creating a certificate")(io::Error::other(format!("{error:?}")))
}
