use std::time::Duration;

use sdam_core::{address::ServerAddress, hello::Hello, options::Options};

use super::*;
use crate::doctor::observation::{Greeting, Host, LookUp, TlsSession};

fn greeted(address: &str, reply: &bson::Document, rtt: u64) -> Host {
    let bytes = bson::serialize_to_vec(reply).unwrap();
    let mut host = Host::new(ServerAddress::parse(address).unwrap());
    host.greeting = Some(Greeting {
        hello: Hello::parse(&bytes).unwrap(),
        clock: Some(0),
        round_trips: vec![Duration::from_millis(rtt); 3],
    });
    host
}

fn mongos() -> bson::Document {
    bson::doc! { "ismaster": true, "msg": "isdbgrid", "maxWireVersion": 21, "ok": 1 }
}

fn problems(findings: &[Finding]) -> Vec<(String, Status)> {
    let problems = findings.iter().filter(|finding| finding.is_problem());
    problems.map(|finding| (finding.name(), finding.status)).collect()
}

#[test]
fn a_server_outside_the_latency_window_is_a_warning() {
    let hosts = [greeted("a", &mongos(), 2), greeted("b", &mongos(), 30)];
    let check = |uri: &str, expected: &[&str]| {
        let options = Options::parse(uri).unwrap();
        let found = problems(&times::of(&hosts, &options));
        let names: Vec<_> = found.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, expected, "{uri}");
    };
    check("mongodb://a,b", &["rtt b:27017"]);
    check("mongodb://a,b/?localThresholdMS=29", &[]);
    check("mongodb://a,b/?localThresholdMS=29&connectTimeoutMS=60", &["rtt b:27017"]);
}

#[test]
fn a_lag_between_two_writes_of_an_idle_primary_is_no_warning() {
    let check = |lag: i64, expected: &[&str]| {
        let member = |kind: &str, date| {
            bson::doc! {
                kind: true, "setName": "rs", "hosts": ["a", "b"], "maxWireVersion": 17, "ok": 1,
                "lastWrite": { "lastWriteDate": bson::DateTime::from_millis(date) },
            }
        };
        let hosts = [
            greeted("a", &member("isWritablePrimary", lag), 2),
            greeted("b", &member("secondary", 0), 2),
        ];
        let options = Options::parse("mongodb://a,b").unwrap();
        let found = problems(&times::of(&hosts, &options));
        let names: Vec<_> = found.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, expected, "{lag}");
    };
    check(11_000, &[]);
    check(12_000, &["lag b:27017"]);
}

#[test]
fn a_certificate_is_a_warning_before_it_expires() {
    let check = |days: i64, expected: &[&str]| {
        let mut host = Host::new(ServerAddress::parse("a").unwrap());
        host.session = Some(TlsSession {
            protocol: "TLSv1_3".to_owned(),
            cipher: String::new(),
            not_after: Some(days * 86_400),
            names: Vec::new(),
            now: 0,
        });
        let options = Options::parse("mongodb://a/?tls=true").unwrap();
        let found = problems(&connection::of(&host, &options));
        let names: Vec<_> = found.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, expected, "{days}");
    };
    check(31, &[]);
    check(30, &[]);
    check(29, &["tls.verify a:27017"]);
}

#[test]
fn a_name_in_etc_hosts_is_a_warning_unless_the_member_is_this_host() {
    let check = |me: &str, expected: &[&str]| {
        let reply = bson::doc! {
            "secondary": true, "setName": "rs", "hosts": ["a", "b"], "me": me,
            "maxWireVersion": 17, "ok": 1,
        };
        let mut host = greeted("a", &reply, 2);
        let addresses = vec![([127, 0, 1, 1], 27017).into()];
        host.look_up = Some(LookUp { addresses, took: Duration::ZERO });
        let options = Options::parse("mongodb://a,b").unwrap();
        let found = problems(&connection::of(&host, &options));
        let names: Vec<_> = found.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, expected, "{me}");
    };
    check("a:27017", &[]);
    check("b:27017", &["dns.addr a:27017"]);
}

#[test]
fn the_steps_after_a_failure_are_skipped_for_that_host_alone() {
    let mut lost = Host::new(ServerAddress::parse("b").unwrap());
    lost.error = Some(Error::new(ErrorKind::Network, sdam_core::error::Stage::Dns, "no such name"));
    let seen = Observation {
        options: Some(Options::parse("mongodb://a,b").unwrap()),
        hosts: vec![greeted("a", &mongos(), 2), lost],
        ..Observation::default()
    };
    let findings = of(&seen);
    assert_eq!(problems(&findings), [("dns.addr b:27017".to_owned(), Status::Fail)]);
    let skipped = findings.iter().filter(|own| own.status == Status::Skip);
    let skipped: Vec<_> = skipped.map(|own| (own.name(), own.blocked_by.clone())).collect();
    let by = Some("dns.addr b:27017".to_owned());
    assert_eq!(skipped, [("tcp b:27017".to_owned(), by.clone()), ("hello b:27017".to_owned(), by)]);
}

#[test]
fn a_login_without_a_reachable_server_is_skipped() {
    let seen = Observation {
        options: Some(Options::parse("mongodb://u:p@a").unwrap()),
        ..Observation::default()
    };
    let findings = of(&seen);
    let auth = findings.iter().find(|own| own.check == Check::Auth).unwrap();
    assert_eq!(auth.status, Status::Skip);
}

#[test]
fn a_lack_of_descriptors_is_not_blamed_on_the_network() {
    use crate::{
        descriptors,
        doctor::observation::{Dial, Reached},
    };

    // Error 24 is EMFILE, "too many open files".
    let error = std::io::Error::from_raw_os_error(24);
    assert_eq!(descriptors::are_exhausted(&error), cfg!(unix));
    let mut host = Host::new(ServerAddress::new("127.0.0.1", 1));
    let (to, took) = (([127, 0, 0, 1], 1).into(), Duration::ZERO);
    host.dials.push(Dial { to, outcome: Reached::NoDescriptor, took });
    host.error = Some(Error::network(sdam_core::error::Stage::Connect, "none"));
    let found = connection::of(&host, &Options::parse("mongodb://127.0.0.1:1").unwrap());
    assert_eq!(problems(&found), [("tcp 127.0.0.1:1".to_owned(), Status::Error)]);
    assert!(found[0].remedies[0].contains("ulimit"), "{found:?}");

    // If a check itself fails with an error, this also explains why later checks are skipped.
    let seen = Observation {
        options: Some(Options::parse("mongodb://u:p@127.0.0.1:1").unwrap()),
        hosts: vec![host],
        ..Observation::default()
    };
    let findings = of(&seen);
    let auth = findings.iter().find(|own| own.check == Check::Auth).unwrap();
    let by = Some("tcp 127.0.0.1:1".to_owned());
    assert_eq!((auth.status, &auth.blocked_by), (Status::Skip, &by));
}

#[test]
fn a_write_that_no_majority_acknowledges_is_told_from_one_that_is_refused() {
    let check = |step, code, expected: (Status, &str)| {
        let error = Error::new(ErrorKind::Command, sdam_core::error::Stage::Operation, "no");
        let outcome = Err((step, error.with_code(code)));
        let canary = Canary { collection: "a.b".to_owned(), outcome, took: Duration::ZERO };
        let found = written(&canary, None);
        assert_eq!(found.status, expected.0);
        assert!(found.remedies[0].contains(expected.1), "{found:?}");
        assert_eq!(written(&canary, Some("tcp a:1".to_owned())).status, Status::Skip);
    };
    check("insert", 64, (Status::Fail, "lag of the secondaries"));
    check("delete", 64, (Status::Fail, "lag of the secondaries"));
    check("insert", 13, (Status::Fail, "grant the user readWrite"));
    check("insert", 121, (Status::Fail, "look at the error"));
    check("delete", 13, (Status::Warn, "delete the documents of a.b"));
}

#[test]
fn misspelled_options_are_recognized_and_others_are_not() {
    let check = |name, expected| assert_eq!(suggestion(name), expected, "{name}");
    check("replicaset", None);
    check("replicaSte", Some("replicaSet"));
    check("readPreferance", Some("readPreference"));
    check("localTresholdMS", Some("localThresholdMS"));
    check("conectTimeoutMs", Some("connectTimeoutMS"));
    check("colour", None);
}
