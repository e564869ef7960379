//! Pools that panic when the topology calls them: the panic reaches the caller, and the remaining
//! effects still run.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use sdam::discovery::reply;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use bson::doc;
use futures::{StreamExt, executor::block_on};
use sdam::{
    Criteria, ErrorReport, Event, EventKind, EventName, Generation, Interest, ServerType, Stage,
    Topology, TopologyBuilder,
};
use sdam_core::options::ServerMonitoringMode;
use sdam_events::channel::{EventStream, unbounded};
use sdam_sim::serve::ReplicaSet;
use sdam_testkit::{RecordingPool, RecordingPools};

/// The time limit of every wait, for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asserts that `call` panics with the pool's panic.
fn assert_pool_panics<T>(call: impl FnOnce() -> T) {
    let panic = catch_unwind(AssertUnwindSafe(call)).err().unwrap();
    assert_eq!(panic.downcast_ref(), Some(&RecordingPools::PANIC));
}

/// Builds a topology whose servers are checked once, and again only on request.
fn builder(
    set: &ReplicaSet,
    pools: &RecordingPools,
) -> (TopologyBuilder<RecordingPool>, EventStream) {
    let (sink, events) = unbounded();
    let builder = Topology::builder(set.uri())
        .unwrap()
        .options(|options| {
            options.heartbeat_frequency = Some(Duration::from_secs(600));
            options.server_monitoring_mode = ServerMonitoringMode::Poll;
        })
        .pools(pools.clone())
        .sink(sink.interested_in(Interest::SDAM.union(Interest::POOLS)));
    (builder, events)
}

fn start(
    builder: TopologyBuilder<RecordingPool>,
    host: &tokio::runtime::Runtime,
) -> Topology<RecordingPool> {
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    builder.start(runtime).unwrap()
}

/// Returns all events, once the topology has ended.
fn all(events: EventStream) -> Vec<Event> {
    let events: Vec<_> = block_on(events.collect());
    assert_eq!(events.last().unwrap().kind, EventKind::TopologyClosed);
    events
}

#[test]
fn a_server_is_checked_again_after_its_pool_panicked_in_clear() {
    let host = tokio::runtime::Runtime::new().unwrap();
    let (set, pools) = (ReplicaSet::start(3).unwrap(), RecordingPools::default());
    let (builder, events) = builder(&set, &pools);
    let topology = start(builder, &host);
    let primary = block_on(topology.select(&Criteria::write())).unwrap();
    let reply = doc! { "ok": 0, "code": 91, "errmsg": "shutting down" };
    let reply = reply.to_vec().unwrap();
    pools.break_at("clear");
    assert_pool_panics(|| {
        let error = ErrorReport::new(
            Generation::FIRST,
            reply::error(&reply, Stage::Operation).unwrap(),
        );
        topology.handle_error(primary.id(), &error)
    });
    // I-35: the check that the error requests comes after the clear, and no selection is waiting.
    let found = topology.wait_for(
        |snapshot| {
            let server = snapshot.description().server_by_id(primary.id())?;
            (server.server_type == ServerType::RsPrimary).then_some(())
        },
        PATIENCE,
    );
    assert!(block_on(found).is_some(), "{:?}", topology.snapshot());
    block_on(topology.close());
    let cleared = |event: &Event| event.kind.name() == EventName::PoolCleared;
    assert!(all(events).iter().any(cleared));
}

#[test]
fn every_pool_is_closed_even_if_one_panics() {
    let host = tokio::runtime::Runtime::new().unwrap();
    let (set, pools) = (ReplicaSet::start(3).unwrap(), RecordingPools::default());
    let (builder, events) = builder(&set, &pools);
    let topology = start(builder, &host);
    block_on(topology.select(&Criteria::write())).unwrap();
    pools.break_at("close");
    assert_pool_panics(|| block_on(topology.close()));
    assert_eq!(pools.count("close"), 3);
    let closed = |event: &&Event| event.kind.name() == EventName::ServerClosed;
    assert_eq!(all(events).iter().filter(closed).count(), 3);
}

#[test]
fn a_panic_during_the_start_closes_every_created_pool() {
    let host = tokio::runtime::Runtime::new().unwrap();
    let (set, pools) = (ReplicaSet::start(3).unwrap(), RecordingPools::default());
    let (builder, events) = builder(&set, &pools);
    pools.break_at("create");
    assert_pool_panics(|| start(builder, &host));
    // A monitor may have created the missing pool before the topology was closed.
    let (created, closed) = (pools.count("create"), pools.count("close"));
    assert!(created >= 3, "{created}");
    assert_eq!(closed, created - 1, "every created pool");
    all(events);
}

#[test]
fn a_pool_whose_creation_panicked_is_created_before_its_server_is_selected() {
    let host = tokio::runtime::Runtime::new().unwrap();
    let (set, pools) = (ReplicaSet::start(3).unwrap(), RecordingPools::default());
    pools.break_after(1, "create");
    let seed = set.uri().split(',').next().unwrap();
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    let topology = Topology::builder(&format!("{seed}/?replicaSet=rs0"))
        .unwrap()
        .pools(pools.clone())
        .start(runtime)
        .unwrap();
    let known = topology.wait_for(
        |snapshot| {
            let mut servers = snapshot.description().servers().iter();
            (servers.len() == 3 && servers.all(|server| server.server_type.is_data_bearing()))
                .then_some(())
        },
        PATIENCE,
    );
    assert!(block_on(known).is_some(), "{:?}", topology.snapshot());
    let primary = block_on(topology.select(&Criteria::write())).unwrap();
    assert!(pools.generations().contains_key(&primary.id()));
    assert_eq!(pools.count("create"), 4, "one creation failed");
    block_on(topology.close());
    assert_eq!(pools.count("close"), 3);
}
