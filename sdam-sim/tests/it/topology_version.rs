//! M.1: topologyVersion and awaitable hellos.

use bson::{Bson, doc, oid::ObjectId};
use sdam_sim::version::ServerVersion;

use crate::support::{World, awaiting, code, counter, hello, is_ok, is_primary, process};

#[test]
fn m_1_every_significant_change_is_counted() {
    let check = |action: &str, member: u16| {
        let mut world = World::replica_set(3);
        let before = world.hello(member);
        world.run(action);
        let after = world.hello(member);
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
    let mut world = World::standalone();
    assert_eq!(counter(&world.hello(0)), 0);
    let mut world = World::replica_set(1);
    let before = world.hello(0);
    let insert = doc! { "insert": "things", "documents": [{ "_id": 1 }], "$db": "test" };
    assert!(is_ok(&world.call_member(0, &insert)));
    world.advance_millis(60_000);
    assert_eq!(counter(&world.hello(0)), counter(&before));
}

#[test]
fn m_2_every_hello_tells_the_version() {
    let mut world = World::replica_set(1);
    let connection = world.connect(0);
    for name in ["hello", "isMaster", "ismaster"] {
        let reply = world.call(connection, &doc! { name: 1, "$db": "admin" });
        assert!(reply.contains_key("topologyVersion"), "{name}: {reply}");
    }
    // All kinds of servers, in all states.
    let mut set = World::replica_set(3);
    set.run("maintenance 2 on");
    set.run("remove 1");
    for member in 0..3 {
        let reply = set.hello(member);
        assert!(reply.contains_key("topologyVersion"), "{member}: {reply}");
    }
    let reply = World::standalone().hello(0);
    assert!(reply.contains_key("topologyVersion"), "{reply}");
}

#[test]
fn m_2_every_state_change_error_tells_the_version() {
    let mut world = World::replica_set(3);
    world.run("maintenance 2 on");
    let insert = doc! { "insert": "things", "documents": [{}], "$db": "test" };
    let find = doc! { "find": "things", "$db": "test" };
    for (member, command, expected) in [(1, &insert, 10107), (1, &find, 13435), (2, &find, 13436)] {
        let known = counter(&world.hello(member));
        let reply = world.call_member(member, command);
        assert_eq!(code(&reply), expected, "{reply}");
        assert_eq!(counter(&reply), known, "{reply}");
    }
    world.run("shutdown 1");
    let reply = world.hello(1);
    assert_eq!(code(&reply), 91);
    assert!(reply.contains_key("topologyVersion"), "{reply}");
}

#[test]
fn m_3_a_hello_without_either_argument_is_answered_at_once() {
    let mut world = World::replica_set(1);
    let connection = world.connect(0);
    world.send(connection, &hello());
    assert!(world.try_receive(connection).is_some());
}

#[test]
fn m_4_one_argument_without_the_other_is_an_error() {
    let mut world = World::replica_set(1);
    let first = world.hello(0);
    let both = awaiting(&first, 1000);
    for missing in ["topologyVersion", "maxAwaitTimeMS"] {
        let mut request = both.clone();
        request.remove(missing);
        let reply = world.call_member(0, &request);
        assert_eq!(code(&reply), 31368, "{reply}");
        assert_eq!(reply.get_str("codeName").unwrap(), "Location31368");
        assert!(reply.get_str("errmsg").unwrap().contains(missing));
    }
}

#[test]
fn m_5_another_process_id_is_answered_at_once() {
    let mut world = World::replica_set(1);
    let known = world.hello(0);
    let request = doc! {
        "hello": 1,
        "topologyVersion": { "processId": ObjectId::from_bytes([9; 12]), "counter": 99_i64 },
        "maxAwaitTimeMS": 10_000_i64,
        "$db": "admin",
    };
    let reply = world.call_member(0, &request);
    assert_eq!(process(&reply), process(&known));
}

#[test]
fn m_6_a_hello_waits_for_a_greater_counter() {
    let mut world = World::replica_set(3);
    let connection = world.connect(0);
    let known = world.call(connection, &hello());
    world.send(connection, &awaiting(&known, 10_000));
    assert!(world.try_receive(connection).is_none());
    world.advance_millis(3000);
    assert!(world.try_receive(connection).is_none());
    world.run("stepdown");
    let reply = world.receive(connection);
    assert_eq!(counter(&reply.body), counter(&known) + 1);
    assert!(!is_primary(&reply.body));
}

#[test]
fn m_6_a_counter_that_is_already_greater_does_not_wait() {
    let mut world = World::replica_set(3);
    let connection = world.connect(0);
    let known = world.call(connection, &hello());
    world.run("stepdown");
    let reply = world.call(connection, &awaiting(&known, 10_000));
    assert!(counter(&reply) > counter(&known));
}

#[test]
fn m_6_m_10_a_hello_that_waited_in_vain_repeats_the_version() {
    let mut world = World::replica_set(3);
    let connection = world.connect(1);
    let known = world.call(connection, &hello());
    world.send(connection, &awaiting(&known, 10_000));
    world.advance_millis(9_999);
    assert!(world.try_receive(connection).is_none());
    world.advance_millis(1);
    let reply = world.receive(connection);
    assert_eq!(
        reply.body.get("topologyVersion"),
        known.get("topologyVersion")
    );
    assert!(!reply.more_to_come);
}

#[test]
fn m_7_arguments_that_make_no_sense_are_errors() {
    let check = |version: ServerVersion, counter: i64, max: i64, expected: i32| {
        let mut world = World::replica_set_of(1, version);
        let known = world.hello(0);
        let mut request = awaiting(&known, max);
        let version = request.get_document_mut("topologyVersion").unwrap();
        version.insert("counter", counter);
        assert_eq!(code(&world.call_member(0, &request)), expected);
    };
    check(ServerVersion::V8_0, 1000, 1000, 31382);
    check(ServerVersion::V8_0, -1, 1000, 31372);
    check(ServerVersion::V4_4, 1, -1, 31373);
    // Since 5.0 the argument is refused before it is interpreted.
    check(ServerVersion::V5_0, 1, -1, 51024);
}

#[test]
fn m_8_a_wait_of_0_is_no_wait_and_any_number_type_is_one() {
    let mut world = World::replica_set(1);
    let known = world.hello(0);
    let reply = world.call_member(0, &awaiting(&known, 0));
    assert_eq!(counter(&reply), counter(&known));
    for millis in [Bson::Int32(500), Bson::Int64(500), Bson::Double(500.0)] {
        let mut request = awaiting(&known, 0);
        request.insert("maxAwaitTimeMS", millis);
        let connection = world.connect(0);
        world.send(connection, &request);
        assert!(world.try_receive(connection).is_none());
        world.advance_millis(500);
        world.receive(connection);
    }
}

#[test]
fn m_9_standalones_and_mongoses_honour_the_wait_and_never_change() {
    for mut world in [World::standalone(), World::sharded(2)] {
        let connection = world.connect(0);
        let known = world.call(connection, &hello());
        world.send(connection, &awaiting(&known, 5000));
        world.advance_millis(4999);
        assert!(world.try_receive(connection).is_none());
        world.advance_millis(1);
        let reply = world.receive(connection);
        assert_eq!(
            reply.body.get("topologyVersion"),
            known.get("topologyVersion")
        );
    }
}

#[test]
fn m_11_servers_before_4_4_know_no_topology_version() {
    let mut world = World::replica_set_of(1, ServerVersion::V4_2);
    let modern = World::replica_set(1).hello(0);
    let connection = world.connect(0);
    let mut request = awaiting(&modern, 10_000);
    for incomplete in [None, Some("topologyVersion"), Some("maxAwaitTimeMS")] {
        incomplete.map(|field| request.remove(field));
        let reply = world.call(connection, &request);
        assert!(is_ok(&reply), "{reply}");
        assert!(!reply.contains_key("topologyVersion"), "{reply}");
    }
}
