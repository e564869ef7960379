//! The order of a topology's events and of the events that a pool publishes while the topology
//! calls it.

use sdam::discovery::reply;
use std::{sync::Arc, time::Duration};

use bson::doc;
use futures::{StreamExt, executor::block_on};
use sdam::{
    ConnectionClosedReason, ConnectionId, Criteria, ErrorReport, EventKind, Generation, Interest,
    NewPool, PoolClear, PoolFactory, PoolHandle, PoolOptions, Stage, Topology,
};
use sdam_core::options::ServerMonitoringMode;
use sdam_events::channel::unbounded;
use sdam_sim::serve::ReplicaSet;

const CONNECTION: ConnectionId = ConnectionId {
    driver: 1,
    server: None,
};

/// Pools that publish an event in each call by the topology.
#[derive(Debug)]
struct TalkingPools;

#[derive(Debug)]
struct TalkingPool(NewPool);

impl PoolFactory for TalkingPools {
    type Pool = TalkingPool;

    fn create(&self, new: NewPool) -> TalkingPool {
        let options = Arc::new(PoolOptions::default());
        let (server, address) = (new.server, new.address.clone());
        let pool = TalkingPool(new);
        pool.publish(EventKind::PoolCreated {
            server,
            address,
            options,
        });
        pool
    }
}

impl TalkingPool {
    fn publish(&self, kind: EventKind) {
        assert!(self.0.events.wants(kind.name()), "{kind:?}");
        self.0.events.publish(self.0.io.clock.now(), kind);
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
    // F-66
    let host = tokio::runtime::Runtime::new().unwrap();
    let set = ReplicaSet::start(1).unwrap();
    let (sink, events) = unbounded();
    let topology = Topology::builder(set.uri())
        .unwrap()
        .options(|options| {
            options.heartbeat_frequency = Some(Duration::from_secs(600));
            options.server_monitoring_mode = ServerMonitoringMode::Poll;
        })
        .pools(TalkingPools)
        .sink(sink.interested_in(Interest::POOLS))
        .start(sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap())
        .unwrap();
    let primary = block_on(topology.select(&Criteria::write())).unwrap();
    let reply = doc! { "ok": 0, "code": 91, "errmsg": "shutting down" };
    let reply = reply.to_vec().unwrap();
    let error = ErrorReport::new(
        Generation::FIRST,
        reply::error(&reply, Stage::Operation).unwrap(),
    );
    topology.handle_error(primary.id(), &error);
    drop(primary);
    block_on(topology.select(&Criteria::write())).unwrap();
    block_on(topology.close());
    let names = events.map(|event| event.kind.name().as_str());
    assert_eq!(
        block_on(names.collect::<Vec<_>>()),
        [
            "PoolCreated",
            "PoolReady",
            "ConnectionCreated",
            "PoolCleared",
            "ConnectionClosed",
            "PoolReady",
            "ConnectionCreated",
            "ConnectionClosed",
            "PoolClosed",
        ]
    );
}
