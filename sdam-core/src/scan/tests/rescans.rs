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
fn an_abandoned_rescan_starts_over_with_the_next_scan() {
    let mut world = world(0);
    assert_eq!(world.tell(ScanInput::Scan), ScanEffect::LookUp);
    assert_eq!(world.tell(ScanInput::Awake), ScanEffect::LookUp);
    assert_eq!(world.tell(ScanInput::Settle), ScanEffect::Rest);
    assert_eq!(world.tell(ScanInput::LookedUp), ScanEffect::Rest);
    assert_eq!(world.select(30_000), "look up, s, selected s");
}
