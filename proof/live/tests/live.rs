//! Tests of assumptions about servers. The other live tests rely on these assumptions without
//! verifying them.

use bson::doc;
use sdam_live::{Error, MemberSpec, Mongod, ReplicaSet, Version, or_skip};

#[test]
#[ignore = "deep: real servers"]
fn every_version_reports_its_series() {
    let expected = [8, 9, 13, 17];
    for (version, max_wire_version) in Version::FETCHABLE.into_iter().zip(expected) {
        let Some(mongod) = or_skip(Mongod::start(version)).unwrap() else {
            continue;
        };
        let hello = mongod.hello().unwrap();
        let series = hello.get_i32("maxWireVersion").unwrap();
        assert_eq!(series, max_wire_version, "{version}");
        let build = doc! { "buildInfo": 1 };
        let build = mongod.run_command("admin", build).unwrap();
        let release = build.get_str("version").unwrap();
        assert!(release.starts_with(&format!("{version}.")), "{release}");
    }
}

#[test]
fn the_log_of_a_server_with_bad_arguments_is_in_the_error() {
    let started = Mongod::start_with(Version::V6_0, &["--no-such-option"]);
    match or_skip(started) {
        Err(Error::Exited(text)) => assert!(text.contains("no-such-option"), "{text}"),
        Ok(None) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "deep: real servers"]
fn the_first_writes_of_a_new_set_are_on_a_majority() {
    let members = [const { MemberSpec::new() }; 3];
    let Some(set) = or_skip(ReplicaSet::start(Version::V4_2, &members)).unwrap() else {
        return;
    };
    for member in set.members() {
        let hello = member.hello().unwrap();
        let write = hello.get_document("lastWrite").unwrap();
        let committed = write.get_document("majorityOpTime").unwrap();
        assert!(committed.get_i64("t").unwrap() > 0, "{hello}");
    }
}
