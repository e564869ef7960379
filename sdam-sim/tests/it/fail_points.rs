//! M-46: the fail point failCommand.

use bson::{Bson, Document, doc};
use sdam_sim::version::ServerVersion;

use crate::support::{World, awaiting, code, counter, hello, is_ok};

fn ping() -> Document {
    doc! { "ping": 1, "$db": "admin" }
}

fn configure(mode: impl Into<Bson>, data: Document) -> Document {
    doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data, "$db": "admin" }
}

/// Returns which of `count` commands in sequence succeed on a server with `mode`.
fn outcomes(mode: impl Into<Bson>, count: usize) -> Vec<bool> {
    let mut world = World::standalone();
    let connection = world.connect(0);
    let request = configure(mode, doc! { "failCommands": ["ping"], "errorCode": 6 });
    assert!(is_ok(&world.call(connection, &request)));
    (0..count)
        .map(|_| is_ok(&world.call(connection, &ping())))
        .collect()
}

#[test]
fn m_46_modes() {
    assert_eq!(outcomes("alwaysOn", 3), [false, false, false]);
    assert_eq!(outcomes("off", 2), [true, true]);
    assert_eq!(outcomes(doc! { "times": 2 }, 4), [false, false, true, true]);
    assert_eq!(outcomes(doc! { "skip": 2 }, 4), [true, true, false, false]);
}

#[test]
fn m_46_a_fail_point_can_be_turned_off_while_it_fails_everything() {
    let mut world = World::standalone();
    let connection = world.connect(0);
    let data = doc! { "failCommands": ["ping", "configureFailPoint"], "errorCode": 6 };
    assert!(is_ok(&world.call(connection, &configure("alwaysOn", data))));
    assert!(!is_ok(&world.call(connection, &ping())));
    assert!(is_ok(&world.call(connection, &configure("off", doc! {}))));
    assert!(is_ok(&world.call(connection, &ping())));
}

#[test]
fn m_46_only_connections_of_the_application_are_struck() {
    let mut world = World::standalone();
    let data = doc! { "failCommands": ["hello", "isMaster"], "appName": "mine", "errorCode": 91 };
    world.call_member(0, &configure("alwaysOn", data));
    let greeting = |name: &str, command: &str| {
        doc! {
            command: 1,
            "client": {
                "application": { "name": name },
                "driver": { "name": "d", "version": "1" },
                "os": { "type": "Linux" },
            },
            "$db": "admin",
        }
    };
    assert!(is_ok(&world.hello(0)));
    assert!(is_ok(&world.call_member(0, &greeting("other", "hello"))));
    for command in ["hello", "isMaster", "ismaster"] {
        let connection = world.connect(0);
        assert_eq!(
            code(&world.call(connection, &greeting("mine", command))),
            91
        );
        assert_eq!(
            code(&world.call(connection, &hello())),
            91,
            "later ones, too"
        );
    }
}

#[test]
fn m_46_a_connection_is_closed_without_an_answer() {
    let mut world = World::standalone();
    let data = doc! { "failCommands": ["ping"], "closeConnection": true };
    world.call_member(0, &configure(doc! { "times": 1 }, data));
    let (struck, other) = (world.connect(0), world.connect(0));
    world.send(struck, &ping());
    assert!(world.is_closed(struck));
    assert!(world.try_receive(struck).is_none());
    assert!(is_ok(&world.call(other, &ping())));
}

#[test]
fn m_46_a_blocked_command_is_answered_later_and_may_still_fail() {
    for error in [None, Some(91)] {
        let mut world = World::standalone();
        let mut data = doc! {
            "failCommands": ["ping"],
            "blockConnection": true,
            "blockTimeMS": 500,
        };
        error.map(|code| data.insert("errorCode", code));
        world.call_member(0, &configure(doc! { "times": 1 }, data));
        let connection = world.connect(0);
        world.send(connection, &ping());
        // The next request is queued.
        world.send(connection, &ping());
        world.advance_millis(499);
        assert!(world.try_receive(connection).is_none());
        world.advance_millis(1);
        let reply = world.receive(connection);
        assert_eq!(is_ok(&reply.body), error.is_none());
        assert!(is_ok(&world.receive(connection).body));
    }
}

#[test]
fn m_46_a_blocked_stream_goes_on_afterwards() {
    let mut world = World::replica_set(1);
    let connection = world.connect(0);
    let known = world.call(connection, &hello());
    world.run("failpoint 0 commands=hello times=1 block=700");
    world.send_exhaust(connection, &awaiting(&known, 1000));
    world.advance_millis(1699);
    assert!(world.try_receive(connection).is_none());
    world.advance_millis(1);
    assert!(world.receive(connection).more_to_come);
    world.advance_millis(1000);
    assert!(world.receive(connection).more_to_come);
}

#[test]
fn m_46_every_reply_of_a_stream_counts() {
    let mut world = World::replica_set(1);
    world.run("failpoint 0 commands=hello skip=2 code=91");
    let connection = world.connect(0);
    let known = world.call(connection, &hello());
    world.send_exhaust(connection, &awaiting(&known, 1000));
    world.advance_millis(1000);
    assert!(is_ok(&world.receive(connection).body));
    assert_eq!(code(&world.receive(connection).body), 91);
}

#[test]
fn m_46_labels_are_those_asked_for_or_those_the_server_gives() {
    let insert = doc! {
        "insert": "things",
        "documents": [{}],
        "txnNumber": 1_i64,
        "$db": "test",
    };
    let labels = |version: ServerVersion, data: Document| {
        let mut world = World::replica_set_of(1, version);
        world.call_member(0, &configure(doc! { "times": 1 }, data));
        let reply = world.call_member(0, &insert);
        let labels = reply.get_array("errorLabels").cloned().unwrap_or_default();
        labels
            .iter()
            .map(|label| label.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let failing = |code: i32| doc! { "failCommands": ["insert"], "errorCode": code };
    let with = |code: i32, labels: &[&str]| {
        let mut data = failing(code);
        data.insert("errorLabels", labels.to_vec());
        data
    };
    assert_eq!(
        labels(ServerVersion::V8_0, failing(91)),
        ["RetryableWriteError"]
    );
    assert_eq!(labels(ServerVersion::V8_0, failing(2)), [""; 0]);
    assert_eq!(labels(ServerVersion::V4_2, failing(91)), [""; 0]);
    assert_eq!(
        labels(
            ServerVersion::V8_0,
            with(462, &["SystemOverloadedError", "RetryableError"])
        ),
        ["SystemOverloadedError", "RetryableError"]
    );
    assert_eq!(labels(ServerVersion::V8_0, with(91, &[])), [""; 0]);
}

#[test]
fn m_46_a_write_concern_error_comes_with_the_write_done() {
    let mut world = World::replica_set(1);
    let data = doc! {
        "failCommands": ["insert"],
        "writeConcernError": { "code": 91, "errmsg": "whatever" },
    };
    world.call_member(0, &configure(doc! { "times": 1 }, data));
    let insert = doc! { "insert": "things", "documents": [{}], "$db": "test" };
    let reply = world.call_member(0, &insert);
    assert!(is_ok(&reply));
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    let error = reply.get_document("writeConcernError").unwrap();
    assert_eq!(error.get_i32("code").unwrap(), 91);
}

#[test]
fn injected_state_changes_tell_the_version_and_injected_shutdowns_do_not() {
    // As mongod 4.4 to 6.0: clients treat the former as stale and handle the latter.
    for (error, versioned) in [
        (10107, true),
        (13435, true),
        (13436, true),
        (189, true),
        (11602, true),
        (10058, false),
        (91, false),
        (11600, false),
        (6, false),
    ] {
        let mut world = World::replica_set(1);
        let known = world.hello(0);
        world.run(&format!("failpoint 0 commands=ping code={error}"));
        let reply = world.call_member(0, &ping());
        assert_eq!(code(&reply), error);
        assert_eq!(reply.contains_key("topologyVersion"), versioned, "{error}");
        if versioned {
            assert_eq!(counter(&reply), counter(&known));
        }
    }
}

#[test]
fn a_fail_point_that_cannot_be_simulated_is_refused() {
    let mut world = World::standalone();
    let other = doc! { "configureFailPoint": "other", "mode": "off", "$db": "admin" };
    assert_eq!(code(&world.call_member(0, &other)), 266);
    for request in [
        configure(doc! { "activationProbability": 0.5 }, doc! {}),
        configure("sometimes", doc! {}),
        configure(
            "alwaysOn",
            doc! { "failCommands": ["ping"], "blockConnection": true },
        ),
    ] {
        assert_eq!(code(&world.call_member(0, &request)), 2);
    }
}
