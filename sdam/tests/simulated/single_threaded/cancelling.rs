//! Tests futures that are dropped before completion, and pools that panic.

use std::task::Context;

use futures::task::noop_waker_ref;
use sdam_testkit::RecordingPool;
use sdam_transport::wire::OpMsg;

use super::*;

/// Polls a future until it is pending, and drops it.
fn poll_and_drop<F: Future>(future: F) {
    let mut future = pin!(future);
    let state = future.as_mut().poll(&mut Context::from_waker(noop_waker_ref()));
    assert!(state.is_pending(), "the future was ready");
}

#[test]
fn the_check_of_a_dropped_selection_is_continued_by_the_next_selection() {
    let harness = Harness::default();
    let (mut topology, mut events) = harness.replica_set(|_| ());
    harness.stall();
    poll_and_drop(topology.select(&Criteria::write()));
    let first = harness.log();
    assert!(first.ends_with("isMaster"), "{first}");
    assert_eq!(first.matches("connect").count(), 1, "{first}");
    harness.advance(100);
    assert_eq!(select(&mut topology), Ok("a".into()));
    assert_eq!(harness.log().matches("connect").count(), 2, "to the other two");
    let summaries = summaries(&mut events);
    let count = |name: &str| summaries.iter().filter(|event| event.starts_with(name)).count();
    // Every started heartbeat succeeds or fails exactly once (J-31).
    assert_eq!(count("HeartbeatStarted"), 3);
    assert_eq!(count("HeartbeatSucceeded"), 3);
    assert_eq!(count("SelectionStarted"), 2);
    assert_eq!(count("SelectionFailed"), 1, "cancelled");
    assert_eq!(count("SelectionSucceeded"), 1);
}

#[test]
fn a_late_reply_keeps_the_connection_and_a_missing_one_does_not_mark_its_server_unknown() {
    // A reply that is read late is not an RTT sample (G-3, G-6).
    let late = (
        "a connect, a isMaster, a hello",
        &["HeartbeatStarted a", "SelectionStarted", "HeartbeatSucceeded a"][..],
    );
    let missing = (
        "a connect, a isMaster, a connect, a isMaster",
        &[
            "HeartbeatStarted a",
            "SelectionStarted",
            "HeartbeatFailed a",
            "HeartbeatStarted a",
            "HeartbeatSucceeded a",
        ][..],
    );
    for (is_late, (log, events_after)) in [(true, late), (false, missing)] {
        let harness = Harness::default();
        let (mut topology, mut events) = harness.topology("a", |_| ());
        harness.serve("a", mongos());
        harness.stall();
        poll_and_drop(topology.scan());
        // The reply takes 1 ms, but the topology is not polled again for half a minute.
        harness.advance(30_000);
        if !is_late {
            harness.stall();
        }
        assert_eq!(select(&mut topology), Ok("a".into()));
        assert_eq!(harness.log(), log);
        assert_eq!(summaries(&mut events)[3..3 + events_after.len()], *events_after);
        assert_eq!(harness.open(), 1);
        let rtt = topology.description().servers()[0].rtt.unwrap();
        assert_eq!(rtt.average.as_millis(), 1, "a late reply is no sample");
    }
}

#[test]
fn dropping_a_topology_during_a_check_closes_the_connection_and_ends_the_heartbeat() {
    // Cancelled heartbeats fail before the topology is closed (J-25, J-31).
    let harness = Harness::default();
    let (mut topology, mut events) = harness.replica_set(|_| ());
    harness.stall();
    poll_and_drop(topology.scan());
    assert_eq!(harness.open(), 1);
    drop(topology);
    assert_eq!(harness.open(), 0);
    let summaries = summaries(&mut events);
    let failed = summaries.iter().position(|event| event.starts_with("HeartbeatFailed"));
    assert!(failed.is_some(), "{summaries:?}");
    assert_eq!(summaries.last().unwrap(), "TopologyClosed");
}

#[test]
fn the_reply_to_a_cancelled_probe_is_awaited_by_the_next_selection() {
    let (harness, mut topology, _) = scanned();
    harness.advance(5_000);
    harness.stall();
    poll_and_drop(topology.select(&Criteria::write()));
    assert_eq!(select(&mut topology), Ok("a".into()));
    assert_eq!(harness.log(), "a ping");
}

#[test]
fn a_cancelled_operation_closes_its_connection() {
    let find = bytes(&doc! { "find": "things", "$db": "test" });
    // The last two operations are those of a driver that frames its own messages. The driver drops
    // the future of `recv`, or does not even call `recv`.
    for operation in ["run", "recv", "send"] {
        let (harness, mut topology, _) = scanned();
        let server = id(&topology, "a");
        if operation == "run" {
            harness.stall();
            poll_and_drop(topology.run_command(server, &find, None));
        } else {
            let mut lent = topology.connection(server).unwrap();
            let connection = lent.connection().unwrap();
            let find = OpMsg { request_id: 7, body: &find, ..OpMsg::default() };
            ready(connection.send(find.encode().unwrap())).unwrap();
            if operation == "recv" {
                harness.stall();
                poll_and_drop(connection.recv());
            }
        }
        harness.log();
        harness.advance(1_000);
        // The next command opens a new connection, so it cannot mistake the late reply for its own.
        ready(topology.run_command(server, &find, None)).unwrap();
        assert_eq!(harness.log(), "a connect, a isMaster, a find", "{operation}");
    }
}

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
