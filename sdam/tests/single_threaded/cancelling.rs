//! Futures that are dropped before they are ready, on an `Io` whose operations can be pending.

use std::{future::Future, pin::pin, task::Context};

use bson::doc;
use futures::task::noop_waker_ref;
use sdam::Criteria;

use crate::harness::*;

/// Polls a future until it is pending, and drops it.
fn abandon<F: Future>(future: F) {
    let mut future = pin!(future);
    let state = future
        .as_mut()
        .poll(&mut Context::from_waker(noop_waker_ref()));
    assert!(state.is_pending(), "there was nothing to wait for");
}

#[test]
fn a_selection_may_be_dropped_and_the_next_one_goes_on_with_its_check() {
    let harness = Harness::default();
    let (mut topology, mut events) = harness.replica_set(|_| ());
    harness.stall();
    abandon(topology.select(&Criteria::write()));
    let first = harness.log();
    assert!(first.ends_with("isMaster"), "{first}");
    assert_eq!(first.matches("connect").count(), 1, "{first}");
    harness.advance(100);
    assert_eq!(select(&mut topology), Ok("a".into()));
    assert_eq!(harness.log().matches("connect").count(), 2, "the other two");
    let told = told(&mut events);
    let count = |name: &str| told.iter().filter(|event| event.starts_with(name)).count();
    // J-31
    assert_eq!(count("HeartbeatStarted"), 3);
    assert_eq!(count("HeartbeatSucceeded"), 3);
    assert_eq!(count("SelectionStarted"), 2);
    assert_eq!(count("SelectionFailed"), 1, "cancelled");
    assert_eq!(count("SelectionSucceeded"), 1);
}

#[test]
fn a_check_may_be_given_up_again_and_again_while_its_time_lasts() {
    let harness = Harness::default();
    let (mut topology, mut events) = harness.topology("a", |_| ());
    harness.serve("a", mongos());
    for _ in 0..3 {
        harness.stall();
        abandon(topology.scan());
        harness.advance(100);
    }
    assert_eq!(select(&mut topology), Ok("a".into()));
    // The reply has arrived, and another check measures the RTT.
    assert_eq!(harness.log(), "a connect, a isMaster, a hello");
    let told = told(&mut events);
    let failed = told
        .iter()
        .any(|event| event.starts_with("HeartbeatFailed"));
    assert!(!failed, "{told:?}");
}

#[test]
fn a_reply_that_waited_long_for_its_caller_saves_the_connection_and_another_one_measures() {
    // G-3, G-6
    let harness = Harness::default();
    let (mut topology, mut events) = harness.topology("a", |_| ());
    harness.serve("a", mongos());
    harness.stall();
    abandon(topology.scan());
    // The reply takes 1 ms, and nothing polls for half a minute.
    harness.advance(30_000);
    assert_eq!(select(&mut topology), Ok("a".into()));
    assert_eq!(harness.log(), "a connect, a isMaster, a hello");
    assert_eq!(
        told(&mut events)[3..6],
        [
            "HeartbeatStarted a",
            "SelectionStarted",
            "HeartbeatSucceeded a"
        ]
    );
    let rtt = topology.description().servers()[0].rtt.unwrap();
    assert_eq!(rtt.average.as_millis(), 1, "the late one is no sample");
}

#[test]
fn a_check_that_was_given_up_and_never_answered_says_nothing_about_its_server() {
    let harness = Harness::default();
    let (mut topology, mut events) = harness.topology("a", |_| ());
    harness.serve("a", mongos());
    harness.stall();
    abandon(topology.scan());
    harness.advance(30_000);
    harness.stall();
    assert_eq!(select(&mut topology), Ok("a".into()));
    assert_eq!(
        harness.log(),
        "a connect, a isMaster, a connect, a isMaster"
    );
    assert_eq!(
        told(&mut events)[3..8],
        [
            "HeartbeatStarted a",
            "SelectionStarted",
            "HeartbeatFailed a",
            "HeartbeatStarted a",
            "HeartbeatSucceeded a",
        ]
    );
    assert_eq!(harness.open(), 1);
}

#[test]
fn a_topology_may_be_dropped_with_a_check_under_way() {
    // J-25, J-31
    let harness = Harness::default();
    let (mut topology, mut events) = harness.replica_set(|_| ());
    harness.stall();
    abandon(topology.scan());
    assert_eq!(harness.open(), 1);
    drop(topology);
    assert_eq!(harness.open(), 0);
    let told = told(&mut events);
    let failed = told
        .iter()
        .position(|event| event.starts_with("HeartbeatFailed"));
    assert!(failed.is_some(), "{told:?}");
    assert_eq!(told.last().unwrap(), "TopologyClosed");
}

#[test]
fn a_probe_that_was_given_up_is_waited_for() {
    let harness = Harness::default();
    let (mut topology, _) = harness.replica_set(|_| ());
    select(&mut topology).unwrap();
    harness.advance(5_000);
    harness.log();
    harness.stall();
    abandon(topology.select(&Criteria::write()));
    assert_eq!(select(&mut topology), Ok("a".into()));
    assert_eq!(harness.log(), "a ping");
}

#[test]
fn an_operation_that_was_given_up_costs_its_connection() {
    let harness = Harness::default();
    let (mut topology, _) = harness.replica_set(|_| ());
    select(&mut topology).unwrap();
    let server = id(&topology, "a");
    let find = bytes(&doc! { "find": "things", "$db": "test" });
    harness.stall();
    abandon(topology.run_command(server, &find, None));
    harness.log();
    harness.advance(1_000);
    // The late reply is never taken for another command's.
    ready(topology.run_command(server, &find, None)).unwrap();
    assert_eq!(harness.log(), "a connect, a isMaster, a find");
    assert_eq!(harness.open(), 3);
}
