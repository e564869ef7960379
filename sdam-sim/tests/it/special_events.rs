//! M.3: horizon changes, shutdowns, step-downs and restarts.

use bson::doc;
use sdam_sim::version::ServerVersion;

use crate::support::{World, awaiting, code, counter, hello, is_ok, is_primary, process};

#[test]
fn m_30_a_horizon_change_closes_every_connection() {
    let mut world = World::replica_set(3);
    let idle = world.connect(1);
    let waiting = world.connect(0);
    let known = world.call(waiting, &hello());
    world.send_exhaust(waiting, &awaiting(&known, 10_000));
    world.run("horizon close");
    assert!(world.is_closed(idle));
    assert!(world.is_closed(waiting));
    assert!(counter(&world.hello(0)) > counter(&known));
}

#[test]
fn m_30_by_the_first_draft_a_horizon_change_is_an_error_to_those_who_wait() {
    let mut world = World::replica_set(3);
    let idle = world.connect(1);
    let waiting = world.connect(0);
    let known = world.call(waiting, &hello());
    world.send_exhaust(waiting, &awaiting(&known, 10_000));
    world.run("horizon error");
    let reply = world.receive(waiting);
    assert_eq!(code(&reply.body), 317);
    assert!(!reply.more_to_come);
    assert!(!world.is_closed(waiting) && !world.is_closed(idle));
    assert!(is_ok(&world.call(waiting, &hello())));
}

#[test]
fn m_31_a_shutdown_is_announced_before_the_connections_close() {
    for version in [ServerVersion::V4_4, ServerVersion::V8_0] {
        let mut world = World::replica_set_of(3, version);
        let waiting = world.connect(1);
        let known = world.call(waiting, &hello());
        world.send_exhaust(waiting, &awaiting(&known, 10_000));
        world.run("shutdown 1");
        let first = world.receive(waiting);
        assert_eq!(code(&first.body), 91);
        assert!(!first.more_to_come);
        assert_eq!(counter(&first.body), counter(&known) + 1);
        let left = |reply: &bson::Document| reply.get_i64("remainingQuiesceTimeMillis").unwrap();
        assert_eq!(left(&first.body), 15_000);
        world.advance_millis(1000);
        let later = world.call(waiting, &hello());
        assert_eq!(left(&later), 14_000);
        assert_eq!(code(&world.hello(1)), 91, "new connections are told, too");
        let ping = doc! { "ping": 1, "$db": "admin" };
        assert!(is_ok(&world.call(waiting, &ping)), "the rest still works");
        world.advance_millis(14_000);
        assert!(world.is_closed(waiting));
        assert!(world.try_connect(1).is_none());
    }
}

#[test]
fn m_31_without_quiesce_mode_a_shutdown_just_closes() {
    let mut world = World::replica_set_of(3, ServerVersion::V4_2);
    let connection = world.connect(1);
    world.run("shutdown 1");
    assert!(world.is_closed(connection));
    assert!(world.try_receive(connection).is_none());
    assert!(world.try_connect(1).is_none());
}

#[test]
fn m_31_a_primary_that_shuts_down_hands_over_first() {
    let mut world = World::replica_set(3);
    world.run("shutdown primary");
    world.advance_millis(100);
    assert_eq!(world.primary(), Some(1));
    assert_eq!(code(&world.hello(0)), 91);
}

#[test]
fn m_31_what_is_held_up_is_interrupted_by_the_shutdown() {
    let mut world = World::replica_set(3);
    world.run("failpoint 1 commands=ping block=600000");
    let connection = world.connect(1);
    world.send(connection, &doc! { "ping": 1, "$db": "admin" });
    world.run("shutdown 1");
    world.advance_millis(15_000);
    assert_eq!(code(&world.receive(connection).body), 11600);
    assert!(world.is_closed(connection));
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
        let mut world = World::replica_set_of(3, version);
        let connection = world.connect(0);
        let other = world.connect(1);
        world.run("stepdown");
        assert_eq!(world.is_closed(connection), !keeps, "{version}");
        assert!(!world.is_closed(other), "{version}");
    }
}

#[test]
fn m_32_a_step_down_interrupts_writes_that_are_held_up() {
    let mut world = World::replica_set(3);
    world.run("failpoint 0 commands=insert,find block=1000");
    let (writer, reader) = (world.connect(0), world.connect(0));
    let insert = doc! { "insert": "things", "documents": [{}], "$db": "test" };
    world.send(writer, &insert);
    let find = doc! { "find": "things", "$db": "test", "$readPreference": { "mode": "nearest" } };
    world.send(reader, &find);
    world.run("stepdown");
    let reply = world.receive(writer).body;
    assert_eq!(code(&reply), 11602);
    assert_eq!(counter(&reply), counter(&world.hello(0)));
    assert!(world.try_receive(reader).is_none());
    world.advance_millis(1000);
    assert!(is_ok(&world.receive(reader).body));
}

#[test]
fn m_33_a_restart_is_another_process() {
    let mut world = World::replica_set(3);
    world.run("reconfig 1 tags=a:b");
    let connection = world.connect(1);
    let before = world.call(connection, &hello());
    world.run("restart 1");
    assert!(world.is_closed(connection));
    let starting = world.hello(1);
    assert_eq!(counter(&starting), 0);
    assert_ne!(process(&starting), process(&before));
    assert!(starting.get_bool("isreplicaset").unwrap(), "{starting}");
    assert!(!starting.contains_key("setName"), "{starting}");
    world.advance_millis(1000);
    let back = world.hello(1);
    assert!(back.get_bool("secondary").unwrap());
    assert_eq!(back.get_i32("setVersion").unwrap(), 2, "it remembers");
    assert!(counter(&back) > 0);
    assert!(!is_primary(&back));
}

#[test]
fn m_33_a_killed_process_refuses_connections() {
    let mut world = World::replica_set(3);
    let connection = world.connect(2);
    world.run("kill 2");
    assert!(world.is_closed(connection));
    assert!(world.try_connect(2).is_none());
    assert!(world.refuse("kill 2").contains("does not run"));
}

#[test]
fn m_31_a_mongos_announces_its_shutdown_too() {
    let mut world = World::sharded(1);
    let waiting = world.connect(0);
    let known = world.call(waiting, &hello());
    world.send_exhaust(waiting, &awaiting(&known, 10_000));
    world.run("shutdown 0");
    let reply = world.receive(waiting);
    assert_eq!(code(&reply.body), 91);
    assert_eq!(counter(&reply.body), counter(&known) + 1);
    assert!(!reply.more_to_come);
}
