//! Blocking mode over TLS, with mongod.

use std::sync::Arc;

use sdam::error::Stage;
use sdam_live::{Certificates, MemberSpec, ReplicaSet, ServerTls, or_skip};

use super::{live::version, start, write};

#[test]
#[ignore = "deep: real servers"]
fn writes_over_tls_reach_the_new_primary_and_a_foreign_authority_is_refused() {
    let certificates = Arc::new(Certificates::create().unwrap());
    let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new()];
    let tls = ServerTls::new(&certificates).require_client_certificates();
    let set = ReplicaSet::builder(version()).tls(tls);
    let Some(set) = or_skip(set.start(&members)).unwrap() else {
        return;
    };
    let client = certificates.client();
    let wait = "serverSelectionTryOnce=false&connectTimeoutMS=5000";
    let options = certificates.options();
    let options = format!("{wait}&{options}&tlsCertificateKeyFile={}", client.display());
    let mut topology = start(&set.uri(), &options);
    write(&mut topology);
    let old = set.step_down().unwrap();
    assert_ne!(write(&mut topology), set.member(old).host());

    let other = certificates.other_authority();
    let mut topology = start(&set.uri(), &format!("tls=true&tlsCAFile={}", other.display()));
    topology.scan();
    let error = topology.description().servers()[0].error.clone().unwrap();
    assert_eq!(error.stage(), Stage::Tls, "{error}");
}
