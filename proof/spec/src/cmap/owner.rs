//! The topology that owns the pool under test. The test controls it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use sdam::{Topology, TopologyBuilder};
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::{Event, EventKind, EventName, Publish},
    ids::{ObjectId, ServerId},
    options::Options,
    report::ErrorReport,
    time::Instant,
};
use sdam_events::{channel::ChannelSink, sink::EventSink};
use sdam_pool::{Pool, Pools};
use sdam_testkit::{ManualClock, Server, Servers};
use sdam_transport::{
    pool::{PoolContext, PoolFactory},
    runtime::{Backend, Runtime},
};

use crate::running::{client_metadata, deployment};

/// The wire version in the replies to checks, which is that of MongoDB 7.0.
const MAX_WIRE_VERSION: i32 = 21;

/// A topology whose checks never end by themselves. The test decides when a check succeeds or
/// fails.
pub(super) struct Owner {
    topology: Topology<Pool>,
    server: ServerId,
    pool: Pool,
    sink: Arc<ChannelSink>,
    is_closed: Arc<AtomicBool>,
}

/// Publishes the events of a pool through its topology and, once that is closed and publishes
/// nothing any more, directly.
#[derive(Debug)]
struct Events {
    topology: Arc<dyn Publish>,
    sink: Arc<ChannelSink>,
    is_closed: Arc<AtomicBool>,
}

impl Publish for Events {
    fn wants(&self, name: EventName) -> bool {
        self.is_closed.load(Ordering::Relaxed) || self.topology.wants(name)
    }

    fn publish(&self, at: Instant, kind: EventKind) {
        if self.is_closed.load(Ordering::Relaxed) {
            self.sink.emit(&Event::new(0, at, ObjectId::default(), kind));
        } else {
            self.topology.publish(at, kind);
        }
    }
}

/// Creates the pool under test. Unlike the monitors, the pool connects with the runtime's own
/// transport.
#[derive(Debug)]
struct TestPools {
    pools: Pools,
    backend: Backend,
    sink: Arc<ChannelSink>,
    is_closed: Arc<AtomicBool>,
}

impl PoolFactory for TestPools {
    type Pool = Pool;

    fn create(&self, mut context: PoolContext) -> Pool {
        context.backend = self.backend.clone();
        let (sink, is_closed) = (Arc::clone(&self.sink), Arc::clone(&self.is_closed));
        context.events = Arc::new(Events { topology: context.events, sink, is_closed });
        self.pools.create(context)
    }
}

impl Owner {
    /// Opens a topology with one server, whose pool is paused.
    pub(super) fn open(
        options: Options,
        runtime: &Runtime,
        sink: Arc<ChannelSink>,
    ) -> Result<Self, String> {
        let pools = Pools::new(&options).map_err(|error| error.to_string())?;
        let backend = runtime.backend.clone();
        let mut runtime = runtime.clone();
        let is_closed = Arc::new(AtomicBool::new(false));
        // Monitors never connect.
        let unreachable = Servers::new(ManualClock::default(), Server::silent());
        runtime.backend.transport = Arc::new(unreachable.holding_connections());
        let topology = TopologyBuilder::new(options.with_connect_timeout(None))
            .metadata(client_metadata()?)
            .pools(TestPools {
                pools,
                backend,
                sink: Arc::clone(&sink),
                is_closed: Arc::clone(&is_closed),
            })
            .sink(Arc::clone(&sink))
            .start(runtime)
            .map_err(|error| error.to_string())?;
        let servers = topology.servers();
        let server = servers.first().ok_or("the options name no server")?;
        let pool = server.pool().ok_or("the server has no pool")?.clone();
        Ok(Self { server: server.id(), pool, topology, sink, is_closed })
    }

    /// Delivers events, and returns the number of those that are left.
    pub(super) fn deliver(&self) -> usize {
        let events = self.topology.events();
        events.deliver_now(&*self.sink);
        events.depth()
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
        self.deliver();
        self.is_closed.store(true, Ordering::Relaxed);
    }

    fn check(&self, outcome: Result<&[u8], Error>) {
        sdam::testing::play_check(&self.topology, self.server, outcome, Duration::ZERO);
    }
}
