//! Checks failed handshakes and their error messages.

use std::{path::Path, thread};

use sdam::error::Stage;
use sdam_live::{Mongod, ServerCertificate, ServerTls};
use sdam_tls::{
    Rustls,
    rustls::pki_types::{CertificateRevocationListDer, pem::PemObject},
};

use super::{accept, certificates, refuse, start, with_client};

/// Checks that a server is refused, and that the error contains these words.
#[track_caller]
fn check(mongod: &Mongod, options: &str, provider: Rustls, words: &[&str]) {
    let uri = format!("{}&{options}", mongod.uri());
    let error = refuse(&uri, provider, Stage::Tls, |builder| builder);
    for word in words.iter().chain(&["tls"]) {
        assert!(error.contains(word), "`{word}` is missing: {error}");
    }
}

#[track_caller]
fn check_accepted(mongod: &Mongod, options: &str) {
    accept(&format!("{}&{options}", mongod.uri()), |builder| builder);
}

fn option(name: &str, file: &Path) -> String {
    format!("&{name}={}", file.display())
}

#[test]
#[ignore = "deep: real servers"]
fn each_fault_of_a_server_certificate_is_named_in_the_error_of_a_selection() {
    let certificates = certificates();
    let server = |certificate| ServerTls::new(&certificates).certificate(certificate);
    let options = certificates.options();
    thread::scope(|scope| {
        for certificate in ServerCertificate::ALL {
            let (tls, options) = (server(certificate), &options);
            let list = certificates.revocations();
            scope.spawn(move || {
                let Some(mongod) = start(&tls) else { return };
                let words: &[&str] = match certificate {
                    ServerCertificate::Valid => return check_accepted(&mongod, options),
                    ServerCertificate::Expired => &["expired", "2021"],
                    ServerCertificate::NotYetValid => &["not valid", "2048"],
                    ServerCertificate::WrongName => &["127.0.0.1", "other.example"],
                    ServerCertificate::UnknownIssuer | ServerCertificate::SelfSigned => {
                        &["unknown authority"]
                    }
                    ServerCertificate::Revoked => &["revoked"],
                };
                let mut provider = Rustls::ring();
                if certificate == ServerCertificate::Revoked {
                    // Without a revocation list, the client accepts even this certificate, because
                    // it cannot know that the certificate has been revoked.
                    check_accepted(&mongod, options);
                    let list = CertificateRevocationListDer::from_pem_file(list).unwrap();
                    provider = provider.with_revocation_lists([list]);
                }
                check(&mongod, options, provider, words);
                check_accepted(&mongod, "tls=true&tlsInsecure=true");
            });
        }
    });
}

#[test]
#[ignore = "deep: real servers"]
fn a_server_that_demands_a_certificate_accepts_that_of_its_authority_alone() {
    let certificates = certificates();
    let tls = ServerTls::new(&certificates).require_client_certificates();
    for tls in [tls.clone(), tls.without_tls_1_3()] {
        let Some(mongod) = start(&tls) else { return };
        let trusting = certificates.options();
        check_accepted(&mongod, &with_client(&certificates));
        check(&mongod, &trusting, Rustls::ring(), &["client certificate"]);
        let unknown = option("tlsCertificateKeyFile", &certificates.unknown_client());
        let options = format!("{trusting}{unknown}");
        check(&mongod, &options, Rustls::ring(), &["certificate"]);
    }
}

#[test]
#[ignore = "deep: real servers"]
fn a_server_that_demands_tls_closes_connections_in_plain_text() {
    let certificates = certificates();
    let Some(mongod) = start(&ServerTls::new(&certificates)) else {
        return;
    };
    let error = refuse(&mongod.uri(), Rustls::ring(), Stage::Hello, |builder| builder);
    assert!(error.contains("requires TLS"), "{error}");
}
