use std::time::Duration;

use bson::{Document, doc};
use sdam_core::{address::ServerAddress, error::Stage, hello::Hello, options::Options};

use super::*;
use crate::doctor::observation::{Dial, Greeting, Host, LookUp, Reached, TlsSession};

fn host(name: &str) -> Host {
    Host::new(ServerAddress::parse(name).unwrap())
}

fn greeted(name: &str, reply: &Document, rtt: u64) -> Host {
    let bytes = bson::serialize_to_vec(reply).unwrap();
    let hello = Hello::parse(&bytes).unwrap();
    let round_trips = vec![Duration::from_millis(rtt); 3];
    Host { greeting: Some(Greeting { hello, clock: Some(0), round_trips }), ..host(name) }
}

fn mongos() -> Document {
    doc! { "ismaster": true, "msg": "isdbgrid", "maxWireVersion": 21, "ok": 1 }
}

/// Checks that the problems among `findings` are `expected`, as `id host status`.
#[track_caller]
fn check(findings: &[Finding], expected: &[&str]) {
    let problems = findings.iter().filter(|finding| finding.is_problem());
    let problems = problems.map(|finding| format!("{} {}", finding.name(), finding.status));
    assert_eq!(problems.collect::<Vec<_>>(), expected);
}

#[test]
fn a_server_outside_the_latency_window_is_a_warning() {
    let hosts = [greeted("a", &mongos(), 2), greeted("b", &mongos(), 30)];
    let check = |uri: &str, expected: &[&str]| {
        check(&times(&hosts, &Options::parse(uri).unwrap()), expected);
    };
    check("mongodb://a,b", &["rtt b:27017 warn"]);
    check("mongodb://a,b/?localThresholdMS=29", &[]);
    check("mongodb://a,b/?localThresholdMS=29&connectTimeoutMS=60", &["rtt b:27017 warn"]);
}

#[test]
fn a_certificate_is_a_warning_before_it_expires() {
    let options = Options::parse("mongodb://a/?tls=true").unwrap();
    for (days, expected) in [(31, &[][..]), (30, &[]), (29, &["tls.verify a:27017 warn"])] {
        let session = TlsSession {
            protocol: "TLSv1_3".to_owned(),
            cipher: String::new(),
            not_after: Some(days * 86_400),
            names: Vec::new(),
            now: 0,
        };
        let host = Host { session: Some(session), ..host("a") };
        check(&connection::of(&host, &options), expected);
    }
}

#[test]
fn a_name_in_etc_hosts_is_a_warning_unless_the_member_is_this_host() {
    let options = Options::parse("mongodb://a,b").unwrap();
    for (me, expected) in [("a:27017", &[][..]), ("b:27017", &["dns.addr a:27017 warn"])] {
        let reply = doc! {
            "secondary": true, "setName": "rs", "hosts": ["a", "b"], "me": me,
            "maxWireVersion": 17, "ok": 1,
        };
        let addresses = vec![([127, 0, 1, 1], 27017).into()];
        let look_up = Some(LookUp { addresses, took: Duration::ZERO });
        let host = Host { look_up, ..greeted("a", &reply, 2) };
        check(&connection::of(&host, &options), expected);
    }
}

#[test]
fn the_steps_after_a_failure_are_skipped_for_that_host_alone() {
    let error = Some(Error::network(Stage::Dns, "no such name"));
    let seen = Observation {
        options: Some(Options::parse("mongodb://a,b").unwrap()),
        hosts: vec![greeted("a", &mongos(), 2), Host { error, ..host("b") }],
        ..Observation::default()
    };
    let findings = of(&seen);
    check(&findings, &["dns.addr b:27017 fail"]);
    let skipped = findings.iter().filter(|own| own.status == Status::Skip);
    let skipped: Vec<_> = skipped.map(|own| (own.name(), own.blocked_by.clone())).collect();
    let by = Some("dns.addr b:27017".to_owned());
    assert_eq!(skipped, [("tcp b:27017".to_owned(), by.clone()), ("hello b:27017".to_owned(), by)]);
}

#[test]
fn a_lack_of_descriptors_is_not_blamed_on_the_network_and_is_why_the_login_is_skipped() {
    let mut host = host("127.0.0.1:1");
    let (to, took) = (([127, 0, 0, 1], 1).into(), Duration::ZERO);
    host.dials.push(Dial { to, outcome: Reached::NoDescriptor, took });
    host.error = Some(Error::network(Stage::Connect, "none"));
    let seen = Observation {
        options: Some(Options::parse("mongodb://u:p@127.0.0.1:1").unwrap()),
        hosts: vec![host],
        ..Observation::default()
    };
    let findings = of(&seen);
    check(&findings, &["tcp 127.0.0.1:1 error"]);
    let of = |check| findings.iter().find(|own| own.check == check).unwrap();
    assert!(of(Check::Tcp).remedies[0].contains("ulimit"), "{findings:?}");
    let (auth, by) = (of(Check::Auth), Some("tcp 127.0.0.1:1".to_owned()));
    assert_eq!((auth.status, &auth.blocked_by), (Status::Skip, &by));
}

#[test]
fn a_write_that_no_majority_acknowledges_is_told_from_one_that_is_refused() {
    for (step, code, status, remedy) in [
        ("insert", 64, Status::Fail, "lag of the secondaries"),
        ("delete", 64, Status::Fail, "lag of the secondaries"),
        ("insert", 13, Status::Fail, "grant the user readWrite"),
        ("insert", 121, Status::Fail, "look at the error"),
        ("delete", 13, Status::Warn, "delete the documents of a.b"),
    ] {
        let error = Error::new(ErrorKind::Command, Stage::Operation, "no").with_code(code);
        let outcome = Err((step, error));
        let canary = Canary { collection: "a.b".to_owned(), outcome, took: Duration::ZERO };
        let found = written(&canary, None);
        assert_eq!(found.status, status);
        assert!(found.remedies[0].contains(remedy), "{found:?}");
        assert_eq!(written(&canary, Some("tcp a:1".to_owned())).status, Status::Skip);
    }
}
