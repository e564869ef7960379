//! Tests of topologyVersion and awaitable hellos (section M.1).

use bson::doc;

use crate::support::{Fixture, awaiting, code, counter, hello, insert, is_ok, process};

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
fn m_2_a_recovering_member_refuses_with_its_topology_version() {
    let mut fixture = Fixture::replica_set(3);
    fixture.run("maintenance 2 on");
    let known = counter(&fixture.hello(2));
    let reply = fixture.call_member(2, &doc! { "find": "things", "$db": "test" });
    assert_eq!((code(&reply), counter(&reply)), (13436, known), "{reply}");
}

#[test]
fn m_9_a_mongos_honours_the_wait_and_never_changes() {
    let mut fixture = Fixture::sharded(2);
    let connection = fixture.connect(0);
    let known = fixture.call(connection, &hello());
    fixture.send(connection, &awaiting(&known, 5000));
    fixture.advance_millis(4999);
    assert!(fixture.try_receive(connection).is_none());
    fixture.advance_millis(1);
    let reply = fixture.receive(connection);
    assert_eq!(reply.body.get("topologyVersion"), known.get("topologyVersion"));
}
