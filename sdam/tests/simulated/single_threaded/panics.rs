//! Pools that panic: the call re-raises the panic after all effects have run.

use bson::doc;
use sdam::{ScanTopology, TopologyType};
use sdam_events::channel::EventStream;
use sdam_testkit::{RecordingPool, RecordingPools};

use super::harness::*;
use crate::assert_pool_panics;

/// Starts a replica set whose pools panic once, in `method`.
fn start_with_panic_in(
    harness: &Harness,
    method: &'static str,
) -> (ScanTopology<RecordingPool>, EventStream) {
    let pools = RecordingPools::default();
    pools.break_at(method);
    harness.replica_set_with(|builder| builder.pools(pools))
}

#[test]
fn a_scan_is_completed_even_if_a_pool_panics_in_ready() {
    let harness = Harness::default();
    let (mut topology, _) = start_with_panic_in(&harness, "ready");
    assert_pool_panics(|| select(&mut topology));
    let known = topology.description().topology_type();
    assert_eq!(known, TopologyType::ReplicaSetWithPrimary);
    harness.log();
    assert_eq!(select(&mut topology), Ok("a".into()));
    assert_eq!(harness.log(), "", "the scan was complete");
}

#[test]
fn a_pool_that_panics_in_clear_prevents_neither_the_events_nor_the_end_of_the_connection() {
    let harness = Harness::default();
    let (mut topology, mut events) = start_with_panic_in(&harness, "clear");
    select(&mut topology).unwrap();
    let server = id(&topology, "a");
    harness.change("a", |server| server.other = reply(&refusal(91)));
    let insert = bytes(&doc! { "insert": "things", "$db": "test" });
    assert_pool_panics(|| ready(topology.run_command(server, &insert, None)));
    assert!(topology.is_stale());
    assert_eq!(harness.open(), 2);
    assert!(summaries(&mut events).contains(&"PoolCleared a".to_string()));
}

#[test]
fn all_servers_are_closed_even_if_a_pool_panics() {
    let harness = Harness::default();
    let (mut topology, mut events) = start_with_panic_in(&harness, "close");
    select(&mut topology).unwrap();
    summaries(&mut events);
    assert_pool_panics(|| topology.close());
    assert_eq!(harness.open(), 0);
    let summaries = summaries(&mut events);
    assert_eq!(summaries.last().unwrap(), "TopologyClosed");
    let closed = summaries.iter().filter(|event| event.starts_with("Closed "));
    assert_eq!(closed.count(), 3, "{summaries:?}");
}
