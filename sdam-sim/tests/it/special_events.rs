//! Tests of horizon changes, shutdowns, step-downs and restarts (section M.3).

use bson::doc;
use sdam_sim::version::ServerVersion;

use crate::support::{Fixture, code, counter, hello, insert, is_ok, ping};

#[test]
fn m_30_a_horizon_change_closes_every_connection() {
    let mut fixture = Fixture::replica_set(3);
    let idle = fixture.connect(1);
    let (waiting, known, _) = fixture.stream(0, 10_000);
    fixture.run("horizon close");
    assert!(fixture.is_closed(idle));
    assert!(fixture.is_closed(waiting));
    assert!(counter(&fixture.hello(0)) > counter(&known));
}

#[test]
fn m_30_with_the_error_policy_a_horizon_change_fails_awaiting_hellos() {
    let mut fixture = Fixture::replica_set(3);
    let idle = fixture.connect(1);
    let (waiting, ..) = fixture.stream(0, 10_000);
    fixture.run("horizon error");
    let reply = fixture.receive(waiting);
    assert_eq!(code(&reply.body), 317);
    assert!(!reply.more_to_come);
    assert!(!fixture.is_closed(waiting) && !fixture.is_closed(idle));
    assert!(is_ok(&fixture.call(waiting, &hello())));
}

#[test]
fn m_31_a_shutdown_is_announced_before_the_connections_close() {
    for (mut fixture, member) in [
        (Fixture::replica_set_of(3, ServerVersion::V4_4), 1),
        (Fixture::replica_set(3), 1),
        (Fixture::sharded(1), 0),
    ] {
        let (waiting, known, _) = fixture.stream(member, 10_000);
        fixture.run(&format!("shutdown {member}"));
        let first = fixture.receive(waiting);
        assert_eq!(code(&first.body), 91);
        assert!(!first.more_to_come);
        assert_eq!(counter(&first.body), counter(&known) + 1);
        let left = |reply: &bson::Document| reply.get_i64("remainingQuiesceTimeMillis").unwrap();
        assert_eq!(left(&first.body), 15_000);
        fixture.advance_millis(1000);
        let later = fixture.call(waiting, &hello());
        assert_eq!(left(&later), 14_000);
        assert_eq!(code(&fixture.hello(member)), 91, "new connections get the error, too");
        assert!(is_ok(&fixture.call(waiting, &ping())), "the rest still works");
        fixture.advance_millis(14_000);
        assert!(fixture.is_closed(waiting));
        assert!(fixture.try_connect(member).is_none());
    }
}

#[test]
fn m_31_without_quiesce_mode_a_shutdown_closes_connections_at_once() {
    let mut fixture = Fixture::replica_set_of(3, ServerVersion::V4_2);
    let connection = fixture.connect(1);
    fixture.run("shutdown 1");
    assert!(fixture.is_closed(connection));
    assert!(fixture.try_receive(connection).is_none());
    assert!(fixture.try_connect(1).is_none());
}

#[test]
fn m_31_a_shutdown_interrupts_blocked_commands() {
    let mut fixture = Fixture::replica_set(3);
    fixture.run("failpoint 1 commands=ping block=600000");
    let connection = fixture.connect(1);
    fixture.send(connection, &ping());
    fixture.run("shutdown 1");
    fixture.advance_millis(15_000);
    assert_eq!(code(&fixture.receive(connection).body), 11600);
    assert!(fixture.is_closed(connection));
}

#[test]
fn m_32_a_step_down_keeps_connections_since_4_2() {
    for (version, keeps) in [
        (ServerVersion::V3_6, false),
        (ServerVersion::V4_0, false),
        (ServerVersion::V4_2, true),
        (ServerVersion::V4_4, true),
        (ServerVersion::V8_0, true),
    ] {
        let mut fixture = Fixture::replica_set_of(3, version);
        let connection = fixture.connect(0);
        let other = fixture.connect(1);
        fixture.run("stepdown");
        assert_eq!(fixture.is_closed(connection), !keeps, "{version}");
        assert!(!fixture.is_closed(other), "{version}");
    }
}

#[test]
fn m_32_a_step_down_interrupts_blocked_writes() {
    let mut fixture = Fixture::replica_set(3);
    fixture.run("failpoint 0 commands=insert,find block=1000");
    let (writer, reader) = (fixture.connect(0), fixture.connect(0));
    fixture.send(writer, &insert());
    let find = doc! { "find": "things", "$db": "test", "$readPreference": { "mode": "nearest" } };
    fixture.send(reader, &find);
    fixture.run("stepdown");
    let reply = fixture.receive(writer).body;
    assert_eq!(code(&reply), 11602);
    assert_eq!(counter(&reply), counter(&fixture.hello(0)));
    assert!(fixture.try_receive(reader).is_none());
    fixture.advance_millis(1000);
    assert!(is_ok(&fixture.receive(reader).body));
}
