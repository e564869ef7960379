//! Rustls at both ends of connections, with certificates that are valid in virtual time.

use std::{
    io::{self, Read as _, Write as _},
    sync::Arc,
    time::Duration,
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    SerialNumber, date_time_ymd,
};
use sdam_core::{
    options::{ConfigError, TlsOptions},
    time::Instant,
};
use sdam_tls::{
    FixedConfig,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig, ServerConnection,
        client::Resumption,
        crypto::{CryptoProvider, ring},
        pki_types::{PrivatePkcs8KeyDer, UnixTime},
        server::NoServerSessionStorage,
        time_provider::TimeProvider,
    },
};
use sdam_transport::{
    clock::Clock,
    tls::{Tls, TlsProvider},
};

use super::{Certificate, TlsAcceptor, TlsSession};
use crate::MemberId;

/// Returns the TLS libraries of the members and of the program.
#[expect(clippy::expect_used, reason = "only a system without entropy has no keys")]
pub(in super::super) fn rustls(clock: Arc<dyn Clock>) -> (impl TlsAcceptor, impl TlsProvider) {
    // The keys are random. They do not affect message lengths, because all Ed25519 signatures have
    // the same length.
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("no key was generated");
    let key = Arc::new(key);
    let clients = Clients(Arc::clone(&key), WallClock(clock));
    (Servers(key), clients)
}

/// The servers' TLS library, with the key of all certificates.
#[derive(Debug)]
struct Servers(Arc<KeyPair>);

/// The program's TLS library, with the same key.
#[derive(Debug)]
struct Clients(Arc<KeyPair>, WallClock);

impl Servers {
    fn serve(&self, certificate: &Certificate) -> Result<ServerConfig, Box<dyn std::error::Error>> {
        let names: Vec<_> = certificate.names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = named("server");
        params.serial_number = Some(SerialNumber::from(1));
        let begin = date_time_ymd(YEAR, 1, 1);
        let second = |at: Instant| at.min(LATEST).since(Instant::EPOCH);
        params.not_before = begin + Duration::from_secs(ceil(second(certificate.not_before)));
        params.not_after = begin + Duration::from_secs(second(certificate.not_after).as_secs());
        let issuer = Issuer::new(authority(&certificate.issuer), &*self.0);
        let signed = params.signed_by(&*self.0, &issuer)?;
        let key = PrivatePkcs8KeyDer::from(self.0.serialize_der());
        let mut config = ServerConfig::builder_with_provider(crypto())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![signed.into()], key.into())?;
        // A resumed session would skip the check of the certificate and rely on an earlier one.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

impl TlsAcceptor for Servers {
    fn accept(&self, _: MemberId, certificate: &Certificate) -> io::Result<Box<dyn TlsSession>> {
        let config = self.serve(certificate);
        let config = Arc::new(config.map_err(|error| io::Error::other(error.to_string()))?);
        let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
        session.set_buffer_limit(None);
        Ok(Box::new(session))
    }
}

impl TlsSession for ServerConnection {
    fn receive(&mut self, mut bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            self.read_tls(&mut bytes)?;
            let state = self.process_new_packets().map_err(io::Error::other)?;
            let begin = plain.len();
            plain.resize(begin + state.plaintext_bytes_to_read(), 0);
            self.reader().read_exact(&mut plain[begin..])?;
        }
        Ok(plain)
    }

    fn send(&mut self, data: &[u8]) {
        // The writer's buffer has no limit, so this cannot fail.
        let _ = self.writer().write_all(data);
    }

    fn outgoing(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.wants_write() && self.write_tls(&mut bytes).is_ok() {}
        bytes
    }

    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }
}

impl TlsProvider for Clients {
    fn tls(&self, options: &TlsOptions) -> Result<Arc<dyn Tls>, ConfigError> {
        let unusable = |reason: String| ConfigError::new("tls", "true", reason, "report a bug");
        let mut roots = RootCertStore::empty();
        let root = authority(Certificate::AUTHORITY).self_signed(&*self.0);
        let root = root.map_err(|error| unusable(error.to_string()))?;
        roots.add(root.into()).map_err(|error| unusable(error.to_string()))?;
        let mut config = ClientConfig::builder_with_details(crypto(), Arc::new(self.1.clone()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        FixedConfig::new(config).tls(options)
    }
}

/// The program's wall clock, rounded up to whole seconds because the times in certificates have no
/// fractional part.
#[derive(Clone, Debug)]
struct WallClock(Arc<dyn Clock>);

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let begin = date_time_ymd(YEAR, 1, 1).unix_timestamp().unsigned_abs();
        let since = ceil(self.0.now().since(Instant::EPOCH));
        Some(UnixTime::since_unix_epoch(Duration::from_secs(begin + since)))
    }
}

/// The year in which virtual time begins.
const YEAR: i32 = 2024;
/// The latest end of validity in a certificate. A later end is replaced with this instant.
const LATEST: Instant = Instant::from_nanos(1_000_000_000 * 3600 * 24 * 365 * 50);

fn ceil(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

fn crypto() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}
