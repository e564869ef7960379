//! Pools that panic or publish events while the topology calls them: the panic reaches the caller,
//! and the remaining effects still run.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bson::doc;
use sdam::{
    ConnectionClosedReason, ConnectionId, Criteria, ErrorReport, EventKind, EventName, Generation,
    Interest, PoolClear, PoolContext, PoolFactory, PoolHandle, PoolOptions, ServerType, Stage,
    discovery::reply,
};
use sdam_core::options::MIN_HEARTBEAT_FREQUENCY;
use sdam_events::channel::{EventStream, unbounded};
use sdam_testkit::RecordingPools;

use super::harness::{Harness, hosts};
use crate::drain;

/// Asserts that `call` panics with the pool's panic.
fn assert_pool_panics<T>(call: impl FnOnce() -> T) {
    let panic = catch_unwind(AssertUnwindSafe(call)).err().unwrap();
    assert_eq!(panic.downcast_ref(), Some(&RecordingPools::PANIC));
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
    assert_pool_panics(|| topology.handle_error(primary.id(), &shutdown()));
    let role = || topology.server(&hosts[0]).unwrap().description().server_type;
    assert_eq!(role(), ServerType::Unknown);
    // I-35: the check that the error requests comes after the clear, and no selection is waiting.
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
fn a_pool_whose_creation_panicked_is_created_before_its_server_is_selected() {
    let (hosts, pools) = (hosts(3), RecordingPools::default());
    let mut harness = Harness::with_replica_set(&hosts);
    pools.break_after(1, "create");
    let topology = harness.start(&hosts[..1], |builder| {
        let builder = builder.options(|options| options.replica_set = Some("rs".into()));
        builder.pools(pools.clone())
    });
    assert_eq!(topology.servers().len(), 3);
    let primary = topology.try_select(&Criteria::write()).unwrap().unwrap();
    assert!(pools.generations().contains_key(&primary.id()));
    assert_eq!(pools.count("create"), 4, "one creation failed");
}

const CONNECTION: ConnectionId = ConnectionId { driver: 1, server: None };

/// Pools that publish an event whenever the topology calls them.
#[derive(Debug)]
struct TalkingPools;

#[derive(Debug)]
struct TalkingPool(PoolContext);

impl PoolFactory for TalkingPools {
    type Pool = TalkingPool;

    fn create(&self, new: PoolContext) -> TalkingPool {
        let (server, address) = (new.server, new.address.clone());
        let pool = TalkingPool(new);
        pool.publish(EventKind::PoolCreated {
            server,
            address,
            options: Arc::new(PoolOptions::default()),
        });
        pool
    }
}

impl TalkingPool {
    fn publish(&self, kind: EventKind) {
        assert!(self.0.events.wants(kind.name()), "{kind:?}");
        self.0.events.publish(self.0.backend.clock.now(), kind);
    }

    fn close_connection(&self, reason: ConnectionClosedReason) {
        self.publish(EventKind::ConnectionClosed {
            server: self.0.server,
            address: self.0.address.clone(),
            connection: CONNECTION,
            reason,
            error: None,
        });
    }
}

impl PoolHandle for TalkingPool {
    fn ready(&self) {
        self.publish(EventKind::ConnectionCreated {
            server: self.0.server,
            address: self.0.address.clone(),
            connection: CONNECTION,
        });
    }

    fn clear(&self, _: &PoolClear) {
        self.close_connection(ConnectionClosedReason::Stale);
    }

    fn close(&self) {
        self.close_connection(ConnectionClosedReason::PoolClosed);
        self.publish(EventKind::PoolClosed {
            server: self.0.server,
            address: self.0.address.clone(),
        });
    }
}

#[test]
fn what_a_pool_publishes_within_a_call_follows_the_event_of_the_call() {
    // The events of a clear come before those of the connections that it closes (F-66).
    use EventName::{
        ConnectionClosed, ConnectionCreated, PoolCleared, PoolClosed, PoolCreated, PoolReady,
    };
    let hosts = hosts(1);
    let mut harness = Harness::with_replica_set(&hosts);
    let (sink, mut events) = unbounded();
    let sink = sink.interested_in(Interest::POOLS);
    let topology = harness.start(&hosts, |builder| builder.pools(TalkingPools).sink(sink));
    let primary = topology.try_select(&Criteria::write()).unwrap().unwrap();
    topology.handle_error(primary.id(), &shutdown());
    drop(primary);
    harness.pass(MIN_HEARTBEAT_FREQUENCY);
    drop(topology);
    harness.settle();
    assert_eq!(
        names(&mut events),
        [
            PoolCreated,
            PoolReady,
            ConnectionCreated,
            PoolCleared,
            ConnectionClosed,
            PoolReady,
            ConnectionCreated,
            ConnectionClosed,
            PoolClosed,
        ]
    );
}
