//! Blocking mode over TLS, with mongod.

use std::{path::Path, sync::Arc};

use sdam::{BlockingTopology, Criteria, Options, SelectionError, Stage, TopologyBuilder};
use sdam_live::{
    Certificates, MemberSpec, Mongod, ReplicaSet, ServerCertificate, ServerTls, or_skip,
};
use sdam_transport::AddressTable;

use crate::{live::version, write};

fn certificates() -> Arc<Certificates> {
    Arc::new(Certificates::create().unwrap())
}

fn start(tls: &ServerTls) -> Option<Mongod> {
    or_skip(Mongod::start_tls(version(), tls, &[])).unwrap()
}

fn client(certificates: &Certificates, file: &Path) -> String {
    let options = certificates.options();
    format!("{options}&tlsCertificateKeyFile={}", file.display())
}

/// Selects the server of a connection string. The error comes from the first check.
fn select(uri: &str, table: &AddressTable) -> Result<(), String> {
    let builder = TopologyBuilder::new(Options::parse(uri).unwrap()).translate(table.clone());
    let mut topology: BlockingTopology = builder.blocking().unwrap();
    match topology.select(&Criteria::write()) {
        Ok(_) => Ok(()),
        Err(SelectionError::Timeout(timeout)) => {
            let error = &timeout.failures[0].last.as_ref().unwrap().error;
            assert_eq!(error.stage(), Stage::Tls, "{error}");
            Err(timeout.to_string())
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn writes_over_tls_reach_the_new_primary_after_a_step_down_and_after_a_kill() {
    let certificates = certificates();
    let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new()];
    let tls = ServerTls::new(&certificates).require_client_certificates();
    let set = ReplicaSet::builder(version()).tls(tls).start(&members);
    let Some(set) = or_skip(set).unwrap() else {
        return;
    };
    let options = client(&certificates, &certificates.client());
    let wait = "serverSelectionTryOnce=false&connectTimeoutMS=5000";
    let mut topology = crate::start(&set.uri(), &format!("{wait}&{options}"));
    write(&mut topology);
    let old = set.step_down().unwrap();
    assert_ne!(write(&mut topology), set.member(old).host());
    let victim = set.primary().unwrap();
    set.member(victim).kill().unwrap();
    assert_ne!(write(&mut topology), set.member(victim).host());
}

#[test]
fn each_fault_of_a_server_certificate_is_named_in_the_error_of_a_selection() {
    let certificates = certificates();
    let table = AddressTable::default();
    for (certificate, words) in [
        (ServerCertificate::Valid, None),
        (ServerCertificate::Expired, Some("expired")),
        (ServerCertificate::NotYetValid, Some("not valid")),
        (ServerCertificate::WrongName, Some("other.example")),
        (ServerCertificate::UnknownIssuer, Some("unknown authority")),
        (ServerCertificate::SelfSigned, Some("unknown authority")),
    ] {
        let tls = ServerTls::new(&certificates).certificate(certificate);
        let Some(mongod) = start(&tls) else { return };
        let outcome = select(
            &format!("{}&{}", mongod.uri(), certificates.options()),
            &table,
        );
        match (outcome, words) {
            (Ok(()), None) => {}
            (Err(error), Some(words)) => assert!(error.contains(words), "{error}"),
            (outcome, _) => panic!("{certificate:?}: {outcome:?}"),
        }
    }
}

#[test]
fn a_server_that_demands_a_certificate_accepts_that_of_its_authority_alone() {
    let certificates = certificates();
    let table = AddressTable::default();
    let tls = ServerTls::new(&certificates).require_client_certificates();
    for tls in [tls.clone(), tls.without_tls_1_3()] {
        let Some(mongod) = start(&tls) else { return };
        let select = |options: &str| select(&format!("{}&{options}", mongod.uri()), &table);
        select(&client(&certificates, &certificates.client())).unwrap();
        let unknown = client(&certificates, &certificates.unknown_client());
        for options in [&certificates.options(), &unknown] {
            let error = select(options).unwrap_err();
            assert!(error.contains("certificate"), "{error}");
        }
    }
}
