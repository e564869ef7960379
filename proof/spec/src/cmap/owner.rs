//! The topology that owns the pool under test. The test controls it.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use sdam::{Topology, TopologyBuilder};
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::{Event, EventKind, EventName, Publish},
    ids::{ObjectId, ServerId},
    options::Options,
    pool::PoolClear,
    report::ErrorReport,
    time::Instant,
};
use sdam_events::{channel::ChannelSink, sink::EventSink};
use sdam_pool::{Pool, Pools};
use sdam_testkit::{ManualClock, Server, Servers};
use sdam_transport::{
    pool::{PoolContext, PoolFactory, PoolHandle},
    runtime::{Backend, Runtime},
    spawn::Task,
};

use crate::running::{client_metadata, deployment};

/// The wire version in the replies to checks, which is that of MongoDB 7.0.
const MAX_WIRE_VERSION: i32 = 21;

/// A topology whose checks never end by themselves. The test decides when a check succeeds or
/// fails.
pub(super) struct Owner {
    topology: Topology<TestPool>,
    server: ServerId,
    pool: Pool,
}

/// Receives the events of a pool, including the events after the topology was closed.
#[derive(Debug)]
struct Log(ChannelSink);

impl Publish for Log {
    fn wants(&self, _: EventName) -> bool {
        true
    }

    fn publish(&self, at: Instant, kind: EventKind) {
        self.0.emit(&Event::new(0, at, ObjectId::default(), kind));
    }
}

/// Creates the pool under test. Unlike the monitors, the pool connects with the runtime's own
/// transport.
#[derive(Debug)]
struct TestPools {
    pools: Pools,
    backend: Backend,
    log: Arc<Log>,
}

impl PoolFactory for TestPools {
    type Pool = TestPool;

    fn create(&self, mut context: PoolContext) -> TestPool {
        context.backend = self.backend.clone();
        context.events = Arc::clone(&self.log) as _;
        TestPool { pool: self.pools.create(context.clone()), context }
    }
}

/// A pool that publishes the events that its topology would publish.
#[derive(Debug)]
struct TestPool {
    pool: Pool,
    context: PoolContext,
}

impl TestPool {
    fn publish(&self, kind: EventKind) {
        self.context.events.publish(self.context.backend.clock.now(), kind);
    }
}

impl PoolHandle for TestPool {
    fn ready(&self) {
        let PoolContext { server, address, .. } = self.context.clone();
        self.publish(EventKind::PoolReady { server, address });
        self.pool.ready();
    }

    fn clear(&self, clear: &PoolClear) {
        // No event is published if the cleared pool is already paused.
        if !clear.was_paused {
            let PoolContext { server, address, .. } = self.context.clone();
            self.publish(EventKind::PoolCleared { server, address, clear: clear.clone() });
        }
        self.pool.clear(clear);
    }

    fn close(&self) {
        self.pool.close();
    }

    fn background(&self) -> Option<Task> {
        self.pool.background()
    }
}

impl Owner {
    /// Opens a topology with one server, whose pool is paused.
    pub(super) fn open(
        options: Options,
        runtime: &Runtime,
        sink: ChannelSink,
    ) -> Result<Self, String> {
        let pools = Pools::new(&options).map_err(|error| error.to_string())?;
        let backend = runtime.backend.clone();
        let mut runtime = runtime.clone();
        // Monitors never connect.
        let unreachable = Servers::new(ManualClock::default(), Server::silent());
        runtime.backend.transport = Arc::new(unreachable.holding_connections());
        let topology = TopologyBuilder::new(options.with_connect_timeout(None))
            .metadata(client_metadata()?)
            .pools(TestPools { pools, backend, log: Arc::new(Log(sink)) })
            .start(runtime)
            .map_err(|error| error.to_string())?;
        let servers = topology.servers();
        let server = servers.first().ok_or("the options name no server")?;
        let pool = server.pool().ok_or("the server has no pool")?.pool.clone();
        Ok(Self { server: server.id(), pool, topology })
    }

    pub(super) fn pool(&self) -> Pool {
        self.pool.clone()
    }

    /// Makes the pool ready, as a successful check does.
    pub(super) fn ready(&self) -> Result<(), String> {
        self.check(Ok(&deployment::standalone_hello(MAX_WIRE_VERSION)?));
        Ok(())
    }

    /// Clears the pool. If connections in use must be interrupted, a check times out; otherwise, an
    /// operation fails.
    pub(super) fn clear(&self, interrupts: bool) -> Result<(), String> {
        let text = "the test clears the pool";
        if interrupts {
            self.check(Err(Error::new(ErrorKind::Timeout, Stage::Hello, text)));
            return Ok(());
        }
        let generation = self.topology.generation(self.server, None);
        let generation = generation.ok_or("the server has left the topology")?;
        let error = ErrorReport::new(generation, Error::network(Stage::Operation, text));
        self.topology.handle_error(self.server, &error);
        Ok(())
    }

    /// Closes the pool by closing the topology, without waiting for connections in use.
    pub(super) fn close(&self) {
        let _ = self.topology.close().now_or_never();
    }

    fn check(&self, outcome: Result<&[u8], Error>) {
        sdam::testing::play_check(&self.topology, self.server, outcome, Duration::ZERO);
    }
}
