//! Selections on a runtime that drops tasks, panics or stalls.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use sdam::{
    Clock, Criteria, EventKind, Interest, PoolHandle, SelectionError, ServerAddress, Topology,
    events::{EventName, PendingEvents},
    select::Candidates,
};
use sdam_core::{event::SelectionFailure, options::MIN_HEARTBEAT_FREQUENCY};
use sdam_events::channel::unbounded;
use sdam_testkit::{RecordingPools, Server, mongos};

use super::harness::{Harness, hosts};

/// Returns the result of a new selection; `None` if it is waiting.
fn attempt<P: PoolHandle>(topology: &Topology<P>) -> Option<Result<ServerAddress, SelectionError>> {
    let outcome = topology.select(&Criteria::write()).now_or_never()?;
    Some(outcome.map(|selected| selected.address().clone()))
}

fn check_shut_down(error: &SelectionError) {
    assert!(error.is_runtime_shut_down(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("the runtime has shut down") && text.contains("keep the runtime"),
        "{text}"
    );
}

#[test]
fn selections_fail_at_once_when_all_monitors_are_dropped() {
    let (mut harness, hosts) = (Harness::new(), hosts(3));
    let (sink, events) = unbounded();
    let heartbeats = Interest::of(&[EventName::ServerHeartbeatFailed]);
    let interest = Interest::SELECTION.union(heartbeats);
    let topology = harness.start(&hosts, |builder| builder.sink(sink.interested_in(interest)));
    let criteria = Criteria::write();
    let mut pending = pin!(topology.select(&criteria));
    assert!(pending.as_mut().now_or_never().is_none());
    harness.drop_tasks();
    let outcome = pending.as_mut().now_or_never().unwrap();
    check_shut_down(&outcome.unwrap_err());
    check_shut_down(&attempt(&topology).unwrap().unwrap_err());
    check_shut_down(&topology.try_select(&criteria).unwrap_err());
    assert_eq!(topology.waiters(), 0);
    // The events also report the cause, if the program still delivers them.
    let delivered = |queue: PendingEvents<'_>| {
        let (again, all) = unbounded();
        queue.deliver_now(&again);
        drop(again);
        futures::executor::block_on_stream(all).collect::<Vec<_>>()
    };
    drop(events);
    let events = delivered(topology.events());
    let reasons = events.iter().filter_map(|event| match &event.kind {
        EventKind::ServerSelectionFailed { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(reasons.collect::<Vec<_>>(), [SelectionFailure::RuntimeShutDown; 2]);
    let checks = events.iter().filter_map(|event| match &event.kind {
        EventKind::ServerHeartbeatFailed { failure, .. } => Some(failure.message()),
        _ => None,
    });
    let dropped = "the runtime dropped the task that checks the server";
    assert_eq!(checks.collect::<Vec<_>>(), [dropped; 3]);
    // A closed topology reports that it is closed.
    topology.close().now_or_never().unwrap();
    let error = attempt(&topology).unwrap().unwrap_err();
    assert!(matches!(error, SelectionError::Closed), "{error}");
}

#[test]
fn selections_fail_at_once_when_the_monitors_are_dropped_before_they_start() {
    let (mut harness, hosts) = (Harness::with_replica_set(&hosts(3)), hosts(3));
    let topology = harness.spawn(&hosts, |builder| builder);
    assert!(attempt(&topology).is_none());
    harness.drop_tasks();
    check_shut_down(&attempt(&topology).unwrap().unwrap_err());
}

#[test]
fn selections_wait_while_one_of_several_monitors_is_left() {
    let (mut harness, hosts) = (Harness::new(), hosts(2));
    let topology = harness.spawn(&hosts, |builder| builder);
    harness.drop_first_new_task();
    harness.settle();
    assert!(attempt(&topology).is_none());
    harness.servers.set(&hosts[1], Server::mongos());
    harness.pass(Duration::from_secs(10));
    assert_eq!(attempt(&topology).unwrap().unwrap(), hosts[1]);
}

#[test]
fn topologies_without_monitors_report_no_runtime_shutdown() {
    // The topology removes every server, because the servers belong to a set with another name.
    let (mut harness, hosts) = (Harness::with_replica_set(&hosts(2)), hosts(2));
    let topology = harness.start(&hosts, |builder| {
        builder.options(|options| options.replica_set = Some("other".into()))
    });
    assert_eq!(topology.snapshot().description().servers(), []);
    assert!(attempt(&topology).is_none());
    harness.drop_tasks();
    assert!(attempt(&topology).is_none());

    // A load balancer is never monitored.
    let mut harness = Harness::new();
    let balancer = &hosts[..1];
    let topology =
        harness.start(balancer, |builder| builder.options(|options| options.load_balanced = true));
    harness.drop_tasks();
    assert_eq!(attempt(&topology).unwrap().unwrap(), hosts[0]);
    let nothing = Arc::new(|servers: &mut Candidates<'_>| servers.retain(|_| false));
    let criteria = Criteria::write().with_selector(nothing);
    assert!(topology.select(&criteria).now_or_never().is_none());
}

/// A mongos behind a transport that panics at the first reply.
fn panicking() -> Server {
    let (reply, first) = (mongos().to_vec().unwrap(), AtomicBool::new(true));
    Server::computing(Arc::new(move |_| {
        assert!(!first.swap(false, Ordering::SeqCst), "the transport panics");
        Some(reply.clone())
    }))
}

#[test]
fn a_server_whose_transport_has_panicked_is_checked_again_and_found() {
    for min in [MIN_HEARTBEAT_FREQUENCY, MIN_HEARTBEAT_FREQUENCY / 10] {
        let (mut harness, hosts) = (Harness::new(), hosts(1));
        harness.servers.set(&hosts[0], panicking());
        let topology = harness.start(&hosts, |builder| {
            builder.options(|options| options.deviations.min_heartbeat_frequency = min)
        });
        assert!(attempt(&topology).is_none(), "until the next check");
        harness.pass(min);
        assert_eq!(attempt(&topology).unwrap().unwrap(), hosts[0]);
    }
}

#[test]
fn a_server_is_found_although_its_pool_has_panicked_in_a_check() {
    let (mut harness, hosts) = (Harness::new(), hosts(1));
    harness.servers.set(&hosts[0], Server::mongos());
    let pools = RecordingPools::default();
    pools.break_at("ready");
    let topology = harness.start(&hosts, |builder| builder.pools(pools.clone()));
    assert_eq!(pools.count("ready"), 1, "the pool has panicked");
    assert_eq!(attempt(&topology).unwrap().unwrap(), hosts[0]);
}

#[test]
fn closing_ends_the_task_of_a_server_whose_transport_has_panicked_at_once() {
    // Closing ends the check at once, even if another one was requested (F-70).
    let (mut harness, hosts) = (Harness::new(), hosts(1));
    harness.servers.set(&hosts[0], panicking());
    let topology = harness.start(&hosts, |builder| builder);
    topology.request_check();
    harness.settle();
    let closing = harness.begin(async move { topology.close().await });
    // This runs the tasks without advancing the time.
    harness.settle();
    closing.now_or_never().unwrap();
}

#[test]
fn a_reply_that_has_arrived_during_a_stall_counts_although_its_deadline_has_passed() {
    let (mut harness, hosts) = (Harness::new(), hosts(1));
    let delay = Duration::from_secs(5);
    let mut server = Server::mongos();
    server.delay = delay;
    harness.servers.set(&hosts[0], server);
    let topology = harness.start(&hosts, |builder| builder);
    assert!(attempt(&topology).is_none());
    // The time passes the deadline by 5 s, which is too little to be recognized as a stall of the
    // program.
    let end = harness.clock.now() + 3 * delay;
    harness.clock.advance_to(end);
    harness.settle();
    // The reply is too old, so the request is repeated at once. A time-out would instead delay
    // the next check by a heartbeat.
    harness.pass(delay);
    assert_eq!(attempt(&topology).unwrap().unwrap(), hosts[0]);
}
