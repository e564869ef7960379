//! Tests of the checks, pushed replies and measurements of a healthy server.

use super::world::*;

#[test]
fn a_first_check_publishes_the_server_after_its_pool_is_ready_and_streams_at_once() {
    // The specification prescribes this order (D-4, F-62).
    let mut world = World::open(&options(&["a"]));
    assert_eq!(world.due("a", false), ["ServerHeartbeatStarted a", "connect a1"]);
    let conn = world.conn("a", Role::Check);
    assert_eq!(world.connected(conn), ["hello on a1"]);
    world.wait_until(1020);
    assert_eq!(
        world.reply(conn, member(true, 1), false),
        [
            "ServerHeartbeatSucceeded a",
            "open b",
            "ready a",
            "publish",
            "ServerDescriptionChanged a",
            "ServerOpening b",
            "TopologyDescriptionChanged",
            "ServerHeartbeatStarted a",
            "await on a1",
            "connect a1 for pings",
        ]
    );
    let average = world.deployment.rtt(world.id("a")).map(|rtt| rtt.average.as_millis());
    assert_eq!(average, Some(20));
}

#[test]
fn a_measurement_rides_on_a_pushed_reply_and_has_a_timer_only_a_tenth_later() {
    // A measurement may be up to a tenth of a heartbeat early or late (G-7).
    let mut world = World::open(&options(&["a"]));
    let _ = world.check("a", member(true, 1));
    let ping = world.conn("a", Role::Ping);
    assert_eq!(world.connected(ping), ["hello on a1 for pings"]);
    assert!(world.reply(ping, member(true, 1), false).is_empty());
    assert_eq!(world.deadline("a", false), Some(12_000), "11/10 of a heartbeat");
    let check = world.conn("a", Role::Check);
    world.wait_until(9_999);
    let pushed = world.reply(check, member(true, 1), true);
    assert!(!pushed.contains(&"hello on a1 for pings".into()), "too early");
    world.wait_until(10_000);
    let pushed = world.reply(check, member(true, 1), true);
    assert_eq!(pushed[pushed.len() - 2..], ["read on a1", "hello on a1 for pings"]);
}

#[test]
fn measurements_end_when_the_server_is_polled() {
    // Round trips are measured separately from the checks only while the server streams (G-8).
    let mut world = World::open(&options(&["a"]));
    let _ = world.check("a", member(true, 1));
    let ping = world.conn("a", Role::Ping);
    let _ = world.connected(ping);
    let check = world.conn("a", Role::Check);
    let old = || Hello { topology_version: None, ..member(true, 1) };
    let outputs = world.reply(check, old(), false);
    assert_eq!(outputs.last().unwrap(), "disconnect a1 for pings");
    assert!(world.reply(ping, old(), false).is_empty());
    assert_eq!(world.deadline("a", false), Some(11_000));
}

#[test]
fn a_handshake_of_a_pool_counts_like_a_check_and_leaves_the_own_check_running() {
    let mut world = World::open(&polled(&["a"]));
    let _ = world.due("a", false);
    let server = world.id("a");
    let reply = Ok(standalone()).into();
    let greeted = Input::Handshake { server, generation: Generation::FIRST, reply };
    // A server without round-trip time is not selected, so its own check has to end first.
    assert_eq!(world.handle(greeted), [""; 0]);
    let conn = world.conn("a", Role::Check);
    assert_eq!(world.connected(conn), ["hello on a1"]);
}

#[test]
fn inputs_and_measurements_are_events_if_they_are_recorded() {
    let mut world = World::new(&polled(&["a"]));
    world.deployment = world.deployment.with_recorded_inputs();
    assert_eq!(world.handle(Input::Open)[..2], ["Input", "TopologyOpening"]);
    assert_eq!(world.due("a", false)[0], "Input");
    let conn = world.conn("a", Role::Check);
    assert_eq!(world.connected(conn)[0], "Input");
    let checked = world.reply(conn, standalone(), false);
    assert_eq!(checked[..3], ["Input", "ServerHeartbeatSucceeded a", "RttMeasured a"]);
    let handshake = Input::Handshake {
        server: world.id("a"),
        generation: Generation::FIRST,
        reply: Ok(standalone()).into(),
    };
    assert_eq!(world.handle(handshake)[0], "Input");
    assert_eq!(world.network_error("a")[0], "Input");
    assert_eq!(world.handle(Input::Close)[0], "Input");
    assert!(world.handle(Input::Close).is_empty(), "it has no effect");
}
