//! The engine of one topology: applies inputs to the state machine and carries out its effects.
//!
//! It has one owner and no lock of its own. Both kinds of topology hold it in
//! [`Shared`](crate::topology::shared::Shared).

pub(crate) mod control;
pub(crate) mod failures;
pub(crate) mod panic;
pub(crate) mod pending;
pub(crate) mod pools;
pub(crate) mod server;
pub(crate) mod snapshot;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use sdam_core::{
    address::ServerAddress,
    app_error::{AppError, ErrorOutcome},
    event::{EventKind, EventName},
    ids::{Generation, ObjectId, ServerId},
    machine::{Effect, Effects, Input, RecordedInput, TopologyMachine},
    options::Options,
    pool::PoolClear,
    server::Rtt,
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::queue::EventQueue;
use sdam_transport::{
    pool::{NewPool, PoolHandle, PoolHost},
    runtime::Io,
    spawn::{Spawner, Task},
};
use smallvec::SmallVec;

use self::{
    failures::Failures,
    panic::DeferredPanic,
    pools::CreatePool,
    server::Server,
    snapshot::{Published, Snapshot},
};

/// The state of a topology that changes under its lock: the machine, the servers and their pools.
#[derive(Debug)]
pub(crate) struct Engine {
    machine: TopologyMachine,
    servers: BTreeMap<ServerId, Arc<Server>>,
    pools: Arc<dyn CreatePool>,
    /// The topology that pools report to.
    host: Weak<dyn PoolHost>,
    io: Io,
    spawner: Option<Arc<dyn Spawner>>,
    events: Arc<EventQueue>,
    version: u64,
}

/// The work that remains once the engine is unlocked.
#[derive(Debug, Default)]
#[must_use = "readers are notified and panics re-raised once the engine is unlocked"]
pub(crate) struct AfterUnlock {
    /// True if a new snapshot was published.
    pub(crate) published: bool,
    /// New servers that need a monitor.
    pub(crate) opened: SmallVec<[Arc<Server>; 1]>,
    /// The background tasks of new pools.
    pub(crate) tasks: Vec<Task>,
    pub(crate) panic: DeferredPanic,
}

impl Engine {
    pub(crate) fn new(
        options: &Options,
        pools: Arc<dyn CreatePool>,
        host: Weak<dyn PoolHost>,
        events: Arc<EventQueue>,
        (io, spawner): (Io, Option<Arc<dyn Spawner>>),
    ) -> Self {
        Self {
            machine: TopologyMachine::new(options, events.topology()),
            servers: BTreeMap::new(),
            pools,
            host,
            io,
            spawner,
            events,
            version: 0,
        }
    }

    /// Returns the first snapshot, without servers.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            version: 0,
            description: Arc::clone(self.machine.description()),
            servers: Arc::default(),
            closed: false,
        }
    }

    /// Returns the current description.
    pub(crate) fn description(&self) -> &Arc<TopologyDescription> {
        self.machine.description()
    }

    /// Returns the generation of new connections, see [`TopologyMachine::generation`].
    pub(crate) fn generation(
        &self,
        server: ServerId,
        service: Option<ObjectId>,
    ) -> Option<Generation> {
        self.machine.generation(server, service)
    }

    /// Returns the round-trip times of a server's checks.
    pub(crate) fn rtt(&self, server: ServerId) -> Option<Rtt> {
        self.servers.get(&server)?.rtt().rtt()
    }

    /// Applies an input and carries out its effects. On return all have run, even after a panic of
    /// a pool. `record` returns what a recording keeps of the input.
    pub(crate) fn apply(
        &mut self,
        now: Instant,
        input: Input<'_>,
        record: impl FnOnce(&Input<'_>) -> Option<RecordedInput>,
        published: &Published,
    ) -> AfterUnlock {
        if self.events.wants(EventName::Input)
            && let Some(recorded) = record(&input)
        {
            self.events.push(now, EventKind::Input(Arc::new(recorded)));
        }
        let failed = Failures::failed_check(&input);
        let effects = self.machine.handle(now, input);
        let after = self.run(now, effects, published);
        if let Some(server) = failed.and_then(|server| self.servers.get(&server)) {
            server.failures().repeat(now);
        }
        after
    }

    /// Applies an application error that an operation or a pool reports.
    pub(crate) fn apply_error(
        &mut self,
        now: Instant,
        server: ServerId,
        error: &AppError<'_>,
        published: &Published,
    ) -> (ErrorOutcome, AfterUnlock) {
        self.events.push_with(now, EventName::Input, || {
            EventKind::Input(Arc::new(RecordedInput::of_error(server, error)))
        });
        let (outcome, effects) = self.machine.handle_error(now, server, error);
        (outcome, self.run(now, effects, published))
    }

    /// Carries out effects in order.
    fn run(&mut self, now: Instant, effects: Effects, published: &Published) -> AfterUnlock {
        let mut after = AfterUnlock::default();
        let moved = effects.iter().any(|effect| {
            matches!(
                effect,
                Effect::OpenServer { .. } | Effect::CloseServer { .. }
            )
        });
        for effect in effects {
            match effect {
                Effect::OpenServer {
                    server,
                    address,
                    monitored,
                } => {
                    let server = self.open(server, address, &mut after);
                    if monitored {
                        after.opened.push(server);
                    }
                }
                Effect::Publish(description) => {
                    published.store(self.next_snapshot(description, moved, published));
                    after.published = true;
                }
                Effect::Emit(event) => self.emit(now, event, published),
                Effect::CloseServer { server } => {
                    if let Some(server) = self.servers.remove(&server) {
                        if let Some(pool) = server.core.pool() {
                            after.panic.catch(|| pool.close());
                        }
                        server.stop();
                    }
                }
                Effect::PoolReady { server } => self.ready(now, server, &mut after),
                Effect::PoolClear { server, clear } => {
                    self.clear(now, server, &clear, &mut after.panic);
                }
                Effect::ServerKnown { server, known } => {
                    self.with(server, |server| server.set_known(known));
                }
                Effect::ResetRtt { server } => self.with(server, |server| server.rtt().reset()),
                Effect::CancelCheck { server, generation } => {
                    self.with(server, |server| server.control.cancel(generation));
                }
                Effect::RequestCheck { server } => {
                    self.with(server, |server| server.control.check());
                }
            }
        }
        after
    }

    fn with(&self, server: ServerId, act: impl FnOnce(&Server)) {
        if let Some(server) = self.servers.get(&server) {
            act(server);
        }
    }

    fn open(
        &mut self,
        id: ServerId,
        address: ServerAddress,
        after: &mut AfterUnlock,
    ) -> Arc<Server> {
        let server = Arc::new(Server::new(id, address));
        // If the pool factory panics, the server is still monitored.
        after.panic.catch(|| self.pool(&server, &mut after.tasks));
        self.servers.insert(id, Arc::clone(&server));
        server
    }

    /// Returns the pool of `server`; creates it if there is none, and adds its task to `tasks`.
    fn pool<'s>(&self, server: &'s Server, tasks: &mut Vec<Task>) -> &'s dyn PoolHandle {
        server.pool_or_create(|| {
            let new = NewPool::of(
                Weak::clone(&self.host),
                server.id(),
                server.core.address.clone(),
                server.status().generation,
                self.io.clone(),
            );
            let events = Arc::clone(&self.events);
            let new = new.with_events(events).with_spawner(self.spawner.clone());
            let pool = self.pools.create_pool(new);
            if self.spawner.is_some() {
                tasks.extend(pool.background());
            }
            pool
        })
    }

    fn ready(&self, now: Instant, server: ServerId, after: &mut AfterUnlock) {
        let Some(server) = self.servers.get(&server) else {
            return;
        };
        let pool = after.panic.catch(|| self.pool(server, &mut after.tasks));
        // CMAP: "PoolReady" comes before the events of the connections that the pool then opens.
        self.events.push_with(now, EventName::PoolReady, || {
            let address = server.core.address.clone();
            EventKind::PoolReady {
                server: server.id(),
                address,
            }
        });
        if let Some(pool) = pool {
            after.panic.catch(|| pool.ready());
        }
    }

    fn clear(&self, now: Instant, server: ServerId, clear: &PoolClear, panic: &mut DeferredPanic) {
        let Some(server) = self.servers.get(&server) else {
            return;
        };
        if clear.service_id.is_none() {
            server.set_generation(clear.generation);
        }
        // F-66: first the clear, then what follows from it for the pool's connections.
        self.events.push_with(now, EventName::PoolCleared, || {
            let address = server.core.address.clone();
            EventKind::PoolCleared {
                server: server.id(),
                address,
                clear: clear.clone(),
            }
        });
        if let Some(pool) = server.core.pool() {
            panic.catch(|| pool.clear(clear));
        }
    }

    /// Publishes an event, and keeps a server's error from its new description.
    fn emit(&self, now: Instant, event: EventKind, published: &Published) {
        match &event {
            EventKind::ServerDescriptionChanged { new, .. } => {
                self.with(new.id, |server| server.failures().observe(new, now));
            }
            EventKind::TopologyClosed => {
                let description = &published.load().description;
                published.pending.close(&self.events, description, now);
            }
            _ => {}
        }
        self.events.push(now, event);
    }

    /// Creates the snapshot of `description`. Reuses the previous list of servers unless servers
    /// were added or removed.
    fn next_snapshot(
        &mut self,
        description: Arc<TopologyDescription>,
        moved: bool,
        published: &Published,
    ) -> Snapshot {
        self.version += 1;
        let servers = if moved {
            let of = |id| self.servers.get(&id).cloned();
            description
                .servers()
                .iter()
                .filter_map(|server| of(server.id))
                .collect()
        } else {
            Arc::clone(&published.load().servers)
        };
        Snapshot {
            version: self.version,
            description,
            servers,
            closed: self.machine.is_closed(),
        }
    }
}
