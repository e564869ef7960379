//! The engine of one topology: passes inputs to the state machine and carries out its outputs.
//!
//! The engine has no lock of its own: topologies with and without background tasks keep it in
//! [`Shared`](crate::topology::shared::Shared), which locks it.

pub(crate) mod server;
pub(crate) mod snapshot;

use std::{
    any::Any,
    collections::BTreeMap,
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Weak},
};

use sdam_core::{
    address::ServerAddress,
    deployment::{ConnId, Deployment, Input, Output, Outputs, Timer},
    error::ErrorOutcome,
    event::{EventKind, EventName, EventPublisher},
    ids::ServerId,
    options::{ConfigError, Options},
    pool::PoolClear,
    report::ErrorReport,
    server::ServerDescription,
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::queue::EventQueue;
use sdam_transport::{
    pool::{Authenticator, PoolContext, PoolFactory, PoolHandle, PoolHost, Reporter},
    spawn::Task,
};
use smallvec::SmallVec;

use self::{
    server::{Action, Order, Server},
    snapshot::{Published, Snapshot},
};
use crate::common::Common;

/// The mutable state of a topology: the state machine, the servers and their pools.
#[derive(Debug)]
pub(crate) struct Engine {
    deployment: Deployment,
    servers: BTreeMap<ServerId, Arc<Server>>,
    pools: Arc<dyn CreatePool>,
    /// The topology to which pools report.
    host: Weak<dyn PoolHost>,
    common: Arc<Common>,
    events: Arc<EventQueue>,
    version: u64,
}

/// The work that has to be done after the engine is unlocked.
#[derive(Debug, Default)]
#[must_use = "readers are notified and panics re-raised once the engine is unlocked"]
pub(crate) struct AfterUnlock {
    /// The snapshots that were replaced, to be freed after unlocking.
    pub(crate) replaced: SmallVec<[Arc<Snapshot>; 1]>,
    /// New servers that need a task.
    pub(crate) opened: SmallVec<[Arc<Server>; 1]>,
    /// The servers whose tasks have to be woken.
    pub(crate) woken: SmallVec<[Arc<Server>; 2]>,
    /// The background tasks of new pools.
    pub(crate) tasks: Vec<Task>,
    /// An output that the caller of [`handle`](Engine::handle) has to carry out.
    pub(crate) asked: Option<Output>,
    pub(crate) panic: DeferredPanic,
}

impl Engine {
    pub(crate) fn new(
        deployment: Deployment,
        pools: Arc<dyn CreatePool>,
        host: Weak<dyn PoolHost>,
        events: Arc<EventQueue>,
        common: Arc<Common>,
    ) -> Self {
        Self { deployment, servers: BTreeMap::new(), pools, host, common, events, version: 0 }
    }

    /// Returns the initial snapshot, which contains no servers.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            version: 0,
            description: Arc::clone(self.deployment.description()),
            servers: Arc::default(),
            closed: false,
        }
    }

    pub(crate) fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// Passes an input to the deployment and carries out its outputs. All outputs are carried out,
    /// even if a pool panics.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        input: Input,
        published: &Published,
    ) -> AfterUnlock {
        let subject = subject(&input);
        let outputs = self.deployment.handle(now, input);
        let failed = failed_check(&outputs);
        let after = self.run(now, outputs, published);
        if let Some(server) = failed {
            self.note_failure(now, server);
        }
        if let Some(server) = subject {
            self.note_silence(server);
        }
        after
    }

    /// Passes to the deployment an error that an operation or a pool has reported, and carries out
    /// the outputs.
    pub(crate) fn handle_error(
        &mut self,
        now: Instant,
        server: ServerId,
        error: &ErrorReport,
        published: &Published,
    ) -> (ErrorOutcome, AfterUnlock) {
        let (outcome, outputs) = self.deployment.handle_error(now, server, error);
        let after = self.run(now, outputs, published);
        self.note_silence(server);
        (outcome, after)
    }

    /// Carries out outputs in order.
    fn run(&mut self, now: Instant, outputs: Outputs, published: &Published) -> AfterUnlock {
        let mut after = AfterUnlock::default();
        let moves =
            |output| matches!(output, &Output::OpenServer { .. } | &Output::CloseServer { .. });
        let relisted = outputs.iter().any(moves);
        for output in outputs {
            match output {
                Output::Connect { conn, deadline } => {
                    self.order(conn, Action::Connect { deadline }, &mut after);
                }
                Output::Send { conn, request, deadline } => {
                    self.order(conn, Action::Send { request, deadline }, &mut after);
                }
                Output::Read { conn, deadline } => {
                    self.order(conn, Action::Read { deadline }, &mut after);
                }
                Output::Disconnect { conn } => self.order(conn, Action::Disconnect, &mut after),
                Output::Wake { server } => {
                    if let Some(server) = self.servers.get(&server) {
                        server.orders.look();
                        after.wake(server);
                    }
                }
                Output::OpenServer { server, address, monitored } => {
                    let server = self.open(server, address, &mut after);
                    after.opened.extend(monitored.then_some(server));
                }
                Output::CloseServer { server } => self.close(server, &mut after),
                Output::PoolReady { server } => self.ready(now, server, &mut after),
                Output::PoolClear { server, clear } => {
                    self.clear(now, server, &clear, &mut after.panic);
                }
                Output::Publish(description) => {
                    let next = self.next_snapshot(description, relisted, published);
                    after.replaced.push(published.swap(next));
                }
                Output::Emit(event) => self.emit(now, event, published),
                Output::LookUp { .. }
                | Output::Choose
                | Output::Probe { .. }
                | Output::Finish(_) => after.asked = Some(output),
            }
        }
        after
    }

    fn order(&self, conn: ConnId, action: Action, after: &mut AfterUnlock) {
        if let Some(server) = self.servers.get(&conn.server) {
            server.orders.push(Order { conn, action });
            after.wake(server);
        }
    }

    /// Updates the time of a server's last error if its check has just failed. A repeated error
    /// does not change the description, so no event would report it.
    fn note_failure(&self, now: Instant, server: ServerId) {
        self.with(server, |server| {
            let mut failures = server.failures();
            if failures.first.is_some()
                && let Some(own) = self.deployment.description().server_by_id(server.id())
                && own.error.is_some()
                && own.last_update_time == Some(now)
                && let Some(last) = &mut failures.last
            {
                last.at = now;
            }
        });
    }

    /// Updates the evidence that a server no longer answers.
    fn note_silence(&self, server: ServerId) {
        if let Some(silence) = self.deployment.silence(server) {
            self.with(server, |server| server.set_silence(silence));
        }
    }

    fn with(&self, server: ServerId, act: impl FnOnce(&Server)) {
        if let Some(server) = self.servers.get(&server) {
            act(server);
        }
    }

    fn close(&mut self, server: ServerId, after: &mut AfterUnlock) {
        if let Some(server) = self.servers.remove(&server) {
            if let Some(pool) = server.core.pool() {
                after.panic.catch(|| pool.close());
            }
            server.orders.end();
            after.wake(&server);
        }
    }

    fn open(
        &mut self,
        id: ServerId,
        address: ServerAddress,
        after: &mut AfterUnlock,
    ) -> Arc<Server> {
        let server = Arc::new(Server::new(id, address));
        // The server is checked even if the pool factory panics.
        after.panic.catch(|| self.pool(&server, &mut after.tasks));
        self.servers.insert(id, Arc::clone(&server));
        server
    }

    /// Returns the pool of `server`. If there is none, creates it and adds its task to `tasks`.
    fn pool<'s>(&self, server: &'s Server, tasks: &mut Vec<Task>) -> &'s dyn PoolHandle {
        server.pool_or_create(|| {
            let (id, backend) = (server.id(), self.common.backend.clone());
            let mut context = PoolContext::new(id, server.core.address.clone(), backend);
            context.generation = server.generation();
            context.reporter = Reporter::new(id, Weak::clone(&self.host));
            context.options = Arc::clone(&self.common.options);
            context.authenticator.clone_from(&self.common.authenticator);
            context.events = Arc::clone(&self.events) as Arc<dyn EventPublisher>;
            (context.seed, _) = self.common.random();
            context.spawner.clone_from(&self.common.spawner);
            if let Some(detector) = self.deployment.detector() {
                context.reporter = context.reporter.with_detector(detector, server.asked());
            }
            let pool = self.pools.create_pool(context);
            if self.common.spawner.is_some() {
                tasks.extend(pool.background());
            }
            pool
        })
    }

    fn ready(&self, now: Instant, id: ServerId, after: &mut AfterUnlock) {
        let Some(server) = self.servers.get(&id) else {
            return;
        };
        server.begin_pool();
        let pool = after.panic.catch(|| self.pool(server, &mut after.tasks));
        // CMAP: "PoolReady" comes before the events of the connections that the pool then opens.
        self.events.push_with(now, EventName::PoolReady, || {
            let address = server.core.address.clone();
            EventKind::PoolReady { server: id, address }
        });
        if let Some(pool) = pool {
            after.panic.catch(|| pool.ready());
        }
    }

    /// Prepares the pools of the servers whose first check is not finished, once. A displaced primary
    /// is unchecked, too, but its pool has been ready.
    pub(crate) fn prepare(&mut self) -> AfterUnlock {
        let mut after = AfterUnlock::default();
        let servers = self.deployment.description().servers().iter();
        for server in servers.filter(|server| is_unchecked(server)) {
            let own = self.servers.get(&server.id);
            if let Some((own, pool)) = own.and_then(|own| Some((own, own.core.pool()?)))
                && own.begin_pool()
            {
                after.panic.catch(|| pool.prepare());
            }
        }
        after
    }

    fn clear(&self, now: Instant, id: ServerId, clear: &PoolClear, panic: &mut DeferredPanic) {
        let Some(server) = self.servers.get(&id) else {
            return;
        };
        if clear.service_id.is_none() {
            server.set_generation(clear.generation);
        }
        // F-66: `PoolCleared` precedes the events of the connections that are closed when the pool
        // is cleared. F-63: there is none for a paused pool.
        if !clear.was_paused {
            self.events.push_with(now, EventName::PoolCleared, || {
                let address = server.core.address.clone();
                EventKind::PoolCleared { server: id, address, clear: clear.clone() }
            });
        }
        if let Some(pool) = server.core.pool() {
            panic.catch(|| pool.clear(clear));
        }
    }

    /// Publishes an event. If the event reports a new description of a server, also records the
    /// error in that description.
    fn emit(&self, now: Instant, event: EventKind, published: &Published) {
        match &event {
            EventKind::ServerDescriptionChanged { new, .. } => {
                self.with(new.id, |server| server.failures().observe(new, now));
            }
            EventKind::ServerSuspected { server, .. }
            | EventKind::ServerSuspicionEnded { server, .. } => self.note_silence(*server),
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
        relisted: bool,
        published: &Published,
    ) -> Arc<Snapshot> {
        self.version += 1;
        let servers = if relisted {
            let servers = description.servers().iter();
            servers.filter_map(|server| self.servers.get(&server.id).cloned()).collect()
        } else {
            Arc::clone(&published.load().servers)
        };
        let closed = self.deployment.is_closed();
        Arc::new(Snapshot { version: self.version, description, servers, closed })
    }
}

/// A [`PoolFactory`] for pools of any type.
pub(crate) trait CreatePool: Send + Sync + Debug {
    fn create_pool(&self, context: PoolContext) -> Box<dyn PoolHandle>;
    fn check(
        &self,
        options: &Options,
        authenticator: Option<&dyn Authenticator>,
    ) -> Result<(), ConfigError>;
}

impl<F: PoolFactory> CreatePool for F {
    fn create_pool(&self, context: PoolContext) -> Box<dyn PoolHandle> {
        Box::new(self.create(context))
    }

    fn check(
        &self,
        options: &Options,
        authenticator: Option<&dyn Authenticator>,
    ) -> Result<(), ConfigError> {
        PoolFactory::check(self, options, authenticator)
    }
}

/// The first panic of a pool, which is re-raised in the calling thread.
///
/// The remaining effects must still run after a pool panics, because the machine never requests an
/// effect a second time.
#[derive(Default)]
pub(crate) struct DeferredPanic(Option<Box<dyn Any + Send>>);

impl DeferredPanic {
    /// Calls a pool; returns `None` if it panicked.
    ///
    /// Unwind safety: after a panic, the pool's state is used only by the pool itself.
    pub(crate) fn catch<T>(&mut self, call: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(call)).map_err(|panic| self.0.get_or_insert(panic)).ok()
    }

    /// Takes over the panic of `other`, unless this value already holds one.
    pub(crate) fn merge(&mut self, other: Self) {
        self.0 = self.0.take().or(other.0);
    }

    /// Re-raises the panic, unless the thread is already panicking: a second panic would abort the
    /// process.
    pub(crate) fn resume(self) {
        if let Some(panic) = self.0
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

sdam_core::opaque!(DeferredPanic);

/// Returns the server whose check has failed according to `outputs`.
fn failed_check(outputs: &Outputs) -> Option<ServerId> {
    outputs.iter().find_map(|output| match output {
        Output::Emit(EventKind::ServerHeartbeatFailed { heartbeat, .. }) => Some(heartbeat.server),
        _ => None,
    })
}

/// Returns the server whose evidence of silence `input` may change.
fn subject(input: &Input) -> Option<ServerId> {
    match input {
        Input::Connected { conn } | Input::Reply { conn, .. } | Input::Failed { conn, .. } => {
            Some(conn.server)
        }
        Input::Due { timer: Timer::Server(server), .. }
        | Input::Handshake { server, .. }
        | Input::Answered { server }
        | Input::Error { server, .. } => Some(*server),
        _ => None,
    }
}

/// Returns whether the first check of a server is not finished.
pub(crate) fn is_unchecked(server: &ServerDescription) -> bool {
    server.last_update_time.is_none()
}

impl AfterUnlock {
    fn wake(&mut self, server: &Arc<Server>) {
        if !self.woken.iter().any(|other| Arc::ptr_eq(other, server)) {
            self.woken.push(Arc::clone(server));
        }
    }
}
