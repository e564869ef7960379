//! Look-ups of the SRV record in single-threaded mode.

use std::{pin::pin, time::Duration};

use futures::future::{Either, select};
use sdam::{Criteria, Interest, events::EventName};
use sdam_events::channel::unbounded;
use sdam_sim::runtime::DnsFault;

use super::world::*;

#[test]
fn a_rescan_that_is_due_comes_before_the_scan() {
    // If a look-up of the record is due, it is made before the scan (H-13, N-28).
    let sim = sharded(1);
    let (sink, mut events) = unbounded();
    let sink = sink.interested_in(Interest::of(&[EventName::ServerHeartbeatStarted]));
    let builder = resolve(&sim, &uri("test1", "")).unwrap().sink(sink);
    let mut topology = builder.scan(sim.runtime().backend).unwrap();
    sim.block_on(topology.scan());
    set(&sim, TEST1, &[27019]);
    sim.run_for(Duration::from_secs(30));
    sim.block_on(topology.scan());
    assert_eq!(sim.dns().lookups(TEST1), 1, "not due yet");
    sim.run_for(Duration::from_secs(61));
    assert_eq!(sim.dns().lookups(TEST1), 1, "no look-up without a scan");
    while events.try_next().is_some() {}
    sim.block_on(topology.select(&Criteria::write())).unwrap();
    assert_eq!(sim.dns().lookups(TEST1), 2);
    let checked = std::iter::from_fn(|| events.try_next());
    let checked: Vec<_> = checked.filter_map(|event| event.kind.address().cloned()).collect();
    assert_eq!(checked, hosts(&[27019]), "the scan checks the new hosts only");
}

#[test]
fn a_dropped_scan_leaves_the_look_up_to_the_next_one() {
    // If a scan is dropped during its look-up, the next scan makes the look-up (N-28).
    let sim = sharded(1);
    let mut topology = scan(&sim, &uri("test1", ""));
    sim.dns().set_fault(TEST1, Some(DnsFault::Silence));
    sim.run_for(Duration::from_secs(61));
    let clock = sim.runtime().backend.clock;
    sim.block_on(async {
        let timer = clock.sleep_until(clock.now() + Duration::from_secs(1));
        let scan = pin!(topology.scan());
        assert!(matches!(select(scan, timer).await, Either::Right(_)));
    });
    assert_eq!(sim.dns().lookups(TEST1), 2);
    sim.dns().set_fault(TEST1, None);
    set(&sim, TEST1, &[27020]);
    sim.block_on(topology.scan());
    assert_eq!(sim.dns().lookups(TEST1), 3);
    assert_eq!(ports(&topology.description()), [27020]);
}
