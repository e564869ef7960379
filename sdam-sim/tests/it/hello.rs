//! Tests of the topology version, of hellos that wait, and of streams.

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

#[test]
fn m_20_a_server_may_answer_an_awaitable_hello_once_although_it_may_stream() {
    let mut fixture = Fixture::replica_set(3);
    fixture.run("exhaust 0 off");
    let (connection, _, request) = fixture.stream(0, 1000);
    fixture.advance_millis(999);
    assert!(fixture.try_receive(connection).is_none());
    fixture.advance_millis(1);
    let reply = fixture.receive(connection);
    assert!(!reply.more_to_come);
    assert_eq!(reply.response_to, request);
    fixture.run("reconfig 1 tags=a:b");
    assert!(fixture.try_receive(connection).is_none());
    // The reply to a new request contains the change that has not been reported yet.
    fixture.send_exhaust(connection, &awaiting(&reply.body, 1000));
    let next = fixture.receive(connection);
    assert_eq!(counter(&next.body), counter(&reply.body) + 1);
    assert!(!next.more_to_come);
    // After exhaust is turned off, a stream ends with its next reply (M-24).
    fixture.run("exhaust 0 on");
    fixture.send_exhaust(connection, &awaiting(&next.body, 1000));
    fixture.advance_millis(1000);
    assert!(fixture.receive(connection).more_to_come);
    fixture.run("exhaust 0 off");
    fixture.advance_millis(1000);
    assert!(!fixture.receive(connection).more_to_come);
    fixture.advance_millis(10_000);
    assert!(fixture.try_receive(connection).is_none());
}

#[test]
fn a_flood_reports_changes_until_it_is_turned_off_or_the_process_ends() {
    let mut fixture = Fixture::replica_set(3);
    let (connection, ..) = fixture.stream(0, 10_000);
    let flood = |fixture: &mut Fixture, connection| {
        fixture.run("flood 0 0.001");
        fixture.advance_millis(100);
        let replies: Vec<_> = std::iter::from_fn(|| fixture.try_receive(connection)).collect();
        assert_eq!(replies.len(), 100);
        let counters: Vec<_> = replies.iter().map(|reply| counter(&reply.body)).collect();
        assert!(counters.is_sorted_by(|a, b| a < b), "{counters:?}");
    };
    flood(&mut fixture, connection);
    fixture.run("flood 0 off");
    fixture.advance_millis(1000);
    assert!(fixture.try_receive(connection).is_none());
    flood(&mut fixture, connection);
    fixture.run("restart 0");
    fixture.advance_millis(20_000);
    let (connection, ..) = fixture.stream(0, 60_000);
    fixture.advance_millis(100);
    assert!(fixture.try_receive(connection).is_none());
}

#[test]
fn m_21_replies_follow_each_change_and_each_wait() {
    let mut fixture = Fixture::replica_set(3);
    let (connection, ..) = fixture.stream(0, 2000);
    let mut seen = Vec::new();
    fixture.advance_millis(1999);
    assert!(fixture.try_receive(connection).is_none());
    fixture.advance_millis(1);
    seen.push(counter(&fixture.receive(connection).body));
    fixture.advance_millis(500);
    fixture.run("reconfig 1 tags=a:b");
    seen.push(counter(&fixture.receive(connection).body));
    // With each reply, the wait time starts again.
    fixture.advance_millis(1999);
    assert!(fixture.try_receive(connection).is_none());
    fixture.advance_millis(1);
    let last = fixture.receive(connection);
    assert!(last.more_to_come);
    seen.push(counter(&last.body));
    assert_eq!(seen, [seen[0], seen[0] + 1, seen[0] + 1]);
}

#[test]
fn m_22_an_error_ends_the_stream() {
    let mut fixture = Fixture::replica_set(3);
    let (connection, ..) = fixture.stream(0, 1000);
    fixture.run("failpoint 0 commands=hello times=1 code=91");
    // The server accepted the pending request before the fail point was set, so the request does
    // not fail.
    fixture.advance_millis(1000);
    assert!(fixture.receive(connection).more_to_come);
    let error = fixture.receive(connection);
    assert_eq!(code(&error.body), 91);
    assert!(!error.more_to_come);
    fixture.advance_millis(10_000);
    assert!(fixture.try_receive(connection).is_none());
    assert!(is_ok(&fixture.call(connection, &hello())));
}

#[test]
fn m_24_exhaust_with_a_wait_of_0_yields_one_reply() {
    let mut fixture = Fixture::replica_set(1);
    let (connection, ..) = fixture.stream(0, 0);
    let only = fixture.receive(connection);
    assert!(is_ok(&only.body));
    assert!(!only.more_to_come);
}

#[test]
fn m_26_a_message_within_a_stream_closes_the_connection() {
    let mut fixture = Fixture::replica_set(1);
    let (connection, ..) = fixture.stream(0, 1000);
    fixture.send(connection, &hello());
    assert!(fixture.is_closed(connection));
    assert!(fixture.try_receive(connection).is_none());
}
