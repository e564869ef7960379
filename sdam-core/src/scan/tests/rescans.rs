//! Look-ups of the SRV record before scans (H-13, N-28).

use super::{super::*, world::*};
use crate::server::ServerType;

/// Returns a `World` with one mongos and an SRV record, which must be looked up after `due`
/// milliseconds.
fn world(due: u64) -> World {
    let mut world = World::new("s", 1, |_| {});
    world.wanted = ServerType::Mongos;
    world.answer("s", mongos());
    world.look_up = Some(Instant::from_millis(due));
    world
}

#[test]
fn an_abandoned_rescan_starts_over_with_the_next_scan() {
    let mut world = world(0);
    assert_eq!(world.request(ScanRequest::Scan), Step::LookUp);
    assert_eq!(world.tell(Scans::awake), Step::Wait, "out of turn");
    assert_eq!(world.request(ScanRequest::Settle), REST);
    assert_eq!(world.tell(Scans::looked_up), Step::Wait, "out of turn");
    assert_eq!(world.select(30_000), "look up, s, selected s");
}
