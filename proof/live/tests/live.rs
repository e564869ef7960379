//! Tests of the server features on which the workspace's other live tests rely.
#![expect(clippy::unwrap_used, reason = "a failed set-up fails the test")]

use std::time::Duration;

use bson::{Document, doc};
use sdam_live::{
    Client, Error, FailCommand, MemberSpec, Mongod, ROOT, ReplicaSet, Version, mongod_path, or_skip,
};

/// Returns a list of members from a member's hello reply.
fn strings(hello: &Document, key: &str) -> Vec<String> {
    let hosts = hello.get_array(key).cloned().unwrap_or_default();
    hosts
        .iter()
        .filter_map(|host| host.as_str().map(str::to_owned))
        .collect()
}

/// Runs a check on a standalone server of a version, unless no server is available.
fn with_standalone(version: Version, check: impl FnOnce(&Mongod)) {
    if let Some(mongod) = or_skip(Mongod::start(version)).unwrap() {
        check(&mongod);
    }
}

/// Runs a check on a set of 6.0, unless no server is available.
fn with_set(members: &[MemberSpec], check: impl FnOnce(ReplicaSet)) {
    if let Some(set) = or_skip(ReplicaSet::start(Version::V6_0, members)).unwrap() {
        check(set);
    }
}

#[test]
fn every_version_reports_its_series() {
    let expected = [8, 9, 13, 17];
    for (version, max_wire_version) in Version::FETCHABLE.into_iter().zip(expected) {
        with_standalone(version, |mongod| {
            let hello = mongod.hello().unwrap();
            assert_eq!(
                hello.get_i32("maxWireVersion").unwrap(),
                max_wire_version,
                "{version}"
            );
            assert!(hello.get_bool("isWritablePrimary").unwrap(), "{version}");
            assert!(!hello.contains_key("setName"), "{version}");

            let build = mongod
                .run_command("admin", doc! { "buildInfo": 1 })
                .unwrap();
            let release = build.get_str("version").unwrap();
            assert!(release.starts_with(&format!("{version}.")), "{release}");
        });
    }
}

#[test]
fn every_version_forms_a_replica_set() {
    for version in Version::FETCHABLE {
        let members = [MemberSpec::new()];
        let Some(set) = or_skip(ReplicaSet::start(version, &members)).unwrap() else {
            continue;
        };
        assert_eq!(set.primary().unwrap(), 0, "{version}");
        set.reconfig_member(0, |member| drop(member.insert("tags", doc! { "dc": "ny" })))
            .unwrap();
        let hello = set.member(0).hello().unwrap();
        assert_eq!(
            hello.get_document("tags").unwrap(),
            &doc! { "dc": "ny" },
            "{version}"
        );
    }
}

#[test]
fn a_killed_server_refuses_and_a_restarted_one_answers() {
    with_standalone(Version::V6_0, |mongod| {
        // Only a journaled write survives a kill.
        let insert = doc! {
            "insert": "c",
            "documents": [{ "_id": 7 }],
            "writeConcern": { "w": 1, "j": true },
        };
        mongod.run_command("test", insert).unwrap();
        mongod.kill().unwrap();
        assert!(!mongod.is_responsive());
        assert!(matches!(mongod.hello(), Err(Error::Io(..))));
        mongod.kill().unwrap();

        mongod.restart().unwrap();
        assert!(mongod.is_responsive());
        let found = mongod.run_command("test", doc! { "find": "c" }).unwrap();
        let found = found
            .get_document("cursor")
            .unwrap()
            .get_array("firstBatch")
            .unwrap();
        assert_eq!(found, &vec![doc! { "_id": 7 }.into()]);

        mongod.sigterm().unwrap();
        mongod.wait_exit().unwrap();
        assert!(mongod.sigterm().is_err());
    });
}

#[test]
fn a_stopped_server_is_silent_until_it_continues() {
    with_standalone(Version::V6_0, |mongod| {
        let try_hello = Duration::from_millis(200);
        mongod.sigstop().unwrap();
        assert!(!mongod.is_responsive());
        let mut client = Client::connect_with_timeout(mongod.address(), try_hello).unwrap();
        assert!(matches!(client.hello(), Err(Error::Io(..))));
        mongod.sigcont().unwrap();
        mongod.hello().unwrap();
    });
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
fn a_fail_point_fails_matching_commands_until_dropped() {
    for version in [Version::V4_4, Version::V6_0] {
        with_standalone(version, |mongod| {
            let ping = || mongod.run_command("admin", doc! { "ping": 1 });
            let code = || ping().map_err(|error| error.code());

            let twice = FailCommand::new(["ping"])
                .times(2)
                .error_code(91)
                .error_labels(["L"]);
            let point = mongod.fail_command(twice).unwrap();
            assert_eq!(code(), Err(Some(91)));
            assert_eq!(code(), Err(Some(91)));
            point.wait_entered(2).unwrap();
            ping().unwrap();
            assert_eq!(point.disable().unwrap(), Some(2));

            let point = mongod
                .fail_command(FailCommand::new(["ping"]).close_connection())
                .unwrap();
            assert_eq!(code(), Err(None));
            drop(point);
            ping().unwrap();

            let point = FailCommand::new(["ping"])
                .error_code(91)
                .app_name("someone else");
            let point = mongod.fail_command(point).unwrap();
            ping().unwrap();
            drop(point);
        });
    }
}

#[test]
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

#[test]
fn a_set_elects_another_primary_when_its_primary_leaves() {
    with_set(&[const { MemberSpec::new() }; 3], |set| {
        let first = set.primary().unwrap();
        assert_eq!(set.secondaries().len(), 2);
        let hello = set.member(first).hello().unwrap();
        let hosts: Vec<_> = set.members().map(Mongod::host).collect();
        assert_eq!(strings(&hello, "hosts"), hosts);
        assert_eq!(hello.get_str("setName").unwrap(), set.name());
        assert_eq!(
            set.uri(),
            format!("mongodb://{}/?replicaSet=rs0", hosts.join(","))
        );

        assert_eq!(set.step_down().unwrap(), first);
        let second = set.primary().unwrap();
        assert_ne!(second, first);

        set.member(second).kill().unwrap();
        let third = set.primary().unwrap();
        assert_ne!(third, second);
        set.member(second).restart().unwrap();
        set.wait_until_settled().unwrap();

        set.step_up(first).unwrap();
        assert_eq!(set.primary().unwrap(), first);
    });
}

#[test]
fn reconfigurations_take_effect() {
    let members = [
        MemberSpec::new(),
        MemberSpec::new().no_vote().tag("dc", "ny"),
        MemberSpec::new().arbiter(),
    ];
    with_set(&members, |mut set| {
        let hello = |set: &ReplicaSet| set.member(0).hello().unwrap();
        assert_eq!(strings(&hello(&set), "passives"), [set.member(1).host()]);
        assert_eq!(strings(&hello(&set), "arbiters"), [set.member(2).host()]);
        let tags = set
            .member(1)
            .hello()
            .unwrap()
            .get_document("tags")
            .cloned()
            .unwrap();
        assert_eq!(tags, doc! { "dc": "ny" });

        set.remove(1).unwrap();
        assert_eq!(strings(&hello(&set), "passives"), Vec::<String>::new());
        set.wait_until_settled().unwrap();
        set.add_back(1).unwrap();
        assert_eq!(strings(&hello(&set), "passives"), [set.member(1).host()]);

        let hidden = MemberSpec::new()
            .no_vote()
            .hidden()
            .delayed(Duration::from_secs(1));
        let added = set.add(hidden).unwrap();
        set.wait_until_settled().unwrap();
        let delayed = set.member(added).hello().unwrap();
        assert!(delayed.get_bool("hidden").unwrap());
        assert_eq!(
            delayed.get_i32("secondaryDelaySecs").unwrap(),
            1,
            "{delayed}"
        );

        let refused = set.reconfig(|config| drop(config.insert("protocolVersion", 7_i64)));
        assert!(matches!(refused, Err(Error::Command(_))), "{refused:?}");
    });
}

#[test]
fn a_secured_server_refuses_clients_that_are_not_its_user() {
    for version in Version::FETCHABLE {
        let Some(mongod) = or_skip(Mongod::start_secured(version)).unwrap() else {
            continue;
        };
        let find = doc! { "find": "c" };
        let mut stranger = Client::connect(mongod.address()).unwrap();
        let refused = stranger.run_command("test", find.clone());
        assert_eq!(refused.unwrap_err().code(), Some(13), "{version}");
        stranger.hello().unwrap();
        let refused = stranger.authenticate(ROOT.0, "wrong");
        assert_eq!(refused.unwrap_err().code(), Some(18), "{version}");
        mongod.run_command("test", find.clone()).unwrap();
        mongod.restart().unwrap();
        mongod.run_command("test", find).unwrap();
    }
}

#[test]
fn a_secured_set_is_led_by_its_user() {
    let members = [const { MemberSpec::new() }; 3];
    let builder = ReplicaSet::builder(Version::V6_0).secured();
    let Some(mut set) = or_skip(builder.start(&members)).unwrap() else {
        return;
    };
    let old = set.step_down().unwrap();
    assert_ne!(set.primary().unwrap(), old);
    let added = set.add(MemberSpec::new().no_vote()).unwrap();
    set.wait_until_settled().unwrap();
    let status = doc! { "connectionStatus": 1 };
    let status = set.member(added).run_command("admin", status).unwrap();
    let users = status
        .get_document("authInfo")
        .unwrap()
        .get_array("authenticatedUsers");
    assert_eq!(users.unwrap().len(), 1);
}

#[test]
fn the_path_is_executable_and_found_again() {
    if let Some(path) = or_skip(mongod_path(Version::V6_0)).unwrap() {
        assert!(path.is_file());
        assert_eq!(mongod_path(Version::V6_0), Ok(path));
    }
}
