//! Scans, waits, probes and failures of single-threaded selection.

use std::string::String;

use super::{super::*, world::*};
use crate::options::Options;

/// Returns a `World` with the single seed `p`, a replica set member that takes 10 ms to answer.
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
fn h_14_a_load_balancer_is_selected_without_discovery() {
    let mut world = World::new("p", 1, |options| options.load_balanced = true);
    world.wanted = ServerType::LoadBalancer;
    assert_eq!(world.select(0), "selected p");
    assert_eq!(world.run(ScanRequest::Scan), Step::Output(Output::Finish(Ok(None))));
    let server = world.suitable().unwrap();
    let checked = world.run(ScanRequest::Check { server });
    assert_eq!(checked, Step::Output(Output::Finish(Ok(None))));
    // Only a custom selector can reject the single server, and another scan would not change that.
    world.wanted = ServerType::Mongos;
    assert_eq!(world.selects(5_000, 30_000), "TriedOnce");
    assert_eq!(world.log, [""; 0]);
}

#[test]
fn h_11_l_65_l_66_try_once_scans_exactly_once_after_a_failure() {
    let mut world = world(|_| ());
    world.select(30_000);
    world.no_primary();
    // The topology is fresh, but no secondary is known, so one scan precedes the failure.
    world.wanted = ServerType::RsSecondary;
    world.up();
    assert_eq!(world.selects(5_000, 30_000), "p, TriedOnce");
    // The failure has made the topology stale, so the next selection begins with a scan, and makes
    // no other scan.
    assert!(world.scan.is_stale(world.now));
    assert_eq!(world.selects(9_000, 30_000), "p, TriedOnce");
}

#[test]
fn b_19_a_timeout_of_zero_still_permits_a_first_scan() {
    let mut world = world(patient);
    assert_eq!(world.select(0), "p, selected p");
    world.no_primary();
    assert_eq!(world.selects(60_100, 0), "p, Timeout");
    assert_eq!(world.selects(60_200, 0), "Timeout");
}

#[test]
fn b_21_the_interval_is_configurable() {
    let mut world = world(|options| options.socket_check_interval = Duration::from_secs(1));
    world.select(0);
    world.idle = Some(Duration::from_secs(1));
    assert_eq!(world.selects(2_000, 0), "probe p alive, selected p");
}

#[test]
fn an_abandoned_selection_leaves_its_scan_to_the_next_one() {
    let mut world = World::new("a b", 1, |options| options.replica_set = Some("rs".into()));
    world.answer("a", primary("a b")).answer("b", secondary("a b", None));
    let timeout = Duration::from_secs(30);
    let first = world.request(ScanRequest::Select { timeout });
    let second = world.step(&first).unwrap();
    let again = world.at(100).request(ScanRequest::Select { timeout });
    assert_eq!(again, Step::Wait);
    let checking = world.scan.checking().map(Step::Check);
    assert_eq!(Some(second), checking, "the check under way comes first");
    let none = world.tell(|scan, view| scan.chosen(view, None, None));
    assert_eq!(none, Step::Wait, "out of turn");
    assert_eq!(world.tell(Scans::awake), Step::Wait, "out of turn");
    let name = world.select(0);
    assert!(name == "a, selected a" || name == "b, selected a", "{name}");
    assert_eq!(world.selects(200, 0), "selected a", "the scan counts for both");
}

#[test]
fn an_abandoned_selection_leaves_its_probe_to_the_next_one() {
    let mut world = World::new("a b", 1, |_| ());
    world.wanted = ServerType::Mongos;
    world.answer("a", mongos()).answer("b", mongos());
    world.select(0);
    world.idle = Some(Duration::from_secs(9));
    let timeout = Duration::ZERO;
    let choose = world.at(9_000).request(ScanRequest::Select { timeout });
    let probe = world.step(&choose).unwrap();
    assert!(matches!(probe, Step::Output(Output::Probe { .. })));
    assert_eq!(world.request(ScanRequest::Scan), probe);
    assert_eq!(world.request(ScanRequest::Settle), probe);
    world.probes = [true].into();
    let log = world.select(0);
    assert!(log.starts_with("probe a alive, "), "{log}");
    assert!(log.ends_with("selected a"), "{log}");
}

#[test]
fn a_probe_that_fails_is_followed_by_a_scan_until_the_deadline_has_passed() {
    for (patience, expected) in
        [(1_000, "probe p dead, p, selected p"), (1_001, "probe p dead, Timeout")]
    {
        let mut world = world(patient);
        world.select(30_000);
        world.idle = Some(Duration::from_secs(9));
        world.probes = [false].into();
        world.patience = Duration::from_millis(patience);
        assert_eq!(world.selects(9_000, 1_000), expected);
    }
}
