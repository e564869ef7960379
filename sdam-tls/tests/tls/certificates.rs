//! Authorities and their certificates.

use std::{
    env, fs,
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams,
    CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, SigningKey, date_time_ymd,
};
use sdam_core::options::TlsOptions;
use sdam_tls::{
    Rustls,
    rustls::{
        RootCertStore,
        crypto::{CryptoProvider, ring},
        pki_types::{
            CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer,
        },
    },
};
use sdam_transport::tls::{Tls, TlsProvider};

pub(crate) type RevocationList = CertificateRevocationListDer<'static>;

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Issues a certificate for the given hosts.
    pub(crate) fn issue(&self, hosts: &[&str]) -> Issued {
        self.issue_with(hosts, |_| {})
    }

    pub(crate) fn issue_with(
        &self,
        hosts: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        let key = KeyPair::generate().unwrap();
        let mut params = params(hosts);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued { certificate, key }
    }

    /// Returns a certificate for `key` in PEM format.
    pub(crate) fn certify(&self, key: &KeyPair) -> String {
        params(&["client"]).signed_by(key, &self.0).unwrap().pem()
    }

    /// Issues a revocation list that contains only `serial`.
    pub(crate) fn revoke(&self, serial: u64, next_update: i32) -> RevocationList {
        revoke(&self.0, serial, next_update)
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }

    /// Returns a TLS configuration that trusts this authority, with default options.
    pub(crate) fn tls(&self) -> Arc<dyn Tls> {
        self.provider().tls(&TlsOptions::default()).unwrap()
    }

    pub(crate) fn provider(&self) -> Rustls {
        Rustls::ring().with_roots(self.roots())
    }
}

/// A certificate and its key.
pub(crate) struct Issued {
    certificate: Certificate,
    key: KeyPair,
}

impl Issued {
    /// Creates a self-signed certificate that has the rights of an authority (as OpenSSL does by
    /// default), or only those of a server.
    pub(crate) fn self_signed(
        hosts: &[&str],
        is_ca: IsCa,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = params(hosts);
        params.is_ca = is_ca;
        change(&mut params);
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, key }
    }

    /// Issues a revocation list that contains only `serial`, signed with the key of this
    /// certificate.
    pub(crate) fn revoke(&self, serial: u64, next_update: i32) -> RevocationList {
        revoke(&Issuer::new(params(&[]), &self.key), serial, next_update)
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }

    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    pub(crate) fn certificate_pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn pem(&self) -> String {
        format!("{}{}", self.certificate_pem(), self.key_pem())
    }
}

fn revoke(issuer: &Issuer<'_, impl SigningKey>, serial: u64, next_update: i32) -> RevocationList {
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 1),
        next_update: date_time_ymd(next_update, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(issuer).unwrap().der().clone()
}

fn params(hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name = named("server");
    params.serial_number = Some(SerialNumber::from(SERIAL));
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// A file that is removed at the end of its test.
pub(crate) struct File(PathBuf);

impl File {
    pub(crate) fn new(content: impl AsRef<[u8]>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sdam-tls-{}-{number}.pem", process::id());
        let path = env::temp_dir().join(name);
        fs::write(&path, content).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

pub(crate) fn crypto() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The serial number of all certificates.
pub(crate) const SERIAL: u64 = 7;
