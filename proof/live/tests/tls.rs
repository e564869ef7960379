//! Tests of servers with TLS for the workspace's other live tests.
#![expect(clippy::unwrap_used, reason = "a failed set-up fails the test")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bson::doc;
use sdam_live::{
    Certificates, Client, MemberSpec, Mongod, ReplicaSet, ServerCertificate, ServerTls, Version,
    or_skip,
};

/// Returns the result of `openssl verify` for a file and purpose; `None` without OpenSSL.
fn verify(certificates: &Certificates, purpose: &str, file: &Path) -> Option<String> {
    let output = Command::new("openssl")
        .args(["verify", "-crl_check", "-purpose", purpose, "-CAfile"])
        .arg(certificates.authority())
        .arg("-CRLfile")
        .arg(certificates.revocations())
        .arg(file)
        .output()
        .ok()?;
    let said = [output.stdout, output.stderr].concat();
    Some(String::from_utf8(said).unwrap())
}

#[test]
fn each_certificate_has_the_fault_of_its_name_alone() {
    let certificates = Certificates::create().unwrap();
    let check = |file: &Path, purpose, expected| {
        if let Some(said) = verify(&certificates, purpose, file) {
            assert!(said.contains(expected), "{}: {said}", file.display());
        }
    };
    for certificate in ServerCertificate::ALL {
        let expected = match certificate {
            ServerCertificate::Valid | ServerCertificate::WrongName => "OK",
            ServerCertificate::Expired => "certificate has expired",
            ServerCertificate::NotYetValid => "certificate is not yet valid",
            ServerCertificate::UnknownIssuer => "unable to get local issuer",
            ServerCertificate::SelfSigned => "self-signed",
            ServerCertificate::Revoked => "certificate revoked",
        };
        check(&certificates.server(certificate), "sslserver", expected);
    }
    check(&certificates.client(), "sslclient", "OK");
    check(&certificates.encrypted_client(), "sslclient", "OK");
    check(
        &certificates.unknown_client(),
        "sslclient",
        "unable to get local issuer",
    );
}

#[test]
fn the_encrypted_key_is_that_of_its_certificate() {
    let certificates = Certificates::create().unwrap();
    let file = certificates.encrypted_client();
    let public_key = |arguments: &[&str]| {
        let output = Command::new("openssl")
            .args(arguments)
            .arg("-in")
            .arg(&file)
            .output();
        output.ok().map(|output| output.stdout)
    };
    let password = format!("pass:{}", Certificates::PASSWORD);
    let of_key = public_key(&["pkey", "-pubout", "-passin", &password]);
    let of_certificate = public_key(&["x509", "-pubkey", "-noout"]);
    assert_eq!(of_key, of_certificate);
    assert!(of_key.is_none_or(|key| !key.is_empty()));
}

#[test]
fn every_version_speaks_tls_and_refuses_plain_text() {
    let certificates = Arc::new(Certificates::create().unwrap());
    let tls = ServerTls::new(&certificates).require_client_certificates();
    for version in Version::FETCHABLE {
        let started = Mongod::start_tls(version, &tls, &[]);
        let Some(mongod) = or_skip(started).unwrap() else {
            continue;
        };
        mongod.hello().unwrap();
        let mut plain = Client::connect(mongod.address()).unwrap();
        assert!(plain.hello().is_err(), "{version}");
        mongod.restart().unwrap();
        mongod.hello().unwrap();
    }
}

#[test]
fn a_server_has_the_certificate_that_it_is_started_with() {
    for certificate in ServerCertificate::ALL {
        let certificates = Arc::new(Certificates::create().unwrap());
        let tls = ServerTls::new(&certificates).certificate(certificate);
        let started = Mongod::start_tls(Version::V6_0, &tls, &[]);
        let Some(mongod) = or_skip(started).unwrap() else {
            return;
        };
        mongod.hello().unwrap();
        let mut client = Command::new("openssl");
        client.args(["s_client", "-connect", &mongod.host()]);
        client.stdin(Stdio::null()).stderr(Stdio::null());
        let Ok(output) = client.output() else { return };
        let said = String::from_utf8(output.stdout).unwrap();
        let subject = format!("CN = server-{certificate:?}");
        assert!(said.contains(&subject), "{said}");
    }
}

#[test]
fn a_set_with_tls_replicates_and_uses_addresses_where_the_client_names_no_server() {
    let certificates = Arc::new(Certificates::create().unwrap());
    let members = ["a", "b"].map(|name| MemberSpec::new().horizon(&format!("{name}.sdam.example")));
    let set = ReplicaSet::builder(Version::V6_0).tls(ServerTls::new(&certificates));
    let Some(set) = or_skip(set.start(&members)).unwrap() else {
        return;
    };
    let primary = set.primary().unwrap();
    let insert = doc! {
        "insert": "things", "documents": [{ "x": 1 }], "writeConcern": { "w": 2 },
    };
    set.member(primary).run_command("test", insert).unwrap();
    let hello = set.member(0).hello().unwrap();
    assert_eq!(hello.get_str("me").unwrap(), set.member(0).host());
}
