//! M.2: streamed replies.

use bson::doc;
use sdam_sim::{ConnectionId, version::ServerVersion};

use crate::support::{World, awaiting, code, counter, hello, is_ok};

/// Starts a stream from member 0; returns the connection and the id of the request.
fn stream(world: &mut World, max_await_time_ms: i64) -> (ConnectionId, i32) {
    let connection = world.connect(0);
    let known = world.call(connection, &hello());
    let id = world.send_exhaust(connection, &awaiting(&known, max_await_time_ms));
    (connection, id)
}

#[test]
fn m_20_nothing_is_streamed_unless_allowed() {
    let mut world = World::replica_set(3);
    let connection = world.connect(0);
    let known = world.call(connection, &hello());
    world.send(connection, &awaiting(&known, 1000));
    world.advance_millis(1000);
    assert!(!world.receive(connection).more_to_come);
    world.advance_millis(10_000);
    world.run("stepdown");
    assert!(world.try_receive(connection).is_none());
}

#[test]
fn m_20_a_server_may_answer_an_awaitable_hello_once_although_it_may_stream() {
    let mut world = World::replica_set(3);
    world.run("exhaust 0 off");
    let (connection, request) = stream(&mut world, 1000);
    world.advance_millis(999);
    assert!(world.try_receive(connection).is_none());
    world.advance_millis(1);
    let reply = world.receive(connection);
    assert!(!reply.more_to_come);
    assert_eq!(reply.response_to, request);
    world.run("reconfig 1 tags=a:b");
    assert!(world.try_receive(connection).is_none());
    // A new request gets the change that was not reported yet.
    world.send_exhaust(connection, &awaiting(&reply.body, 1000));
    let next = world.receive(connection);
    assert_eq!(counter(&next.body), counter(&reply.body) + 1);
    assert!(!next.more_to_come);
    // M-24: a stream that is in progress when exhaust is turned on ends with the next reply.
    world.run("exhaust 0 on");
    world.send_exhaust(connection, &awaiting(&next.body, 1000));
    world.advance_millis(1000);
    assert!(world.receive(connection).more_to_come);
    world.run("exhaust 0 off");
    world.advance_millis(1000);
    assert!(!world.receive(connection).more_to_come);
    world.advance_millis(10_000);
    assert!(world.try_receive(connection).is_none());
}

#[test]
fn a_flood_tells_of_a_change_each_time_until_it_is_turned_off_or_the_process_ends() {
    let mut world = World::replica_set(3);
    let (connection, _) = stream(&mut world, 10_000);
    let flood = |world: &mut World, connection| {
        world.run("flood 0 0.001");
        world.advance_millis(100);
        let replies: Vec<_> = std::iter::from_fn(|| world.try_receive(connection)).collect();
        assert_eq!(replies.len(), 100);
        let counters: Vec<_> = replies.iter().map(|reply| counter(&reply.body)).collect();
        assert!(counters.is_sorted_by(|a, b| a < b), "{counters:?}");
    };
    flood(&mut world, connection);
    world.run("flood 0 off");
    world.advance_millis(1000);
    assert!(world.try_receive(connection).is_none());
    flood(&mut world, connection);
    world.run("restart 0");
    world.advance_millis(20_000);
    let (connection, _) = stream(&mut world, 60_000);
    world.advance_millis(100);
    assert!(world.try_receive(connection).is_none());
}

#[test]
fn m_21_replies_follow_each_change_and_each_wait() {
    let mut world = World::replica_set(3);
    let (connection, _) = stream(&mut world, 2000);
    let mut seen = Vec::new();
    world.advance_millis(1999);
    assert!(world.try_receive(connection).is_none());
    world.advance_millis(1);
    seen.push(counter(&world.receive(connection).body));
    world.advance_millis(500);
    world.run("reconfig 1 tags=a:b");
    seen.push(counter(&world.receive(connection).body));
    // The wait restarts with each reply.
    world.advance_millis(1999);
    assert!(world.try_receive(connection).is_none());
    world.advance_millis(1);
    let last = world.receive(connection);
    assert!(last.more_to_come);
    seen.push(counter(&last.body));
    assert_eq!(seen, [seen[0], seen[0] + 1, seen[0] + 1]);
}

#[test]
fn m_21_a_stream_of_another_process_starts_at_once_and_then_waits() {
    let mut world = World::replica_set(3);
    let connection = world.connect(0);
    let known = world.hello(1);
    world.send_exhaust(connection, &awaiting(&known, 2000));
    assert!(world.receive(connection).more_to_come);
    assert!(world.try_receive(connection).is_none());
    world.advance_millis(2000);
    assert!(world.receive(connection).more_to_come);
}

#[test]
fn m_22_an_error_ends_the_stream() {
    let mut world = World::replica_set(3);
    let (connection, _) = stream(&mut world, 1000);
    world.run("failpoint 0 commands=hello times=1 code=91");
    // The pending request was admitted before the fail point was set.
    world.advance_millis(1000);
    assert!(world.receive(connection).more_to_come);
    let error = world.receive(connection);
    assert_eq!(code(&error.body), 91);
    assert!(!error.more_to_come);
    world.advance_millis(10_000);
    assert!(world.try_receive(connection).is_none());
    assert!(is_ok(&world.call(connection, &hello())));
}

#[test]
fn m_23_each_reply_answers_the_one_before() {
    let mut world = World::replica_set(3);
    let (connection, request) = stream(&mut world, 1000);
    let mut previous = request;
    let mut ids = Vec::new();
    for _ in 0..4 {
        world.advance_millis(1000);
        let reply = world.receive(connection);
        assert_eq!(reply.response_to, previous);
        previous = reply.id;
        ids.push(reply.id);
    }
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[test]
fn m_24_a_stream_that_could_not_wait_is_one_reply() {
    let mut world = World::replica_set(1);
    let (connection, _) = stream(&mut world, 0);
    let only = world.receive(connection);
    assert!(is_ok(&only.body));
    assert!(!only.more_to_come);
}

#[test]
fn m_25_a_stream_without_a_wait_is_an_error() {
    let mut world = World::replica_set(1);
    let connection = world.connect(0);
    world.send_exhaust(connection, &hello());
    let reply = world.receive(connection);
    assert_eq!(code(&reply.body), 51756);
    assert!(!reply.more_to_come);
}

#[test]
fn m_26_a_message_within_a_stream_closes_the_connection() {
    let mut world = World::replica_set(1);
    let (connection, _) = stream(&mut world, 1000);
    world.send(connection, &hello());
    assert!(world.is_closed(connection));
    assert!(world.try_receive(connection).is_none());
}

#[test]
fn m_27_nothing_but_hello_is_streamed() {
    let mut world = World::replica_set(1);
    let connection = world.connect(0);
    for command in [
        doc! { "ping": 1, "$db": "admin" },
        doc! { "find": "things", "$db": "test" },
    ] {
        world.send_exhaust(connection, &command);
        assert!(!world.receive(connection).more_to_come);
        assert!(world.try_receive(connection).is_none());
    }
}

#[test]
fn m_27_servers_before_4_4_do_not_stream() {
    let mut world = World::replica_set_of(1, ServerVersion::V4_2);
    let modern = World::replica_set(1).hello(0);
    let connection = world.connect(0);
    world.send_exhaust(connection, &awaiting(&modern, 1000));
    assert!(!world.receive(connection).more_to_come);
    world.advance_millis(5000);
    assert!(world.try_receive(connection).is_none());
}

#[test]
fn m_28_legacy_hello_in_op_query_waits_but_does_not_stream() {
    let mut world = World::replica_set(1);
    let known = world.hello(0);
    let connection = world.connect(0);
    let mut request = awaiting(&known, 1000);
    request.remove("$db");
    world.send_query(connection, &request);
    assert!(world.try_receive(connection).is_none());
    world.advance_millis(1000);
    assert!(!world.receive(connection).more_to_come);
    world.advance_millis(5000);
    assert!(world.try_receive(connection).is_none());
}
