//! The effects of operation errors on scans.

use super::{super::*, world::*};
use crate::{app_error::Cause, server::ServerType};

/// Returns a replica set of two members, scanned at 0 ms.
fn scanned(immediate_check: bool) -> World {
    let mut world = World::new("a b", 1, |options| {
        options.replica_set = Some("rs".into());
        options.single_threaded_immediate_check = immediate_check;
    });
    world
        .answer("a", primary("a b"))
        .answer("b", secondary("a b", None));
    world.run(ScanInput::Scan);
    world.log.clear();
    world.at(1_000);
    world
}

#[test]
fn i_38_x_6_x_45_not_writable_primary_and_shutdown_make_the_topology_stale() {
    let check = |code, stale| {
        let mut world = scanned(false);
        world.report("a", Cause::Reply(error_reply(code).into()));
        let a = world.topology.description().server(&address("a")).unwrap();
        assert_eq!(a.server_type, ServerType::Unknown, "{code}");
        assert_eq!(world.scan.is_stale(world.now), stale, "{code}");
        assert_eq!(world.run(ScanInput::Settle), ScanEffect::Rest);
        assert_eq!(world.log.len(), 0, "{code}: nothing is checked at once");
        world.wanted = ServerType::RsSecondary;
        let expected = if stale {
            "a, b, selected b"
        } else {
            "selected b"
        };
        let mut log = world.at(1_001).select(0);
        if log == "b, a, selected b" {
            log = "a, b, selected b".into();
        }
        assert_eq!(log, expected, "{code}");
    };
    for code in [10_107, 13_435, 10_058, 11_600, 91] {
        check(code, true);
    }
    // I-39
    for code in [11_602, 13_436, 189] {
        check(code, false);
    }
}

#[test]
fn i_38_with_immediate_check_the_server_itself_is_checked_at_once() {
    let mut world = scanned(true);
    world.report("a", Cause::Reply(error_reply(10_107).into()));
    assert!(!world.scan.is_stale(world.now));
    assert_eq!(world.run(ScanInput::Settle), ScanEffect::Rest);
    assert_eq!(world.log, ["a"]);
    assert!(world.topology.description().primary().is_some());
    assert_eq!(world.run(ScanInput::Settle), ScanEffect::Rest);
    assert_eq!(world.log, ["a"], "once");
}

#[test]
fn i_38_with_immediate_check_the_next_selection_makes_a_pending_check() {
    let mut world = scanned(true);
    world.report("a", Cause::Reply(error_reply(10_107).into()));
    assert_eq!(world.select(0), "a, selected a");
}

#[test]
fn i_39_a_recovering_node_is_not_checked_even_with_immediate_check() {
    let mut world = scanned(true);
    world.report("a", Cause::Reply(error_reply(11_602).into()));
    assert_eq!(world.run(ScanInput::Settle), ScanEffect::Rest);
    assert_eq!(world.log.len(), 0);
    assert!(!world.scan.is_stale(world.now));
}

#[test]
fn i_15_h_7_a_broken_connection_requires_no_scan_and_starts_no_cooldown() {
    let mut world = scanned(false);
    world.report("a", Cause::Network("reset".into()));
    let a = world.topology.description().server(&address("a")).unwrap();
    assert_eq!(a.last_update_time, Some(world.now));
    assert!(!world.scan.is_stale(world.now));
    // The next operation checks at once whether the server is reachable: no check has failed, so
    // there is no cooldown.
    world.answer("a", Answer::Down(0));
    let log = world.select(0);
    assert!(log == "b, a, Fail(TriedOnce)", "{log}");
    // Now a check has failed.
    assert_eq!(world.at(2_000).select(0), "b, Fail(TriedOnce)");
}

#[test]
fn i_38_an_error_during_a_scan_requires_another_scan() {
    let mut world = scanned(false);
    let first = world.tell(ScanInput::Scan);
    let second = world.step(first).unwrap();
    world.report("a", Cause::Reply(error_reply(10_107).into()));
    let mut effect = second;
    while let Some(next) = world.step(effect) {
        effect = next;
    }
    assert_eq!(effect, ScanEffect::Rest);
    assert!(world.scan.is_stale(world.now));
}
