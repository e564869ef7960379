//! Events and pools.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sdam::{EventKind, Options, TopologyBuilder, options::DriverInfo};
use sdam_events::sink::sink_fn;

use super::harness::*;

#[test]
fn j_16_j_35_events_come_in_order_and_by_the_end_of_each_call() {
    let harness = Harness::default();
    let mut hello = mongos();
    hello.insert("serviceId", bson::oid::ObjectId::from_bytes([1; 12]));
    harness.serve("a", hello);
    let (mut topology, mut events) = harness.topology("a", |_| ());
    assert_eq!(events.try_next().unwrap().topology, topology.id());
    assert_eq!(summaries(&mut events), ["TopologyUnknown", "Opening a"]);
    select(&mut topology).unwrap();
    assert_eq!(
        summaries(&mut events),
        [
            "SelectionStarted",
            "HeartbeatStarted a",
            "HeartbeatSucceeded a",
            "PoolReady a",
            "Mongos a",
            "TopologySharded",
            "SelectionSucceeded a",
        ]
    );
    drop(topology);
    // Closing publishes the closed event of each server, then those of the topology (D-7, J-20).
    assert_eq!(summaries(&mut events), ["Closed a", "TopologyUnknown", "TopologyClosed"]);
}

#[test]
fn j_9_j_10_j_35_h_16_heartbeats_are_never_awaited_and_their_duration_ends_with_the_reply() {
    let harness = Harness::default();
    let (mut topology, mut events) = harness.replica_set(|_| ());
    harness.change("b", |server| server.delay = Duration::from_millis(25));
    for _ in 0..3 {
        select(&mut topology).unwrap();
        harness.advance(70_000);
    }
    let mut seen = 0;
    while let Some(event) = events.try_next() {
        match event.kind {
            EventKind::ServerHeartbeatStarted(heartbeat) => assert!(!heartbeat.awaited),
            EventKind::ServerHeartbeatSucceeded { heartbeat, duration, .. } => {
                seen += 1;
                assert!(!heartbeat.awaited);
                assert!(heartbeat.connection.server.is_some());
                let expected = if heartbeat.address == address("b") { 25 } else { 1 };
                assert_eq!(duration.as_millis(), expected);
            }
            _ => {}
        }
    }
    assert_eq!(seen, 9);
    let rtt = topology.description().server(&address("b")).unwrap().rtt;
    assert_eq!(rtt.unwrap().average.as_millis(), 25);
}

#[test]
fn sinks_are_called_while_no_io_is_in_progress() {
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let harness = Harness::default();
    harness.serve("a", mongos());
    let options = Options::parse("mongodb://a").unwrap();
    let sink = {
        let (seen, harness) = (Arc::clone(&seen), harness.clone());
        sink_fn(move |event| {
            // This locks the harness, so it would hang if I/O were in progress.
            harness.advance(10);
            seen.lock().unwrap().push(event.seq);
        })
    };
    let builder = TopologyBuilder::new(options).sink(sink);
    let mut topology = builder.scan(harness.backend(SEED)).unwrap();
    select(&mut topology).unwrap();
    topology.close();
    let seen = seen.lock().unwrap();
    let expected: Vec<u64> = (1..=seen.len() as u64).collect();
    assert_eq!(*seen, expected, "no gap, no repetition");
}

#[test]
fn a_selection_that_waits_publishes_the_remaining_time_unless_it_tries_once() {
    // A selection that finds no server reports once that it is waiting (K-8).
    for try_once in [true, false] {
        let harness = Harness::default();
        let (mut topology, mut events) =
            harness.topology("a", |options| options.server_selection_try_once = Some(try_once));
        ready(topology.scan());
        select(&mut topology).unwrap_err();
        let events: Vec<_> = std::iter::from_fn(|| events.try_next()).collect();
        let remaining = events.iter().find_map(|event| match &event.kind {
            EventKind::ServerSelectionWaiting { remaining, .. } => Some(*remaining),
            _ => None,
        });
        let remaining = remaining.unwrap();
        assert_eq!(remaining.is_none(), try_once, "{remaining:?}");
        assert!(remaining.is_none_or(|left| !left.is_zero()));
        let failure = events.iter().find_map(|event| match &event.kind {
            EventKind::ServerSelectionFailed { failure, .. } => Some(failure),
            _ => None,
        });
        assert!(failure.unwrap().starts_with("no server was suitable; "), "{failure:?}");
    }
}

#[test]
fn a_library_is_appended_to_the_metadata_once() {
    let (topology, _events) = Harness::default().topology("a", |_| {});
    let library = || DriverInfo::new("wrapper");
    assert_eq!(topology.append_metadata(library()), Ok(true));
    assert_eq!(topology.append_metadata(library()), Ok(false));
}
