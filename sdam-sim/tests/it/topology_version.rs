//! Tests of topologyVersion and awaitable hellos (section M.1).

use bson::{Bson, doc};

use crate::support::{Fixture, awaiting, code, counter, hello, insert, is_ok, is_primary, process};

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
    assert!(is_ok(&fixture.call_member(0, &insert())));
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
    // Test all kinds of servers in all states.
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
    let insert = insert();
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
        assert_eq!(reply.body.get("topologyVersion"), known.get("topologyVersion"));
    }
}
