//! The topology of a pool under test, controlled by the test.

use std::sync::{Arc, Mutex, MutexGuard};

use sdam_core::{
    error::{Error, ErrorKind, ErrorOutcome, Stage},
    event::{Event, EventKind, EventName, Publish},
    hello::{Handshake, Hello, HelloRequest},
    ids::{Generation, ObjectId, ServerId},
    machine::{Effect, Effects, Input, TopologyMachine},
    options::Options,
    report::ErrorReport,
    server::Rtt,
    time::Instant,
};
use sdam_events::{channel::ChannelSink, sink::EventSink};
use sdam_pool::{Pool, Pools};
use sdam_transport::{
    pool::{PoolContext, PoolFactory, PoolHandle, PoolHost, ServiceConnection},
    runtime::Runtime,
};

use crate::running::{client_metadata, deployment, lock};

/// The wire version in replies to checks, as in release 7.0.
const MAX_WIRE_VERSION: i32 = 21;

/// A topology without monitors: the test determines when a check succeeds or fails.
///
/// It uses the rules of the `TopologyMachine`, so the pool becomes ready, is cleared and is closed
/// as in a running topology, and errors of its connections have the same effects.
pub(super) struct Owner {
    runtime: Runtime,
    hello: HelloRequest,
    events: Arc<Log>,
    state: Mutex<State>,
}

struct State {
    machine: TopologyMachine,
    pool: Option<(ServerId, Pool)>,
}

/// Numbers the events of the pool and of its topology, and sends them to the recorder.
#[derive(Debug)]
pub(super) struct Log {
    sink: ChannelSink,
    published: Mutex<u64>,
}

impl Log {
    pub(super) fn new(sink: ChannelSink) -> Self {
        Self { sink, published: Mutex::default() }
    }
}

impl Publish for Log {
    fn wants(&self, name: EventName) -> bool {
        self.sink.interest().contains(name)
    }

    fn publish(&self, at: Instant, kind: EventKind) {
        if self.wants(kind.name()) {
            // Held until the event is sent, so that events are sent in order of their numbers.
            let mut published = lock(&self.published);
            *published += 1;
            let event = Event::new(*published, at, ObjectId::default(), kind);
            self.sink.emit(&event);
        }
    }
}

impl Owner {
    /// Opens the topology of a server. Its pool is paused.
    pub(super) fn open(
        options: &Options,
        runtime: &Runtime,
        events: Log,
    ) -> Result<Arc<Self>, String> {
        let mut metadata = client_metadata()?;
        if let Some(name) = &options.app_name {
            metadata = metadata.with_application(name).map_err(|error| error.to_string())?;
        }
        let owner = Arc::new(Self {
            runtime: runtime.clone(),
            hello: HelloRequest::handshake(
                Arc::new(Handshake::new(metadata.encode())),
                None,
                options.handshake_opcode,
            ),
            events: Arc::new(events),
            state: Mutex::new(State {
                machine: TopologyMachine::new(options, ObjectId::default()),
                pool: None,
            }),
        });
        let pools = Pools::new(options).map_err(|error| error.to_string())?;
        let task = {
            let mut state = owner.lock();
            for effect in state.machine.handle(owner.now(), Input::Open) {
                if let Effect::OpenServer { server, address, .. } = effect {
                    let host: Arc<dyn PoolHost> = owner.clone();
                    let generation = Generation::FIRST;
                    let backend = runtime.backend.clone();
                    let context = PoolContext::of(
                        Arc::downgrade(&host),
                        server,
                        address,
                        generation,
                        backend,
                    )
                    .with_spawner(Arc::clone(&runtime.spawner))
                    .with_events(owner.events.clone());
                    state.pool = Some((server, pools.create(context)));
                }
            }
            state.pool.as_ref().and_then(|(_, pool)| pool.background())
        };
        if let Some(task) = task {
            runtime.spawner.spawn(task);
        }
        Ok(owner)
    }

    /// Returns the pool.
    pub(super) fn pool(&self) -> Result<Pool, String> {
        let state = self.lock();
        let pool = state.pool.as_ref().map(|(_, pool)| pool.clone());
        pool.ok_or_else(|| "the options name no server".to_owned())
    }

    /// Makes the pool ready, like a successful check.
    pub(super) fn ready(&self) -> Result<(), String> {
        let hello = deployment::standalone_hello(MAX_WIRE_VERSION)?;
        let hello = Hello::parse(&hello).map_err(|error| error.to_string())?;
        self.check(Ok(hello), Some(Rtt::default()))
    }

    /// Clears the pool: by a check that timed out if connections in use are interrupted, otherwise
    /// by a failed operation.
    pub(super) fn clear(&self, interrupts: bool) -> Result<(), String> {
        let text = "the test clears the pool";
        if interrupts {
            let error = Error::new(ErrorKind::Timeout, Stage::Hello, text);
            return self.check(Err(error), None);
        }
        let server = self.server()?;
        let mut state = self.lock();
        let generation = state.machine.generation(server, None);
        let generation = generation.ok_or("the server has left the topology")?;
        let error = ErrorReport::new(generation, Error::network(Stage::Operation, text));
        let (_, effects) = state.machine.handle_error(self.now(), server, &error);
        self.run(&state, effects);
        Ok(())
    }

    /// Closes the pool by closing the topology.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        let effects = state.machine.handle(self.now(), Input::Close);
        self.run(&state, effects);
    }

    fn check(&self, outcome: Result<Hello, Error>, rtt: Option<Rtt>) -> Result<(), String> {
        let server = self.server()?;
        let mut state = self.lock();
        let input = Input::Checked { server, outcome, rtt };
        let effects = state.machine.handle(self.now(), input);
        self.run(&state, effects);
        Ok(())
    }

    /// Performs the effects on the pool, like the engine.
    fn run(&self, state: &State, effects: Effects) {
        let Some((server, pool)) = &state.pool else {
            return;
        };
        let (server, address) = (*server, pool.address().clone());
        for effect in effects {
            match effect {
                Effect::PoolReady { .. } => {
                    let event = EventKind::PoolReady { server, address: address.clone() };
                    self.events.publish(self.now(), event);
                    pool.ready();
                }
                Effect::PoolClear { clear, .. } => {
                    // A paused pool publishes no clear.
                    if !clear.was_paused {
                        let event = EventKind::PoolCleared {
                            server,
                            address: address.clone(),
                            clear: clear.clone(),
                        };
                        self.events.publish(self.now(), event);
                    }
                    pool.clear(&clear);
                }
                Effect::CloseServer { .. } => pool.close(),
                _ => {}
            }
        }
    }

    fn server(&self) -> Result<ServerId, String> {
        let state = self.lock();
        let server = state.pool.as_ref().map(|(server, _)| *server);
        server.ok_or_else(|| "the options name no server".to_owned())
    }

    fn now(&self) -> Instant {
        self.runtime.backend.clock.now()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl PoolHost for Owner {
    fn handle_error(self: Arc<Self>, server: ServerId, error: &ErrorReport) -> ErrorOutcome {
        let mut state = self.lock();
        let (outcome, effects) = state.machine.handle_error(self.now(), server, error);
        self.run(&state, effects);
        outcome
    }

    fn handle_handshake(
        self: Arc<Self>,
        _: ServerId,
        _: Generation,
        _: &[u8],
    ) -> Result<Option<ServiceConnection>, Error> {
        // Only the test makes the pool ready.
        Ok(None)
    }

    fn handle_service_connection_closed(self: Arc<Self>, _: ServiceConnection) {}

    fn generation(&self, server: ServerId, service: Option<ObjectId>) -> Option<Generation> {
        self.lock().machine.generation(server, service)
    }

    fn hello(&self) -> HelloRequest {
        self.hello.clone()
    }
}

sdam_core::opaque!(Owner);
