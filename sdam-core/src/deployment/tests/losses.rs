//! Tests of errors from operations, cancelled checks, panics, and servers that leave.

use super::world::*;

#[test]
fn a_network_error_of_an_operation_clears_the_pool_and_cancels_the_check_in_one_change() {
    // One call returns all effects of an error. The pool is cleared after the description has
    // changed (F-66, F-69). Later errors of the old generation are ignored (I-1).
    let mut world = World::open(&options(&["a"]));
    let _ = world.check("a", member(true, 1));
    world.wait_until(3_000);
    let outputs = world.network_error("a");
    assert_eq!(
        outputs,
        [
            "publish",
            "ServerDescriptionChanged a",
            "TopologyDescriptionChanged",
            "clear a to 1",
            "disconnect a1",
            "ServerHeartbeatFailed a",
        ]
    );
    let late = world.conn("a", Role::Check);
    assert!(world.reply(late, member(true, 2), true).is_empty(), "it was overtaken");
    assert_eq!(world.server_type("a"), ServerType::Unknown);
    assert!(world.network_error("a").is_empty(), "an error of the old generation");
}

#[test]
fn after_a_panic_the_server_is_unknown_its_pool_is_kept_and_checks_start_over_soon() {
    let mut world = World::open(&options(&["a"]));
    let _ = world.check("a", member(true, 1));
    world.wait_until(2_000);
    let conn = world.conn("a", Role::Check);
    assert_eq!(
        world.failed(conn, ErrorKind::Internal),
        [
            "disconnect a1",
            "ServerHeartbeatFailed a",
            "publish",
            "ServerDescriptionChanged a",
            "TopologyDescriptionChanged",
            "disconnect a1 for pings",
        ]
    );
    assert_eq!(world.deadline("a", false), Some(2_500));
    assert_eq!(world.deadline("a", true), Some(2_500));
    world.wait_until(2_500);
    assert_eq!(world.due("a", false), ["ServerHeartbeatStarted a", "connect a2"]);
}

#[test]
fn a_panic_of_a_measurement_concerns_nothing_else() {
    let mut world = World::open(&options(&["a"]));
    let _ = world.check("a", member(true, 1));
    let ping = world.conn("a", Role::Ping);
    assert_eq!(world.failed(ping, ErrorKind::Internal), ["disconnect a1 for pings"]);
    assert_eq!(world.server_type("a"), ServerType::RsPrimary);
}

#[test]
fn a_deserted_server_is_unknown_and_never_checked_again() {
    let mut world = World::open(&options(&["a"]));
    let _ = world.check("a", member(true, 1));
    let server = world.id("a");
    assert_eq!(
        world.handle(Input::Deserted { server }),
        [
            "disconnect a1",
            "ServerHeartbeatFailed a",
            "disconnect a1 for pings",
            "publish",
            "ServerDescriptionChanged a",
            "TopologyDescriptionChanged",
        ]
    );
    assert_eq!(world.deadline("a", true), None);
    assert!(world.handle(Input::CheckRequested { server }).is_empty());
    assert!(world.due("a", true).is_empty());
    assert!(world.handle(Input::Deserted { server }).is_empty());
}

#[test]
fn closing_ends_every_heartbeat_and_every_pool_before_the_last_event() {
    // Closing ends every started heartbeat and closes every pool (invariant I10; J-3).
    let mut world = World::open(&options(&["a", "b"]));
    let _ = world.check("a", member(true, 1));
    let _ = world.due("b", false);
    assert_eq!(
        world.handle(Input::Close),
        [
            "publish",
            "ServerClosed a",
            "ServerClosed b",
            "TopologyDescriptionChanged",
            "disconnect a1",
            "ServerHeartbeatFailed a",
            "disconnect a1 for pings",
            "close a",
            "disconnect b1",
            "ServerHeartbeatFailed b",
            "close b",
            "TopologyClosed",
        ]
    );
    assert!(world.deployment.is_closed());
    assert_eq!(world.deployment.deadline(true), None);
    assert!(world.handle(Input::Close).is_empty());
}
