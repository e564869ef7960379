//! Creates TLS from options and the files named in them, or from a finished configuration.

use std::{fs::File, io::Read as _, sync::Arc};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    client::{VerifierBuilderError, WebPkiServerVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem::PemObject},
};
use sdam_core::{
    address::ServerAddress,
    options::{ConfigError, TlsOptions},
};
use sdam_transport::tls::{Tls, TlsProvider};
use zeroize::Zeroizing;

use crate::{
    client::{Client, Observer},
    reason::{failure, words},
    verifier::Verifier,
};

const CA_FILE: &str = "tlsCAFile";
const KEY_FILE: &str = "tlsCertificateKeyFile";

/// The maximum length of a file. It is sufficient for many thousands of certificates.
const MAX_LENGTH: u64 = 16 << 20;

/// Creates TLS from the options of a topology, using rustls.
///
/// Settings for which there is no option are passed as values: the cryptography, revocation lists,
/// and the authorities to trust if there is no `tlsCAFile`.
#[derive(Clone, Debug)]
pub struct Rustls {
    crypto: Arc<CryptoProvider>,
    /// The authorities to trust if there is no `tlsCAFile`. `None` means the platform's
    /// authorities.
    roots: Option<Arc<RootCertStore>>,
    revocation_lists: Vec<CertificateRevocationListDer<'static>>,
    observer: Option<Observer>,
}

impl Rustls {
    /// Creates a provider that uses `crypto` and trusts the platform's authorities.
    pub fn new(crypto: Arc<CryptoProvider>) -> Self {
        Self { crypto, roots: None, revocation_lists: Vec::new(), observer: None }
    }

    /// Creates a provider with ring's cryptography.
    #[cfg(feature = "ring")]
    pub fn ring() -> Self {
        Self::new(Arc::new(rustls::crypto::ring::default_provider()))
    }

    /// Trusts the authorities in `roots` instead of the platform's, unless there is a `tlsCAFile`.
    ///
    /// All topologies then share one store. The platform's authorities, in contrast, are read again
    /// whenever a topology starts.
    #[must_use]
    pub fn with_roots(mut self, roots: Arc<RootCertStore>) -> Self {
        self.roots = Some(roots);
        self
    }

    /// Trusts the authorities that Mozilla trusted when the program was built, instead of the
    /// platform's authorities, unless there is a `tlsCAFile`.
    #[cfg(feature = "webpki-roots")]
    #[must_use]
    pub fn with_bundled_roots(self) -> Self {
        let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
        self.with_roots(Arc::new(roots))
    }

    /// Rejects servers whose certificate is on one of `lists`, or is not covered by any list.
    ///
    /// Only the server's own certificate is checked, not the certificates of its authorities. A
    /// list whose next update is overdue is rejected. Without lists, no certificate counts as
    /// revoked. `tlsDisableCertificateRevocationCheck` ignores the lists.
    #[must_use]
    pub fn with_revocation_lists(
        mut self,
        lists: impl IntoIterator<Item = CertificateRevocationListDer<'static>>,
    ) -> Self {
        self.revocation_lists.extend(lists);
        self
    }

    /// Calls `observer` with the server and the session after each successful handshake. This is
    /// meant for programs that show certificates, versions and cipher suites.
    ///
    /// The observer is called without holding a lock. The connection waits until it returns.
    #[must_use]
    pub fn with_observer(
        mut self,
        observer: impl Fn(&ServerAddress, &ClientConnection) + Send + Sync + 'static,
    ) -> Self {
        self.observer = Some(Observer(Arc::new(observer)));
        self
    }

    fn verifier(&self, options: &TlsOptions) -> Result<Verifier, ConfigError> {
        let trusted = options.ca_file.as_deref().map(authorities);
        let trusted = trusted.transpose()?.unwrap_or_default();
        let is_checked = !options.disable_certificate_revocation_check;
        let lists = if is_checked { self.revocation_lists.clone() } else { Vec::new() };
        let is_any = options.allow_invalid_certificates;
        let chain = if is_any { None } else { Some(self.chain(options, &trusted, &lists)?) };
        Ok(Verifier {
            chain,
            trusted,
            lists,
            algorithms: self.crypto.signature_verification_algorithms,
            checks_name: !options.allow_invalid_hostnames,
        })
    }

    fn chain(
        &self,
        options: &TlsOptions,
        trusted: &[CertificateDer<'static>],
        lists: &[CertificateRevocationListDer<'static>],
    ) -> Result<Arc<WebPkiServerVerifier>, ConfigError> {
        let roots = match (&options.ca_file, &self.roots) {
            (Some(path), _) => Arc::new(store(path, trusted)?),
            (None, Some(roots)) => Arc::clone(roots),
            (None, None) => Arc::new(platform_roots()?),
        };
        WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&self.crypto))
            .with_crls(lists.iter().cloned())
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration()
            .build()
            .map_err(|error| unusable(&error))
    }
}

#[cfg(feature = "ring")]
impl Default for Rustls {
    fn default() -> Self {
        Self::ring()
    }
}

impl TlsProvider for Rustls {
    fn tls(&self, options: &TlsOptions) -> Result<Arc<dyn Tls>, ConfigError> {
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.crypto))
            .with_safe_default_protocol_versions()
            .map_err(|error| {
                let reason =
                    format!("the cryptography of this program cannot do it: {}", failure(&error));
                ConfigError::new("tls", "true", reason, "pass another `CryptoProvider`")
            })?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(self.verifier(options)?));
        let config = match &options.certificate_key_file {
            None => config.with_no_client_auth(),
            Some(path) => {
                let (chain, key) = identity(path)?;
                config.with_client_auth_cert(chain, key).map_err(|error| {
                    let failure = failure(&error);
                    let order = "give the certificate first, then those of its authorities, and \
                                 the key of the first certificate";
                    let (failure, remedy) = failure.split_once("; ").unwrap_or((&failure, order));
                    let reason = format!("the certificate and its key cannot be used: {failure}");
                    ConfigError::new(KEY_FILE, &**path, reason, remedy)
                })?
            }
        };
        let checks_name = !options.allow_invalid_certificates && !options.allow_invalid_hostnames;
        let observer = self.observer.clone();
        Ok(Arc::new(Client::new(config, checks_name, observer)))
    }
}

/// TLS with a finished configuration, for programs that already have one.
///
/// All settings come from this configuration, so any TLS option other than `tls=true` is refused.
#[derive(Clone, Debug)]
pub struct FixedConfig(Arc<ClientConfig>);

impl FixedConfig {
    /// Creates a provider that uses `config`.
    pub fn new(config: impl Into<Arc<ClientConfig>>) -> Self {
        Self(config.into())
    }
}

impl TlsProvider for FixedConfig {
    fn tls(&self, options: &TlsOptions) -> Result<Arc<dyn Tls>, ConfigError> {
        let set = [
            ("tlsCAFile", options.ca_file.is_some()),
            (KEY_FILE, options.certificate_key_file.is_some()),
            ("tlsAllowInvalidCertificates", options.allow_invalid_certificates),
            ("tlsAllowInvalidHostnames", options.allow_invalid_hostnames),
            ("tlsDisableCertificateRevocationCheck", options.disable_certificate_revocation_check),
            ("tlsDisableOCSPEndpointCheck", options.disable_ocsp_endpoint_check),
        ];
        match set.into_iter().find(|(_, set)| *set) {
            Some((option, _)) => {
                let reason =
                    "this program has a TLS configuration of its own, which no option changes";
                let remedy = "remove the option, or set it in the program";
                Err(ConfigError::new(option, "", reason, remedy))
            }
            None => Ok(Arc::new(Client::new(ClientConfig::clone(&self.0), true, None))),
        }
    }

    fn has_client_certificate(&self, _: &TlsOptions) -> bool {
        self.0.client_auth_cert_resolver.has_certs()
    }
}

fn store(
    path: &str,
    authorities: &[CertificateDer<'static>],
) -> Result<RootCertStore, ConfigError> {
    let mut store = RootCertStore::empty();
    for (index, authority) in authorities.iter().enumerate() {
        store.add(authority.clone()).map_err(|error| {
            let failure = failure(&error);
            let (failure, _) = failure.split_once("; ").unwrap_or((&failure, ""));
            let reason = format!("its certificate {} is not valid: {failure}", index + 1);
            ConfigError::new("tlsCAFile", path, reason, "remove or replace it")
        })?;
    }
    Ok(store)
}

fn platform_roots() -> Result<RootCertStore, ConfigError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // The platform's store may contain old certificates that the library does not accept. It also
    // contains their replacements, so the old ones can be skipped.
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let mut reason = "this machine has no list of certificate authorities".to_owned();
    for error in found.errors {
        reason.extend([": ", &error.to_string()]);
    }
    let remedy = "set `tlsCAFile`, or install the authorities (on Linux: `ca-certificates`)";
    Err(ConfigError::new("tls", "true", reason, remedy))
}

fn unusable(error: &VerifierBuilderError) -> ConfigError {
    let (reason, remedy) = match error {
        VerifierBuilderError::InvalidCrl(error) => (
            format!("a revocation list of this program is not valid: {}", words(error)),
            "replace it, or set `tlsDisableCertificateRevocationCheck`",
        ),
        error => (
            format!("this program trusts no authority: {error}"),
            "set `tlsCAFile`, or add authorities to the store of the program",
        ),
    };
    ConfigError::new("tls", "true", reason, remedy)
}

/// Reads the certificates from the file of `tlsCAFile`. A file without certificates is an error.
fn authorities(path: &str) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let remedy = "name a PEM file with the certificates of the authorities to trust";
    certificates(CA_FILE, path, &read(CA_FILE, path)?, remedy)
}

/// Reads the client's key, and the client's certificate with its chain.
fn identity(
    path: &str,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), ConfigError> {
    let pem = read(KEY_FILE, path)?;
    if is_encrypted(&pem) {
        let reason = "the private key is encrypted, which is not supported";
        let remedy = format!(
            "decrypt the key by `openssl pkey -in {path} -out key.pem`, and put it into the file \
             in place of the encrypted one"
        );
        return Err(ConfigError::new(KEY_FILE, path, reason, remedy));
    }
    let remedy = "name a PEM file with the client's certificate and its private key";
    let certificates = certificates(KEY_FILE, path, &pem, remedy)?;
    Ok((certificates, key(path, &pem)?))
}

fn read(option: &str, path: &str) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
    let mut pem = Zeroizing::new(Vec::new());
    let file = File::open(path).and_then(|file| file.take(MAX_LENGTH + 1).read_to_end(&mut pem));
    let reason = match file {
        Ok(read) if read as u64 <= MAX_LENGTH => return Ok(pem),
        Ok(_) => format!("the file is longer than {} MiB", MAX_LENGTH >> 20),
        Err(error) => format!("the file cannot be read: {error}"),
    };
    Err(ConfigError::new(option, path, reason, "name a PEM file that can be read"))
}

fn certificates(
    option: &str,
    path: &str,
    pem: &[u8],
    remedy: &str,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let invalid = |reason: String| ConfigError::new(option, path, reason, remedy);
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err(invalid("the file has no certificate".to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(invalid(format!("the file is no valid PEM: {}", words(&error)))),
    }
}

/// Returns whether `pem` contains an encrypted private key, in PKCS#8 or with the headers of
/// RFC 1421.
fn is_encrypted(pem: &[u8]) -> bool {
    let marks: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];
    marks.iter().any(|mark| pem.windows(mark.len()).any(|window| window == *mark))
}

fn key(path: &str, pem: &[u8]) -> Result<PrivateKeyDer<'static>, ConfigError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        let reason = "the file has no private key";
        let remedy = "append the key of the certificate in PEM format (PKCS#8, PKCS#1 or SEC1)";
        ConfigError::new(KEY_FILE, path, reason, remedy)
    })
}
