//! Tests of the files that options name: the contents that are accepted, and the errors that other
//! contents cause.

use rcgen::KeyPair;
use sdam_core::options::{ConfigError, Options, TlsOptions};
use sdam_tls::{Rustls, rustls::version::TLS13};
use sdam_transport::tls::TlsProvider as _;

use crate::{
    certificates::{Authority, File, Issued},
    handshakes::negotiate,
    server::{Wire, serve, serve_clients_of},
    streams::exchange,
};

const RSA_PKCS1: &str = include_str!("keys/rsa.pkcs1.pem");
const RSA_PKCS8: &str = include_str!("keys/rsa.pkcs8.pem");
const EC_PKCS8: &str = include_str!("keys/ec.pkcs8.pem");

/// Returns the TLS options of a connection string that contains `query`.
fn options(query: &str) -> TlsOptions {
    let options = Options::parse(&format!("mongodb://a/?tls=true{query}")).unwrap();
    options.tls.unwrap()
}

#[track_caller]
fn refused(query: &str) -> ConfigError {
    Rustls::ring().tls(&options(query)).unwrap_err()
}

/// Checks the error that `option` causes if its file contains `content`.
#[track_caller]
fn invalid(option: &str, content: &str, reason: &str, remedy: &str) {
    let file = File::new(content);
    let error = refused(&format!("&{option}={}", file.path()));
    assert_eq!((error.option(), error.value()), (option, file.path()));
    assert_eq!(error.reason(), reason);
    assert_eq!(error.remedy(), remedy.replace("FILE", file.path()));
}

#[test]
fn the_ca_file_replaces_all_other_authorities() {
    // Only the authorities in the file are trusted, not those of the platform (V-5).
    let (one, two, three) = (Authority::new("1"), Authority::new("2"), Authority::new("3"));
    let file = File::new(format!("a comment\n{}{}", one.pem(), two.pem()));
    let options = options(&format!("&tlsCAFile={}", file.path()));
    let tls = three.provider().tls(&options).unwrap();
    for (authority, trusted) in [(one, true), (two, true), (three, false)] {
        let wire = Wire::tls(&serve(&authority.issue(&["a"])));
        assert_eq!(negotiate(&tls, wire, "a").is_ok(), trusted);
    }
}

/// Presents the key's certificate to a server that requires it.
#[track_caller]
fn presented(key: &str, file_key: &str) {
    let (authority, clients) = (Authority::new("one"), Authority::new("clients"));
    let certificate = clients.certify(&KeyPair::from_pem(key).unwrap());
    // Files contain the certificate and the key in either order.
    for content in [format!("{certificate}{file_key}"), format!("{file_key}{certificate}")] {
        let file = File::new(content);
        let query = format!("&tlsCertificateKeyFile={}", file.path());
        let tls = authority.provider().tls(&options(&query)).unwrap();
        let config = serve_clients_of(&authority.issue(&["a"]), &clients, &TLS13);
        exchange(&mut negotiate(&tls, Wire::tls(&config), "a").unwrap(), b"hello");
    }
}

#[test]
fn keys_are_read_in_each_format() {
    // The file contains the client's certificate and its key (V-6).
    presented(RSA_PKCS8, RSA_PKCS8);
    presented(RSA_PKCS8, RSA_PKCS1);
    presented(EC_PKCS8, EC_PKCS8);
    presented(EC_PKCS8, include_str!("keys/ec.sec1.pem"));
}

#[test]
fn an_encrypted_key_is_refused_with_the_command_that_decrypts_it() {
    // Encrypted keys are not supported (V-7). The file may also contain a plain key.
    let certificate = Authority::new("one").certify(&KeyPair::from_pem(EC_PKCS8).unwrap());
    let remedy = "decrypt the key by `openssl pkey -in FILE -out key.pem`, and put it into the \
                  file in place of the encrypted one";
    for key in [include_str!("keys/ec.encrypted.pem"), include_str!("keys/ec.legacy.pem")] {
        for content in [format!("{certificate}{key}"), format!("{key}{certificate}{EC_PKCS8}")] {
            let reason = "the private key is encrypted, which is not supported";
            invalid("tlsCertificateKeyFile", &content, reason, remedy);
        }
    }
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_its_option() {
    for option in ["tlsCAFile", "tlsCertificateKeyFile"] {
        let error = refused(&format!("&{option}=/no/such/file.pem"));
        assert_eq!(
            error.to_string(),
            format!(
                "`{option}` is `/no/such/file.pem`: the file cannot be read: No such file or \
                 directory (os error 2); name a PEM file that can be read"
            )
        );
        #[cfg(unix)]
        {
            let endless = refused(&format!("&{option}=/dev/zero"));
            assert_eq!(endless.reason(), "the file is longer than 16 MiB");
        }
    }
    let remedy = "name a PEM file with the certificates of the authorities to trust";
    invalid("tlsCAFile", "", "the file has no certificate", remedy);
    invalid("tlsCAFile", EC_PKCS8, "the file has no certificate", remedy);
    let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let reason = "its certificate 1 is not valid: the certificate is not acceptable (bad encoding)";
    invalid("tlsCAFile", certificate, reason, "remove or replace it");
    let issued = Authority::new("one").issue(&["a"]);
    let other = Issued::self_signed(&["a"], rcgen::IsCa::NoCa, |_| {});
    let option = "tlsCertificateKeyFile";
    let remedy = "name a PEM file with the client's certificate and its private key";
    invalid(option, &issued.key_pem(), "the file has no certificate", remedy);
    let remedy = "append the key of the certificate in PEM format (PKCS#8, PKCS#1 or SEC1)";
    let certificate = issued.certificate_pem();
    invalid(option, &certificate, "the file has no private key", remedy);
    let remedy = "give the certificate first, then those of its authorities, and the key of the \
                  first certificate";
    let unusable = "the certificate and its key cannot be used: ";
    let reason = format!("{unusable}the key does not belong to the certificate");
    invalid(option, &format!("{certificate}{}", other.key_pem()), &reason, remedy);
    let old = format!("{}{EC_PKCS8}", include_str!("keys/version1.crt.pem"));
    let reason = format!("{unusable}the certificate has an older X.509 version than 3");
    let remedy = "issue it again as version 3, for instance with `openssl x509 -req -extfile`";
    invalid(option, &old, &reason, remedy);
}

#[test]
fn a_file_is_read_also_if_all_certificates_are_accepted() {
    let error = refused("&tlsCAFile=/no/such/file.pem&tlsInsecure=true");
    assert_eq!(error.option(), "tlsCAFile");
}

#[test]
fn the_authorities_of_the_platform_are_trusted_by_default() {
    match Rustls::default().tls(&options("")) {
        Ok(tls) => {
            let wire = Wire::tls(&serve(&Authority::new("one").issue(&["a"])));
            let error = negotiate(&tls, wire, "a").unwrap_err();
            assert!(error.message().contains("unknown authority"), "{error}");
        }
        Err(error) => assert!(error.reason().starts_with("this machine has no list"), "{error}"),
    }
}

#[cfg(feature = "webpki-roots")]
#[test]
fn bundled_authorities_need_no_file() {
    let tls = Rustls::ring().with_bundled_roots().tls(&options("")).unwrap();
    let wire = Wire::tls(&serve(&Authority::new("one").issue(&["a"])));
    negotiate(&tls, wire, "a").unwrap_err();
}

#[test]
fn options_that_loosen_what_is_not_checked_are_accepted() {
    let authority = Authority::new("one");
    let options = options("&tlsDisableOCSPEndpointCheck=true");
    let tls = authority.provider().tls(&options).unwrap();
    negotiate(&tls, Wire::tls(&serve(&authority.issue(&["a"]))), "a").unwrap();
}
