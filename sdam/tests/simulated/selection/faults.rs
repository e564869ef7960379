//! Selections on a runtime that drops tasks, panics or stalls, and with pools that panic or publish
//! events while the topology calls them.

use std::sync::atomic::{AtomicBool, Ordering};

use sdam::{
    error::{ErrorReport, Stage},
    events::PendingEvents,
    pool::Generation,
};
use sdam_core::reply;
use sdam_testkit::mongos;

use super::*;

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
    // Closing ends the check at once, even if another check was requested (F-70).
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

/// Returns the report of an error from a server that is shutting down.
fn shutdown() -> ErrorReport {
    let reply = doc! { "ok": 0, "code": 91, "errmsg": "shutting down" };
    let error = reply::error(&reply.to_vec().unwrap(), Stage::Operation);
    ErrorReport::new(Generation::FIRST, error.unwrap())
}

/// Returns the names of the events so far.
fn names(events: &mut EventStream) -> Vec<EventName> {
    let events = drain(events).into_iter();
    events.map(|event| event.kind.name()).collect()
}

#[test]
fn a_server_is_checked_again_after_its_pool_panicked_in_clear() {
    let (hosts, pools) = (hosts(3), RecordingPools::default());
    let mut harness = Harness::with_replica_set(&hosts);
    let (sink, mut events) = unbounded();
    let sink = sink.interested_in(Interest::POOLS);
    let topology = harness.start(&hosts, |builder| builder.pools(pools.clone()).sink(sink));
    let primary = topology.try_select(&Criteria::write()).unwrap().unwrap();
    pools.break_at("clear");
    assert_pool_panics(|| topology.reporter(primary.id()).handle_error(&shutdown()));
    let role = || topology.snapshot().server(&hosts[0]).unwrap().description().server_type;
    assert_eq!(role(), ServerType::Unknown);
    // I-35: the error requests a check, which still happens after the pool has panicked. No
    // selection is waiting that could have requested this check.
    harness.pass(MIN_HEARTBEAT_FREQUENCY);
    assert_eq!(role(), ServerType::RsPrimary);
    assert!(names(&mut events).contains(&EventName::PoolCleared));
}

#[test]
fn every_pool_is_closed_even_if_one_panics_during_the_start_or_at_the_end() {
    for (method, left) in [("create", 2), ("close", 3)] {
        let (hosts, pools) = (hosts(3), RecordingPools::default());
        let mut harness = Harness::with_replica_set(&hosts);
        let (sink, mut events) = unbounded();
        pools.break_at(method);
        assert_pool_panics(|| {
            let topology = harness.start(&hosts, |builder| builder.pools(pools.clone()).sink(sink));
            drop(topology);
        });
        harness.settle();
        assert_eq!((pools.count("create"), pools.count("close")), (3, left));
        let names = names(&mut events);
        assert_eq!(names.last(), Some(&EventName::TopologyClosed));
        let closed = names.iter().filter(|name| **name == EventName::ServerClosed);
        assert_eq!(closed.count(), 3, "{method}");
    }
}

#[test]
fn a_pool_is_prepared_once_and_not_after_it_was_ready() {
    let (hosts, pools) = (hosts(2), RecordingPools::default());
    let mut harness = Harness::with_replica_set(&hosts);
    for host in &hosts {
        harness.servers.set(host, Server::silent());
    }
    let topology = harness.spawn(&hosts, |builder| builder.pools(pools.clone()));
    let wait = |mode| {
        let criteria = Criteria::read(mode).unwrap();
        assert!(topology.select(&criteria).now_or_never().is_none());
    };
    wait(ReadMode::Primary);
    assert_eq!(pools.count("prepare"), 0, "no check waits for its server");
    harness.settle();
    for _ in 0..2 {
        wait(ReadMode::Primary);
        assert_eq!(pools.count("prepare"), 2);
    }
    for (index, host) in hosts.iter().enumerate() {
        harness.servers.set(host, Server::member(&hosts, index == 0));
    }
    harness.pass(Duration::from_secs(60));
    assert_eq!(pools.count("ready"), 2);
    // The second server displaces the first one, which does not answer any more.
    harness.servers.set(&hosts[0], Server::silent());
    harness.servers.set(&hosts[1], Server::member(&hosts, true));
    harness.pass(Duration::from_secs(10));
    let displaced = topology.snapshot();
    assert_eq!(displaced.server(&hosts[0]).unwrap().description().last_update_time, None);
    wait(ReadMode::Secondary);
    assert_eq!(pools.count("prepare"), 2);
}

#[test]
fn a_pool_that_panics_when_it_is_prepared_does_not_end_the_checks_of_its_server() {
    let (hosts, pools) = (hosts(1), RecordingPools::default());
    let mut harness = Harness::with_replica_set(&hosts);
    harness.servers.set(&hosts[0], Server::silent());
    let topology = harness.spawn(&hosts, |builder| builder.pools(pools.clone()));
    pools.break_at("prepare");
    let criteria = Criteria::write();
    let mut selection = pin!(topology.select(&criteria));
    assert!(selection.as_mut().now_or_never().is_none());
    harness.settle();
    assert_eq!(pools.count("prepare"), 1);
    harness.servers.set(&hosts[0], Server::member(&hosts, true));
    harness.pass(Duration::from_secs(11));
    assert!(selection.now_or_never().unwrap().is_ok());
}

#[test]
fn a_pool_whose_creation_panicked_is_created_before_its_server_is_selected() {
    let (hosts, pools) = (hosts(3), RecordingPools::default());
    let mut harness = Harness::with_replica_set(&hosts);
    pools.break_after(1, "create");
    let topology = harness.start(&hosts[..1], |builder| {
        let builder = builder.options(|options| options.replica_set = Some("rs".into()));
        builder.pools(pools.clone())
    });
    assert_eq!(topology.snapshot().servers().len(), 3);
    let primary = topology.try_select(&Criteria::write()).unwrap().unwrap();
    assert!(pools.generations().contains_key(&primary.id()));
    assert_eq!(pools.count("create"), 4, "one creation failed");
}

fn addresses<P: PoolHandle>(topology: &Topology<P>) -> Vec<ServerAddress> {
    let snapshot = topology.snapshot();
    let servers = snapshot.description().servers();
    servers.iter().map(|one| one.address.clone()).collect()
}

#[test]
fn a_replica_set_takes_no_hosts_of_an_srv_record() {
    // SRV records are not polled for a replica set (N-20).
    let hosts = hosts(3);
    let mut harness = Harness::with_replica_set(&hosts);
    let topology = harness.start(&hosts, |builder| {
        builder.options(|options| options.replica_set = Some("rs".into()))
    });
    let version = topology.snapshot().version();
    topology.handle_srv_hosts(&hosts[..1]);
    assert_eq!(addresses(&topology), hosts);
    assert_eq!(topology.snapshot().version(), version);
}

#[test]
fn every_server_is_returned_with_the_pool_that_a_selection_returns() {
    let hosts = hosts(3);
    let mut harness = Harness::with_replica_set(&hosts);
    let pools = RecordingPools::default();
    let topology = harness.start(&hosts, |builder| builder.pools(pools.clone()));
    let snapshot = topology.snapshot();
    assert_eq!(addresses(&topology), hosts);
    let selected = topology.try_select(&Criteria::write()).unwrap().unwrap();
    for server in snapshot.servers() {
        let description = server.description();
        let again = snapshot.server(&description.address).unwrap();
        assert_eq!(again.description(), description);
        let is_selected = description.id == selected.id();
        let pool = topology.pool(&server).unwrap();
        assert_eq!(std::ptr::eq(pool, selected.pool()), is_selected);
        let state = snapshot.server_by_id(description.id).unwrap().operation_count();
        assert_eq!(state, u32::from(is_selected), "L-43");
    }
    assert!(snapshot.server(&ServerAddress::new("db.lan", 1)).is_none());
    drop(selected);
    assert!(snapshot.servers().all(|server| server.operation_count() == 0), "L-43");
    topology.close().now_or_never();
    assert_eq!(topology.snapshot().servers().len(), 0);
}

#[test]
fn a_server_whose_pool_factory_has_panicked_is_returned_without_pool() {
    let (mut harness, hosts) = (Harness::new(), hosts(2));
    let pools = RecordingPools::default();
    let topology = harness.start(&hosts[..1], |builder| builder.pools(pools.clone()));
    pools.break_at("create");
    let add = AssertUnwindSafe(|| topology.handle_srv_hosts(&hosts));
    assert!(catch_unwind(add).is_err());
    let snapshot = topology.snapshot();
    let has_pool = snapshot.servers().map(|server| topology.pool(&server).is_some());
    assert_eq!(has_pool.collect::<Vec<_>>(), [true, false]);
}
