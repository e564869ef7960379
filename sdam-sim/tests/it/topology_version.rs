//! M.1: topologyVersion and awaitable hellos.

use bson::{Bson, doc, oid::ObjectId};
use sdam_sim::version::ServerVersion;

use crate::support::{Fixture, awaiting, code, counter, hello, is_ok, is_primary, process};

#[test]
fn m_1_every_significant_change_is_counted() {
    let check = |action: &str, member: u16| {
        let mut fixture = Fixture::replica_set(3);
        let before = fixture.hello(member);
        fixture.run(action);
        let after = fixture.hello(member);
        assert!(counter(&after) > counter(&before), "{action}: {after}");
        assert_eq!(process(&after), process(&before), "{action}");
    };
    check("stepdown", 0);
    check("stepup 1", 0);
    check("stepup 1", 1);
    check("stepup 1", 2);
    check("reconfig 2 tags=dc:ny", 0);
    check("reconfig 2 tags=dc:ny", 2);
    check("remove 2", 2);
    check("maintenance 1 on", 1);
    check("splitbrain", 2);
    check("horizon error", 1);
    check("shutdown 1", 1);
}

#[test]
fn m_1_the_counter_starts_at_0_and_ordinary_writes_do_not_count() {
    let mut fixture = Fixture::standalone();
    assert_eq!(counter(&fixture.hello(0)), 0);
    let mut fixture = Fixture::replica_set(1);
    let before = fixture.hello(0);
    let insert = doc! { "insert": "things", "documents": [{ "_id": 1 }], "$db": "test" };
    assert!(is_ok(&fixture.call_member(0, &insert)));
    fixture.advance_millis(60_000);
    assert_eq!(counter(&fixture.hello(0)), counter(&before));
}

#[test]
fn m_2_every_hello_reply_has_the_topology_version() {
    let mut fixture = Fixture::replica_set(1);
    let connection = fixture.connect(0);
    for name in ["hello", "isMaster", "ismaster"] {
        let reply = fixture.call(connection, &doc! { name: 1, "$db": "admin" });
        assert!(reply.contains_key("topologyVersion"), "{name}: {reply}");
    }
    // All kinds of servers, in all states.
    let mut set = Fixture::replica_set(3);
    set.run("maintenance 2 on");
    set.run("remove 1");
    for member in 0..3 {
        let reply = set.hello(member);
        assert!(reply.contains_key("topologyVersion"), "{member}: {reply}");
    }
    let reply = Fixture::standalone().hello(0);
    assert!(reply.contains_key("topologyVersion"), "{reply}");
}

#[test]
fn m_2_every_state_change_error_has_the_topology_version() {
    let mut fixture = Fixture::replica_set(3);
    fixture.run("maintenance 2 on");
    let insert = doc! { "insert": "things", "documents": [{}], "$db": "test" };
    let find = doc! { "find": "things", "$db": "test" };
    for (member, command, expected) in [(1, &insert, 10107), (1, &find, 13435), (2, &find, 13436)] {
        let known = counter(&fixture.hello(member));
        let reply = fixture.call_member(member, command);
        assert_eq!(code(&reply), expected, "{reply}");
        assert_eq!(counter(&reply), known, "{reply}");
    }
    fixture.run("shutdown 1");
    let reply = fixture.hello(1);
    assert_eq!(code(&reply), 91);
    assert!(reply.contains_key("topologyVersion"), "{reply}");
}

#[test]
fn m_3_a_hello_without_both_arguments_gets_an_immediate_reply() {
    let mut fixture = Fixture::replica_set(1);
    let connection = fixture.connect(0);
    fixture.send(connection, &hello());
    assert!(fixture.try_receive(connection).is_some());
}

#[test]
fn m_4_one_argument_without_the_other_is_an_error() {
    let mut fixture = Fixture::replica_set(1);
    let first = fixture.hello(0);
    let both = awaiting(&first, 1000);
    for missing in ["topologyVersion", "maxAwaitTimeMS"] {
        let mut request = both.clone();
        request.remove(missing);
        let reply = fixture.call_member(0, &request);
        assert_eq!(code(&reply), 31368, "{reply}");
        assert_eq!(reply.get_str("codeName").unwrap(), "Location31368");
        assert!(reply.get_str("errmsg").unwrap().contains(missing));
    }
}

#[test]
fn m_5_another_process_id_gets_an_immediate_reply() {
    let mut fixture = Fixture::replica_set(1);
    let known = fixture.hello(0);
    let request = doc! {
        "hello": 1,
        "topologyVersion": { "processId": ObjectId::from_bytes([9; 12]), "counter": 99_i64 },
        "maxAwaitTimeMS": 10_000_i64,
        "$db": "admin",
    };
    let reply = fixture.call_member(0, &request);
    assert_eq!(process(&reply), process(&known));
}

#[test]
fn m_6_a_hello_waits_for_a_greater_counter() {
    let mut fixture = Fixture::replica_set(3);
    let connection = fixture.connect(0);
    let known = fixture.call(connection, &hello());
    fixture.send(connection, &awaiting(&known, 10_000));
    assert!(fixture.try_receive(connection).is_none());
    fixture.advance_millis(3000);
    assert!(fixture.try_receive(connection).is_none());
    fixture.run("stepdown");
    let reply = fixture.receive(connection);
    assert_eq!(counter(&reply.body), counter(&known) + 1);
    assert!(!is_primary(&reply.body));
}

#[test]
fn m_6_a_counter_that_is_already_greater_does_not_wait() {
    let mut fixture = Fixture::replica_set(3);
    let connection = fixture.connect(0);
    let known = fixture.call(connection, &hello());
    fixture.run("stepdown");
    let reply = fixture.call(connection, &awaiting(&known, 10_000));
    assert!(counter(&reply) > counter(&known));
}

#[test]
fn m_6_m_10_a_hello_that_times_out_repeats_the_topology_version() {
    let mut fixture = Fixture::replica_set(3);
    let connection = fixture.connect(1);
    let known = fixture.call(connection, &hello());
    fixture.send(connection, &awaiting(&known, 10_000));
    fixture.advance_millis(9_999);
    assert!(fixture.try_receive(connection).is_none());
    fixture.advance_millis(1);
    let reply = fixture.receive(connection);
    assert_eq!(
        reply.body.get("topologyVersion"),
        known.get("topologyVersion")
    );
    assert!(!reply.more_to_come);
}

#[test]
fn m_7_invalid_arguments_are_errors() {
    let check = |version: ServerVersion, counter: i64, max: i64, expected: i32| {
        let mut fixture = Fixture::replica_set_of(1, version);
        let known = fixture.hello(0);
        let mut request = awaiting(&known, max);
        let version = request.get_document_mut("topologyVersion").unwrap();
        version.insert("counter", counter);
        assert_eq!(code(&fixture.call_member(0, &request)), expected);
    };
    check(ServerVersion::V8_0, 1000, 1000, 31382);
    check(ServerVersion::V8_0, -1, 1000, 31372);
    check(ServerVersion::V4_4, 1, -1, 31373);
    // Since 5.0 the argument is refused before it is interpreted.
    check(ServerVersion::V5_0, 1, -1, 51024);
}

#[test]
fn m_8_a_wait_of_0_is_immediate_and_every_number_type_is_accepted() {
    let mut fixture = Fixture::replica_set(1);
    let known = fixture.hello(0);
    let reply = fixture.call_member(0, &awaiting(&known, 0));
    assert_eq!(counter(&reply), counter(&known));
    for millis in [Bson::Int32(500), Bson::Int64(500), Bson::Double(500.0)] {
        let mut request = awaiting(&known, 0);
        request.insert("maxAwaitTimeMS", millis);
        let connection = fixture.connect(0);
        fixture.send(connection, &request);
        assert!(fixture.try_receive(connection).is_none());
        fixture.advance_millis(500);
        fixture.receive(connection);
    }
}

#[test]
fn m_9_standalones_and_mongoses_honour_the_wait_and_never_change() {
    for mut fixture in [Fixture::standalone(), Fixture::sharded(2)] {
        let connection = fixture.connect(0);
        let known = fixture.call(connection, &hello());
        fixture.send(connection, &awaiting(&known, 5000));
        fixture.advance_millis(4999);
        assert!(fixture.try_receive(connection).is_none());
        fixture.advance_millis(1);
        let reply = fixture.receive(connection);
        assert_eq!(
            reply.body.get("topologyVersion"),
            known.get("topologyVersion")
        );
    }
}

#[test]
fn m_11_servers_before_4_4_have_no_topology_version() {
    let mut fixture = Fixture::replica_set_of(1, ServerVersion::V4_2);
    let modern = Fixture::replica_set(1).hello(0);
    let connection = fixture.connect(0);
    let mut request = awaiting(&modern, 10_000);
    for incomplete in [None, Some("topologyVersion"), Some("maxAwaitTimeMS")] {
        incomplete.map(|field| request.remove(field));
        let reply = fixture.call(connection, &request);
        assert!(is_ok(&reply), "{reply}");
        assert!(!reply.contains_key("topologyVersion"), "{reply}");
    }
}
