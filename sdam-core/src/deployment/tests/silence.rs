//! Tests of servers that stop answering, and of stalls of this host that look the same.

use super::world::*;

/// Returns a `World` at 1000 ms with the primary `a` and the secondary `b`, whose next checks are
/// due at 11,000 ms.
fn polled_set() -> World {
    let mut world = World::open(&polled(&["a", "b"]));
    world.check_both();
    world
}

/// Begins the check of `name` at `millis`.
fn ask(world: &mut World, name: &str, millis: u64) {
    world.wait_until(millis);
    assert_eq!(world.due(name, false).first().unwrap(), &format!("ServerHeartbeatStarted {name}"));
}

fn answer(world: &mut World, name: &str) -> Vec<String> {
    let conn = world.conn(name, Role::Check);
    world.reply(conn, member(name == "a", 1), false)
}

fn silence(world: &World, name: &str) -> crate::server::Silence {
    world.deployment.silence(world.id(name)).unwrap()
}

#[test]
fn a_server_is_suspected_a_second_after_its_answer_was_due_if_another_one_has_answered() {
    let mut world = polled_set();
    ask(&mut world, "a", 11_000);
    ask(&mut world, "b", 11_000);
    world.wait_until(11_500);
    let _ = answer(&mut world, "b");
    assert_eq!(world.deadline("a", false), Some(12_000));
    world.wait_until(12_000);
    assert_eq!(world.due("a", false), ["ServerSuspected a"]);
    assert_eq!(world.server_type("a"), ServerType::RsPrimary, "evidence changes no type");
    assert_eq!(world.deadline("a", false), Some(21_000), "the time limit of the check");
    let own = silence(&world, "a");
    assert_eq!(own.answered, Some(Instant::from_millis(1_000)));
    assert_eq!(own.expected, Some(Instant::from_millis(11_000)));
    assert_eq!(own.suspected, Some(world.now));
    assert_eq!(silence(&world, "b").expected, None, "nothing is outstanding");

    world.wait_until(13_000);
    let ended = answer(&mut world, "a");
    assert_eq!(ended[..2], ["ServerSuspicionEnded a", "ServerHeartbeatSucceeded a"]);
    assert_eq!(silence(&world, "a").suspected, None);
}

#[test]
fn nobody_is_suspected_while_all_are_silent_and_then_whoever_stays_silent_is() {
    let mut world = polled_set();
    ask(&mut world, "a", 11_000);
    ask(&mut world, "b", 11_000);
    for name in ["a", "b"] {
        world.wait_until(12_000);
        assert!(world.due(name, false).is_empty());
        assert_eq!(world.deadline(name, false), Some(21_000), "there is no other timer");
    }
    world.wait_until(14_000);
    assert_eq!(answer(&mut world, "b").first().unwrap(), "ServerSuspected a");
    assert_eq!(silence(&world, "b").suspected, None);
}

#[test]
fn a_server_that_has_never_answered_or_is_unknown_is_not_suspected() {
    let mut world = World::open(&polled(&["a", "b"]));
    let _ = world.due("a", false);
    let _ = world.check("b", member(false, 1));
    assert_eq!(world.deadline("a", false), Some(11_000));
    let conn = world.conn("a", Role::Check);
    let _ = world.connected(conn);
    let _ = answer(&mut world, "a");
    let _ = world.network_error("a");
    assert_eq!(world.server_type("a"), ServerType::Unknown);
    world.wait_until(1_500);
    assert_eq!(world.due("a", true), ["ServerHeartbeatStarted a", "connect a2"]);
    assert_eq!(world.deadline("a", false), Some(11_500));
}

#[test]
fn the_answer_to_a_measurement_does_not_make_an_unknown_server_suspect() {
    let mut world = World::open(&options(&["a", "b"]));
    world.check_both();
    let ping = world.conn("a", Role::Ping);
    let _ = world.connected(ping);
    let _ = world.network_error("a");
    let _ = world.reply(ping, member(true, 1), false);
    world.wait_until(1_500);
    assert_eq!(world.due("a", true), ["ServerHeartbeatStarted a", "connect a2"]);
    assert_eq!(world.deadline("a", false), Some(11_500), "the time limit of the connection");
}

#[test]
fn an_awaited_reply_is_expected_a_heartbeat_later_and_a_ping_at_once() {
    let mut world = World::open(&options(&["a", "b"]));
    for (name, primary) in [("a", true), ("b", false)] {
        let _ = world.check(name, member(primary, 1));
        let ping = world.conn(name, Role::Ping);
        let _ = world.connected(ping);
        let _ = world.reply(ping, member(primary, 1), false);
    }
    assert_eq!(silence(&world, "a").expected, Some(Instant::from_millis(11_000)));
    // Both servers push a change. `b` then answers a ping, but `a` does not.
    world.wait_until(10_000);
    for (name, primary) in [("a", true), ("b", false)] {
        let check = world.conn(name, Role::Check);
        let _ = world.reply(check, member(primary, 2), true);
    }
    assert_eq!(silence(&world, "a").expected, Some(Instant::from_millis(10_000)));
    assert_eq!(world.deadline("a", false), Some(11_000));
    world.wait_until(10_020);
    let ping = world.conn("b", Role::Ping);
    let _ = world.reply(ping, member(false, 2), false);
    world.wait_until(11_000);
    assert_eq!(world.due("a", false), ["ServerSuspected a"]);
    // The check is answered on time, so only the ping's connection was at fault.
    let check = world.conn("a", Role::Check);
    let outputs = world.reply(check, member(true, 3), true);
    assert_eq!(outputs.first().unwrap(), "ServerSuspicionEnded a");
    assert_eq!(silence(&world, "a").expected, Some(Instant::from_millis(11_000)));
}

#[test]
fn a_suspicion_ends_if_the_server_becomes_unknown_or_leaves() {
    for leaves in [true, false] {
        let mut world = polled_set();
        ask(&mut world, "b", 11_000);
        ask(&mut world, "a", 11_000);
        world.wait_until(11_400);
        let _ = answer(&mut world, "a");
        world.wait_until(12_000);
        assert_eq!(world.due("b", false), ["ServerSuspected b"]);
        let outputs = if leaves {
            let alone = Hello { hosts: addresses(&["a"]), ..member(true, 2) };
            ask(&mut world, "a", 21_400);
            let conn = world.conn("a", Role::Check);
            world.reply(conn, alone, false)
        } else {
            world.network_error("b")
        };
        let ended = |output: &&String| *output == "ServerSuspicionEnded b";
        assert_eq!(outputs.iter().filter(ended).count(), 1, "{outputs:?}");
    }
}

#[test]
fn operations_that_time_out_count_until_the_server_answers() {
    let mut world = polled_set();
    let timeout = Error::timeout(Stage::Operation, "no reply within 5 s");
    let refused = Error::new(ErrorKind::Command, Stage::Operation, "no").with_code(13);
    for (error, timeouts) in [(timeout.clone(), 1), (timeout, 2), (refused, 0)] {
        let _ = world.error("a", &ErrorReport::new(Generation::FIRST, error));
        assert_eq!(silence(&world, "a").timeouts, timeouts);
    }
}
