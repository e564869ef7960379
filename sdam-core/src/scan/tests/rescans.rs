//! Look-ups of the SRV record before scans (H-13, N-28).

use super::{super::*, world::*};
use crate::server::ServerType;

/// Returns a cluster of one mongos whose record must be looked up after `due` milliseconds.
fn world(due: u64) -> World {
    let mut world = World::new("s", 1, |_| {});
    world.wanted = ServerType::Mongos;
    world.answer("s", mongos());
    world.scan.schedule_rescan(Instant::from_millis(due));
    world
}

#[test]
fn h_13_n_28_a_rescan_that_is_due_precedes_the_scan() {
    let mut world = world(60_000);
    assert_eq!(world.select(30_000), "s, selected s");
    world.at(59_999);
    assert_eq!(world.run(ScanInput::Scan), ScanEffect::Rest);
    world.at(61_000);
    assert_eq!(world.run(ScanInput::Scan), ScanEffect::Rest);
    assert_eq!(world.log, ["s", "look up", "s"]);
}

#[test]
fn n_28_without_a_scan_there_is_no_rescan() {
    let mut world = world(60_000);
    world.at(30_000);
    assert_eq!(world.select(30_000), "s, selected s");
    world.at(61_000);
    assert_eq!(world.select(30_000), "selected s");
    let server = world.suitable().unwrap();
    assert_eq!(world.run(ScanInput::Check { server }), ScanEffect::Rest);
    assert_eq!(world.log, ["s"]);
    world.at(121_000);
    assert_eq!(world.select(30_000), "look up, s, selected s");
}

#[test]
fn n_20_the_record_of_a_replica_set_is_not_looked_up() {
    let mut world = world(0);
    world.wanted = ServerType::RsPrimary;
    world.answer("s", primary("s"));
    assert_eq!(world.select(30_000), "look up, s, selected s");
    world.at(200_000);
    assert_eq!(world.select(30_000), "s, selected s");
}

#[test]
fn an_abandoned_rescan_starts_over_with_the_next_scan() {
    let mut world = world(0);
    assert_eq!(world.tell(ScanInput::Scan), ScanEffect::LookUp);
    assert_eq!(world.tell(ScanInput::Awake), ScanEffect::LookUp);
    assert_eq!(world.tell(ScanInput::Settle), ScanEffect::Rest);
    assert_eq!(world.tell(ScanInput::LookedUp), ScanEffect::Rest);
    assert_eq!(world.select(30_000), "look up, s, selected s");
}
