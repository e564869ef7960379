//! The topology that owns the pool under test. The test supplies the results of checks.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::{
    FutureExt, StreamExt,
    channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded},
    future::pending,
    lock::Mutex,
};
use sdam::{Snapshot, Topology, TopologyBuilder};
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    event::{Event, EventKind, EventName, EventPublisher},
    ids::{Generation, ObjectId, ServerId},
    options::Options,
    report::ErrorReport,
    time::Instant,
};
use sdam_events::{channel::ChannelSink, sink::EventSink};
use sdam_pool::{Pool, Pools};
use sdam_testkit::reply_to;
use sdam_transport::{
    async_trait,
    connect::{Connection, Transport},
    error::from_wire,
    pool::{PoolContext, PoolFactory},
    runtime::{Backend, Runtime},
    spawn::yield_now,
    wire::WireMessage,
};

use super::TIMEOUT;
use crate::running::{client_metadata, standalone_hello};

/// The wire version in the replies to checks, which is that of MongoDB 7.0.
const MAX_WIRE_VERSION: i32 = 21;

/// A topology whose checks wait until the test supplies their results.
pub(super) struct Owner {
    topology: Topology<Pool>,
    outcomes: UnboundedSender<Outcome>,
    server: ServerId,
    pool: Pool,
    late: Late,
}

/// The reply to a check, or the error that ends the check.
type Outcome = Result<Vec<u8>, Error>;

/// The sink for events after the topology is closed, and a flag that is true from then on.
#[derive(Clone, Debug)]
struct Late {
    sink: Arc<ChannelSink>,
    is_closed: Arc<AtomicBool>,
}

/// Publishes the events of a pool through its topology or, once the topology is closed, directly to
/// the sink.
#[derive(Debug)]
struct Events {
    topology: Arc<dyn EventPublisher>,
    late: Late,
}

impl EventPublisher for Events {
    fn wants(&self, name: EventName) -> bool {
        self.late.is_closed.load(Ordering::Relaxed) || self.topology.wants(name)
    }

    fn publish(&self, at: Instant, kind: EventKind) {
        if self.late.is_closed.load(Ordering::Relaxed) {
            self.late.sink.emit(&Event::new(0, at, ObjectId::default(), kind));
        } else {
            self.topology.publish(at, kind);
        }
    }
}

/// Both the transport of the monitors and their connections. Connections open at once, and each
/// check waits for the next outcome.
#[derive(Clone, Debug)]
struct Checked {
    outcomes: Arc<Mutex<UnboundedReceiver<Outcome>>>,
    request: Option<WireMessage>,
}

#[async_trait]
impl Transport for Checked {
    async fn connect(
        &self,
        _: &ServerAddress,
        _: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl Connection for Checked {
    async fn send(&mut self, message: WireMessage) -> Result<(), Error> {
        self.request = Some(message);
        Ok(())
    }

    async fn recv(&mut self) -> Result<WireMessage, Error> {
        let Some(request) = &self.request else {
            return pending().await;
        };
        let Some(outcome) = self.outcomes.lock().await.next().await else {
            return pending().await;
        };
        reply_to(request, &outcome?).map_err(|error| from_wire(Stage::Hello, error))
    }
}

/// Creates the pool under test. Unlike the monitors, the pool uses the runtime's own transport and
/// the `connectTimeoutMS` of the options.
#[derive(Debug)]
struct TestPools {
    options: Arc<Options>,
    backend: Backend,
    late: Late,
}

impl PoolFactory for TestPools {
    type Pool = Pool;

    fn create(&self, mut context: PoolContext) -> Pool {
        context.backend = self.backend.clone();
        context.events = Arc::new(Events { topology: context.events, late: self.late.clone() });
        context.options = Arc::clone(&self.options);
        Pools::new().create(context)
    }
}

impl Owner {
    /// Opens a topology with one server, whose pool is paused.
    pub(super) fn open(
        mut options: Options,
        runtime: &Runtime,
        sink: Arc<ChannelSink>,
    ) -> Result<Self, String> {
        let pool_options = Arc::new(options.clone());
        let backend = runtime.backend.clone();
        let mut runtime = runtime.clone();
        let late = Late { sink: Arc::clone(&sink), is_closed: Arc::default() };
        let (outcomes, upcoming) = unbounded();
        let upcoming = Arc::new(Mutex::new(upcoming));
        runtime.backend.transport = Arc::new(Checked { outcomes: upcoming, request: None });
        options.connect_timeout = None;
        let topology = TopologyBuilder::new(options)
            .metadata(client_metadata()?)
            .pools(TestPools { options: pool_options, backend, late: late.clone() })
            .sink(sink)
            .start(runtime)
            .map_err(|error| error.to_string())?;
        let snapshot = topology.snapshot();
        let state = snapshot.servers().next().ok_or("the options name no server")?;
        let pool = topology.pool(&state).ok_or("the server has no pool")?.clone();
        let server = state.description().id;
        drop(snapshot);
        Ok(Self { topology, outcomes, server, pool, late })
    }

    /// Delivers events, and returns the number of events that are still queued.
    pub(super) fn deliver(&self) -> usize {
        let events = self.topology.events();
        events.deliver_now(&*self.late.sink);
        events.depth()
    }

    pub(super) fn pool(&self) -> Pool {
        self.pool.clone()
    }

    /// Makes the pool ready by a handshake and, if the server is still unknown, by a successful
    /// check.
    pub(super) async fn ready(&self) -> Result<(), String> {
        let hello = standalone_hello(MAX_WIRE_VERSION)?;
        let greeted =
            self.topology.reporter(self.server).handle_handshake(self.generation()?, &*hello);
        greeted.map_err(|error| error.to_string())?;
        let (version, is_known) = {
            let snapshot = self.topology.snapshot();
            let server = snapshot.description().server_by_id(self.server);
            let is_known = server.is_some_and(|server| server.server_type.is_available());
            (snapshot.version(), is_known)
        };
        if is_known {
            return Ok(());
        }
        // Wait for any new snapshot, because the pool may fail at once and make the server unknown
        // again.
        let has_changed = |snapshot: &Snapshot| (snapshot.version() != version).then_some(());
        self.end_check(Ok(hello), has_changed).await
    }

    /// Clears the pool. If connections in use must be interrupted, a check times out; otherwise, an
    /// operation fails.
    pub(super) async fn clear(&self, interrupts: bool) -> Result<(), String> {
        let text = "the test clears the pool";
        let generation = self.generation()?;
        if interrupts {
            let error = Error::timeout(Stage::Hello, text);
            let is_cleared = |_: &Snapshot| (self.generation() != Ok(generation)).then_some(());
            return self.end_check(Err(error), is_cleared).await;
        }
        let error = ErrorReport::new(generation, Error::network(Stage::Operation, text));
        self.topology.reporter(self.server).handle_error(&error);
        Ok(())
    }

    /// Ends the current or next check with `outcome`, and waits until `has_effect` accepts a
    /// snapshot.
    async fn end_check(
        &self,
        outcome: Outcome,
        has_effect: impl FnMut(&Snapshot) -> Option<()>,
    ) -> Result<(), String> {
        self.outcomes.unbounded_send(outcome).map_err(|error| error.to_string())?;
        self.topology.request_check();
        let ended = self.topology.wait_for(has_effect, TIMEOUT).await;
        ended.ok_or_else(|| "the outcome of a check had no effect".to_owned())
    }

    fn generation(&self) -> Result<Generation, String> {
        let generation = self.topology.reporter(self.server).generation(None);
        generation.ok_or_else(|| "the server has left the topology".to_owned())
    }

    /// Closes the pool by closing the topology, without waiting for connections in use. Then waits
    /// until all earlier events are delivered, because later events bypass the topology.
    pub(super) async fn close(&self) {
        let _ = self.topology.close().now_or_never();
        while self.deliver() > 0 {
            yield_now().await;
        }
        self.late.is_closed.store(true, Ordering::Relaxed);
    }
}
