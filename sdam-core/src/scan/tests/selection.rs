//! Scans, waits, probes and failures of single-threaded selection.

use std::string::String;

use super::{super::*, world::*};
use crate::options::Options;

/// Returns a replica set with the single seed `p`, which takes 10 ms to answer.
fn world(change: impl FnOnce(&mut Options)) -> World {
    let mut world = World::new("p", 1, |options| {
        options.replica_set = Some("rs".into());
        change(options);
    });
    world.up();
    world
}

fn patient(options: &mut Options) {
    options.server_selection_try_once = Some(false);
}

impl World {
    fn up(&mut self) {
        let hello = member(ServerType::RsPrimary, "p");
        self.answer("p", Answer::Is(10, hello));
    }

    fn no_primary(&mut self) {
        let hello = member(ServerType::RsSecondary, "p");
        self.answer("p", Answer::Is(10, hello));
    }

    fn selects(&mut self, at: u64, timeout: u64) -> String {
        self.at(at).select(timeout)
    }
}

use crate::server::ServerType;

#[test]
fn h_1_l_68_the_first_selection_scans_without_delay() {
    //
    for patient in [true, false] {
        let mut world = world(|options| options.server_selection_try_once = Some(!patient));
        assert!(world.scan.is_stale(world.now));
        assert_eq!(world.scan.next_scan(), None);
        assert_eq!(world.selects(7, 30_000), "p, selected p");
        assert_eq!(millis(world.now), 17);
    }
}

#[test]
fn h_1_a_scan_is_valid_for_60_seconds() {
    let mut world = world(|_| ());
    world.select(30_000);
    assert_eq!(world.scan.last_scan(), Some(Instant::from_millis(10)));
    assert_eq!(world.scan.next_scan(), Some(Instant::from_millis(60_010)));
    assert_eq!(world.selects(60_010, 30_000), "selected p");
    assert_eq!(world.selects(60_011, 30_000), "p, selected p");
}

#[test]
fn h_1_the_frequency_of_scans_is_heartbeat_frequency_ms() {
    let mut world = world(|options| options.heartbeat_frequency = Some(Duration::from_secs(1)));
    world.select(30_000);
    assert_eq!(world.selects(1_010, 30_000), "selected p");
    assert_eq!(world.selects(1_011, 30_000), "p, selected p");
}

#[test]
fn h_11_l_65_l_66_try_once_scans_exactly_once_after_a_failure() {
    let mut world = world(|_| ());
    world.select(30_000);
    world.no_primary();
    // The topology is fresh, but no secondary is known: one scan, then failure.
    world.wanted = ServerType::RsSecondary;
    world.up();
    assert_eq!(world.selects(5_000, 30_000), "p, Fail(TriedOnce)");
    // The failure has left the topology stale, so the next selection begins with its one scan.
    assert!(world.scan.is_stale(world.now));
    assert_eq!(world.selects(9_000, 30_000), "p, Fail(TriedOnce)");
}

#[test]
fn l_66_try_once_ignores_server_selection_timeout_ms() {
    let mut world = world(|_| ());
    assert_eq!(world.select(0), "p, selected p");
    world.no_primary();
    let at = 60_100;
    assert_eq!(world.selects(at, 0), "p, Fail(TriedOnce)");
}

#[test]
fn l_66_try_once_waits_until_its_scan_is_allowed() {
    let mut world = world(|_| ());
    world.no_primary();
    assert_eq!(world.select(0), "p, Fail(TriedOnce)");
    // The scan ended at 10 ms, so the next one may begin at 510 ms.
    world.up();
    assert_eq!(world.selects(100, 0), "sleep 510, p, selected p");
}

#[test]
fn h_2_l_65_scans_are_500_ms_apart_until_a_server_is_found() {
    //
    let mut world = world(patient);
    world.no_primary();
    let mut effect = world.tell(ScanInput::Select {
        timeout: Duration::from_secs(30),
    });
    for _ in 0..3 * 3 {
        effect = world.step(effect).unwrap();
    }
    world.up();
    while let Some(next) = world.step(effect) {
        effect = next;
    }
    assert_eq!(
        world.log,
        ["p", "sleep 510", "p", "sleep 1020", "p", "sleep 1530", "p"]
    );
    assert!(matches!(effect, ScanEffect::Select { .. }));
    assert_eq!(millis(world.now), 1_540);
}

#[test]
fn h_2_a_lower_minimum_brings_scans_closer_together() {
    let mut world = world(|options| {
        patient(options);
        options.min_heartbeat_frequency = Duration::from_millis(50);
    });
    world.no_primary();
    assert_eq!(world.select(100), "p, sleep 60, p, Fail(Timeout)");
}

#[test]
fn l_67_a_selection_fails_up_to_500_ms_before_its_deadline_or_a_scan_after_it() {
    // The next scan would begin after the deadline, so the selection fails at once.
    let mut early = world(patient);
    early.no_primary();
    assert_eq!(early.select(1_019), "p, sleep 510, p, Fail(Timeout)");
    assert_eq!(
        millis(early.now),
        520,
        "between timeout - 500 ms and timeout"
    );
    // The scan begins at the deadline and still takes its time.
    let mut late = world(patient);
    late.no_primary();
    late.answer("p", Answer::Is(700, member(ServerType::RsSecondary, "p")));
    assert_eq!(late.select(1_200), "p, sleep 1200, p, Fail(Timeout)");
    assert_eq!(millis(late.now), 1_900, "timeout and the time of a scan");
}

#[test]
fn b_19_a_timeout_of_zero_still_permits_a_first_scan() {
    let mut world = world(patient);
    assert_eq!(world.select(0), "p, selected p");
    world.no_primary();
    assert_eq!(world.selects(60_100, 0), "p, Fail(Timeout)");
    assert_eq!(world.selects(60_200, 0), "Fail(Timeout)");
}

#[test]
fn l_65_e_6_an_incompatible_topology_fails_at_once_and_is_scanned_again() {
    for try_once in [true, false] {
        let mut world = world(|options| options.server_selection_try_once = Some(try_once));
        let mut hello = member(ServerType::RsPrimary, "p");
        hello.wire_versions.max = 2;
        world.answer("p", Answer::Is(10, hello));
        assert_eq!(world.select(30_000), "p, Fail(Incompatible)");
        assert!(world.scan.is_stale(world.now));
        world.up();
        assert_eq!(world.selects(100, 30_000), "sleep 510, p, selected p");
    }
}

#[test]
fn h_6_l_66_a_scan_may_have_nothing_to_check() {
    let mut world = world(|_| ());
    world.answer("p", Answer::Down(10));
    assert_eq!(world.select(0), "p, Fail(TriedOnce)");
    assert_eq!(world.selects(1_000, 0), "Fail(TriedOnce)");
    assert_eq!(world.scan.last_scan(), Some(Instant::from_millis(1_000)));
    world.up();
    assert_eq!(world.selects(5_010, 0), "p, selected p");
}

#[test]
fn h_12_x_38_a_connection_unused_for_socket_check_interval_ms_is_probed_first() {
    let mut world = world(|_| ());
    world.select(0);
    let mut select = |idle| {
        world.idle = Some(Duration::from_millis(idle));
        world.selects(1_000, 0)
    };
    assert_eq!(select(4_999), "selected p");
    assert_eq!(select(5_000), "probe p alive, selected p");
    world.idle = None;
    assert_eq!(world.select(0), "selected p", "there is no connection");
}

#[test]
fn b_21_the_interval_is_configurable() {
    let mut world = world(|options| options.socket_check_interval = Duration::from_secs(1));
    world.select(0);
    world.idle = Some(Duration::from_secs(1));
    assert_eq!(world.selects(2_000, 0), "probe p alive, selected p");
}

#[test]
fn h_12_x_38_a_dead_connection_leads_to_exactly_one_more_selection() {
    let mut world = world(|_| ());
    world.select(0);
    world.idle = Some(Duration::from_secs(9));
    world.probes = [false, false].into();
    // The server selected next is not probed.
    assert_eq!(world.selects(9_010, 0), "probe p dead, p, selected p");
    assert_eq!(world.probes.len(), 1);
}

#[test]
fn h_12_the_second_selection_may_choose_another_server() {
    let mut world = World::new("a b", 1, |_| ());
    world.wanted = ServerType::Mongos;
    world.answer("a", mongos()).answer("b", mongos());
    world.select(0);
    world.idle = Some(Duration::from_secs(9));
    world.probes = [false].into();
    assert_eq!(world.selects(9_000, 0), "probe a dead, selected b");
    let lost = world.topology.description().server(&address("a")).unwrap();
    assert_eq!(lost.server_type, ServerType::Unknown);
}

#[test]
fn h_12_a_probe_longer_than_the_timeout_leaves_one_selection_of_a_known_server() {
    let check = |other: Answer, expected: &str| {
        let mut world = World::new("a b", 1, |options| {
            options.server_selection_try_once = Some(false);
        });
        world.wanted = ServerType::Mongos;
        world.answer("a", mongos()).answer("b", other);
        world.select(0);
        world.idle = Some(Duration::from_secs(9));
        world.probes = [false].into();
        world.patience = Duration::from_secs(10);
        assert_eq!(world.selects(9_000, 5_000), expected);
    };
    check(mongos(), "probe a dead, selected b");
    check(Answer::Refuses(0), "probe a dead, Fail(Timeout)");
}

#[test]
fn h_12_l_66_the_second_selection_scans_once_too() {
    let mut world = world(|_| ());
    world.select(0);
    world.idle = Some(Duration::from_secs(9));
    world.probes = [false].into();
    world.answer("p", Answer::Down(10));
    // One scan because the topology is stale, and one because the second selection fails at first.
    assert_eq!(
        world.selects(70_000, 0),
        "p, p, Fail(TriedOnce)",
        "the scan itself finds out"
    );
    let mut world = self::world(|_| ());
    world.select(0);
    world.idle = Some(Duration::from_secs(9));
    world.probes = [false].into();
    world.answer("p", Answer::Down(10));
    assert_eq!(world.selects(9_010, 0), "probe p dead, p, Fail(TriedOnce)");
}

#[test]
fn an_abandoned_selection_leaves_its_scan_to_the_next_one() {
    let mut world = World::new("a b", 1, |options| options.replica_set = Some("rs".into()));
    world
        .answer("a", primary("a b"))
        .answer("b", secondary("a b", None));
    let timeout = Duration::from_secs(30);
    let first = world.tell(ScanInput::Select { timeout });
    let second = world.step(first).unwrap();
    let again = world.at(100).tell(ScanInput::Select { timeout });
    assert_eq!(
        second, again,
        "the check that is under way is asked for again"
    );
    assert_eq!(world.tell(ScanInput::NotFound), again, "out of turn");
    assert_eq!(world.tell(ScanInput::Awake), again, "out of turn");
    let name = world.select(0);
    assert!(name == "a, selected a" || name == "b, selected a", "{name}");
    assert_eq!(
        world.selects(200, 0),
        "selected a",
        "the scan counts for both"
    );
}

#[test]
fn an_abandoned_selection_leaves_its_probe_to_the_next_one() {
    let mut world = World::new("a b", 1, |_| ());
    world.wanted = ServerType::Mongos;
    world.answer("a", mongos()).answer("b", mongos());
    world.select(0);
    world.idle = Some(Duration::from_secs(9));
    let timeout = Duration::ZERO;
    let choose = world.at(9_000).tell(ScanInput::Select { timeout });
    let probe = world.step(choose).unwrap();
    assert!(matches!(probe, ScanEffect::Probe { .. }));
    assert_eq!(world.tell(ScanInput::Scan), probe);
    assert_eq!(world.tell(ScanInput::Settle), probe);
    world.probes = [true].into();
    let log = world.select(0);
    assert!(log.starts_with("probe a alive, "), "{log}");
    assert!(log.ends_with("selected a"), "{log}");
}

/// Returns a set of two secondaries, one of which was checked at 0 ms by an abandoned selection,
/// with the name of the checked one and of the other.
fn given_up() -> (World, &'static str, &'static str) {
    let mut world = World::new("a b", 1, |options| options.replica_set = Some("rs".into()));
    world
        .answer("a", secondary("a b", None))
        .answer("b", secondary("a b", None));
    let timeout = Duration::from_secs(30);
    let first = world.tell(ScanInput::Select { timeout });
    let second = world.step(first).unwrap();
    assert!(matches!(second, ScanEffect::Check { .. }));
    let (checked, other) = if world.log == ["a"] {
        ("a", "b")
    } else {
        ("b", "a")
    };
    world.log.clear();
    (world, checked, other)
}

#[test]
fn l_66_a_scan_that_another_selection_began_is_not_the_one_of_this_selection() {
    let (mut world, checked, other) = given_up();
    world.answer(checked, primary("a b"));
    assert_eq!(
        world.selects(30_000, 0),
        std::format!("{other}, {checked}, selected {checked}")
    );
}

#[test]
fn h_1_an_abandoned_scan_is_as_old_as_its_beginning() {
    let (mut world, checked, other) = given_up();
    world.answer(other, primary("a b"));
    assert_eq!(
        world.selects(60_000, 0),
        std::format!("{other}, selected {other}")
    );
    assert_eq!(world.scan.last_scan(), Some(Instant::EPOCH));
    let (mut world, ..) = given_up();
    world.answer(other, primary("a b"));
    assert_eq!(
        world.selects(60_001, 0),
        std::format!("{other}, {checked}, selected {other}")
    );
}
