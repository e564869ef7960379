//! The interval between SRV look-ups, including after failures.

use std::time::Duration;

use sdam::{Criteria, EventKind, Interest, events::EventName};
use sdam_events::channel::unbounded;
use sdam_sim::runtime::DnsFault;

use super::world::*;

#[test]
fn the_record_is_looked_up_when_its_ttl_has_passed_and_not_before_60_seconds() {
    // Records are polled every 60 s, or less often if their TTL is longer (N-21).
    for (ttl, interval) in [(5, 60), (60, 60), (300, 300)] {
        let sim = sharded(1);
        let set = |ttl| {
            let ttl = Duration::from_secs(ttl);
            sim.dns().set_srv(TEST1, ttl, hosts(&[27017, 27018]));
        };
        set(ttl);
        let _topology = start(&sim, &uri("test1", ""));
        // Until the interval has passed, the topology makes only the initial look-up.
        sim.run_for(Duration::from_secs(interval - 1));
        assert_eq!(sim.dns().lookups(TEST1), 1, "{ttl} s");
        // The TTL of the latest answer applies.
        set(100);
        sim.run_for(Duration::from_secs(2));
        assert_eq!(sim.dns().lookups(TEST1), 2, "{ttl} s");
        sim.run_for(Duration::from_secs(98));
        assert_eq!(sim.dns().lookups(TEST1), 2, "{ttl} s");
        sim.run_for(Duration::from_secs(2));
        assert_eq!(sim.dns().lookups(TEST1), 3, "{ttl} s");
    }
}

#[test]
fn the_interval_counts_from_the_end_of_a_look_up_which_connect_timeout_ms_limits() {
    // The interval is measured from the end of a look-up (N-21), and a look-up that times out is
    // repeated after a heartbeat interval (N-23).
    for (options, fault, third) in [
        // The second look-up lasts from 60 s to 69 s.
        ("", DnsFault::Slow(Duration::from_secs(9)), 129),
        // The second look-up lasts from 60 s to 62 s.
        ("connectTimeoutMS=2000", DnsFault::Silence, 72),
    ] {
        let sim = sharded(1);
        let _topology = start(&sim, &uri("test1", options));
        sim.dns().set_fault(TEST1, Some(fault));
        sim.run_for(Duration::from_millis(1000 * third - 100));
        assert_eq!(sim.dns().lookups(TEST1), 2, "{third}");
        sim.run_for(Duration::from_millis(200));
        assert_eq!(sim.dns().lookups(TEST1), 3, "{third}");
    }
}

#[test]
fn after_a_failure_the_record_is_looked_up_each_heartbeat_until_one_succeeds() {
    // After a failed look-up, the next one follows after a heartbeat interval (N-23).
    let sim = sharded(1);
    let (sink, mut events) = unbounded();
    let sink = sink.interested_in(Interest::of(&[EventName::SrvLookupFailed]));
    let uri = uri("test1", "heartbeatFrequencyMS=7000");
    let builder = resolve(&sim, &uri).unwrap().sink(sink);
    let topology = builder.start(sim.runtime()).unwrap();
    sim.dns().set_fault(TEST1, Some(DnsFault::ServerFailure));
    sim.run_for(Duration::from_secs(60 + 7 + 7 + 1));
    assert_eq!(sim.dns().lookups(TEST1), 1 + 3);
    set(&sim, TEST1, &[27019]);
    sim.dns().set_fault(TEST1, None);
    sim.run_for(Duration::from_secs(7));
    assert_eq!(sim.dns().lookups(TEST1), 1 + 4);
    assert_eq!(ports(topology.snapshot().description()), [27019]);
    sim.run_for(Duration::from_secs(58));
    assert_eq!(sim.dns().lookups(TEST1), 1 + 4);
    let mut failures = 0;
    while let Some(event) = events.try_next() {
        let EventKind::SrvLookupFailed { name, failure, next } = event.kind else {
            panic!("{event:?}");
        };
        assert_eq!((&*name, next.as_secs()), (TEST1, 7));
        assert!(failure.message().contains("SERVFAIL"), "{failure}");
        failures += 1;
    }
    assert_eq!(failures, 3);
}

#[test]
fn a_look_up_delays_no_selection_and_no_check() {
    // An SRV look-up delays neither selections nor checks (N-27).
    let sim = sharded(1);
    let (sink, mut events) = unbounded();
    let sink = sink.interested_in(Interest::HEARTBEATS);
    let uri = uri("test1", "connectTimeoutMS=60000");
    let builder = resolve(&sim, &uri).unwrap().sink(sink);
    let topology = builder.start(sim.runtime()).unwrap();
    sim.run_for(Duration::from_secs(59));
    sim.dns().set_fault(TEST1, Some(DnsFault::Silence));
    sim.run_for(Duration::from_secs(2));
    assert_eq!(sim.dns().lookups(TEST1), 2, "a look-up is under way");
    while events.try_next().is_some() {}
    sim.run_for(Duration::from_secs(30));
    assert!(topology.try_select(&Criteria::write()).unwrap().is_some());
    let heartbeats = std::iter::from_fn(|| events.try_next()).count();
    assert!(heartbeats >= 2 * 2 * 3, "{heartbeats} events of 2 servers in 30 s");
}
