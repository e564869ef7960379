//! Carries out the outputs of the deployment, in one `match`: pools become ready, snapshots are
//! published, events are queued, pools are cleared or closed, and servers' tasks get their orders.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Weak},
};

use sdam_core::{
    address::ServerAddress,
    deployment::{Input, Output, Outputs, Timer},
    event::{EventKind, EventName, EventPublisher},
    ids::ServerId,
    pool::PoolClear,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};
use sdam_transport::{
    pool::{PoolContext, PoolHandle, Reporter},
    spawn::Task,
};
use smallvec::SmallVec;

use super::{Engine, Locked, server::Server, snapshot::Snapshot};

/// The work that has to be done after the engine is unlocked.
#[derive(Debug, Default)]
#[must_use = "readers are notified and panics re-raised once the engine is unlocked"]
pub(super) struct AfterUnlock {
    /// The snapshots that were replaced, to be freed after unlocking.
    pub(crate) replaced: SmallVec<[Arc<Snapshot>; 1]>,
    /// New servers that need a task.
    pub(crate) opened: SmallVec<[Arc<Server>; 1]>,
    /// The servers whose tasks have to be woken.
    pub(crate) woken: SmallVec<[Arc<Server>; 2]>,
    /// The background tasks of new pools.
    pub(crate) tasks: Vec<Task>,
    /// An output that the caller of [`ask`](Engine::ask) has to carry out.
    pub(crate) asked: Option<Output>,
    pub(crate) panic: DeferredPanic,
}

impl Engine {
    /// Passes an input to the deployment and carries out its outputs. All outputs are carried out,
    /// even if a pool panics.
    pub(super) fn apply(&self, state: &mut Locked, now: Instant, input: Input) -> AfterUnlock {
        let subject = subject(&input);
        let outputs = state.deployment.handle(now, input);
        let failed = failed_check(&outputs);
        let after = self.carry_out(state, now, outputs);
        if let Some(server) = failed {
            state.note_failure(now, server);
        }
        if let Some(server) = subject {
            state.note_silence(server);
        }
        after
    }

    /// Carries out outputs in order.
    pub(super) fn carry_out(
        &self,
        state: &mut Locked,
        now: Instant,
        outputs: Outputs,
    ) -> AfterUnlock {
        let mut after = AfterUnlock::default();
        let moves =
            |output| matches!(output, &Output::OpenServer { .. } | &Output::CloseServer { .. });
        let relisted = outputs.iter().any(moves);
        for output in outputs {
            match output {
                Output::Connect { conn, .. }
                | Output::Send { conn, .. }
                | Output::Read { conn, .. }
                | Output::Disconnect { conn } => {
                    if let Some(server) = state.servers.get(&conn.server) {
                        server.orders.push(output);
                        after.wake(server);
                    }
                }
                Output::Wake { server } => {
                    if let Some(server) = state.servers.get(&server) {
                        server.orders.look();
                        after.wake(server);
                    }
                }
                Output::OpenServer { server, address, monitored } => {
                    let server = self.open(state, server, address, &mut after);
                    after.opened.extend(monitored.then_some(server));
                }
                Output::CloseServer { server } => state.close(server, &mut after),
                Output::PoolReady { server } => self.ready(state, now, server, &mut after),
                Output::PoolClear { server, clear } => {
                    self.clear(state, now, server, &clear, &mut after.panic);
                }
                Output::Publish(description) => {
                    let next = self.next_snapshot(state, description, relisted);
                    after.replaced.push(self.published.swap(next));
                }
                Output::Emit(event) => self.emit(state, now, event),
                Output::LookUp { .. }
                | Output::Choose
                | Output::Probe { .. }
                | Output::Finish(_) => after.asked = Some(output),
            }
        }
        after
    }

    fn open(
        &self,
        state: &mut Locked,
        id: ServerId,
        address: ServerAddress,
        after: &mut AfterUnlock,
    ) -> Arc<Server> {
        let server = Arc::new(Server::new(id, address));
        // The server is checked even if the pool factory panics.
        after.panic.catch(|| self.pool(state, &server, &mut after.tasks));
        state.servers.insert(id, Arc::clone(&server));
        server
    }

    /// Returns the pool of `server`. If there is none, creates it and adds its task to `tasks`.
    fn pool<'s>(
        &self,
        state: &Locked,
        server: &'s Server,
        tasks: &mut Vec<Task>,
    ) -> &'s dyn PoolHandle {
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
            if let Some(detector) = state.deployment.detector() {
                context.reporter = context.reporter.with_detector(detector, server.asked());
            }
            let pool = self.pools.create_pool(context);
            if self.common.spawner.is_some() {
                tasks.extend(pool.background());
            }
            pool
        })
    }

    fn ready(&self, state: &Locked, now: Instant, id: ServerId, after: &mut AfterUnlock) {
        let Some(server) = state.servers.get(&id) else {
            return;
        };
        server.begin_pool();
        let pool = after.panic.catch(|| self.pool(state, server, &mut after.tasks));
        // CMAP: "PoolReady" comes before the events of the connections that the pool then opens.
        self.events.push_with(now, EventName::PoolReady, || {
            let address = server.core.address.clone();
            EventKind::PoolReady { server: id, address }
        });
        if let Some(pool) = pool {
            after.panic.catch(|| pool.ready());
        }
    }

    fn clear(
        &self,
        state: &Locked,
        now: Instant,
        id: ServerId,
        clear: &PoolClear,
        panic: &mut DeferredPanic,
    ) {
        let Some(server) = state.servers.get(&id) else {
            return;
        };
        if clear.service_id.is_none() {
            server.set_generation(clear.generation);
        }
        // F-66: `PoolCleared` precedes the events of the connections that are closed when the pool
        // is cleared. F-63: clearing a paused pool publishes no event.
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
    fn emit(&self, state: &Locked, now: Instant, event: EventKind) {
        match &event {
            EventKind::ServerDescriptionChanged { new, .. } => {
                state.with(new.id, |server| server.failures().observe(new, now));
            }
            EventKind::ServerSuspected { server, .. }
            | EventKind::ServerSuspicionEnded { server, .. } => state.note_silence(*server),
            EventKind::TopologyClosed => {
                let description = &self.published.load().description;
                self.published.pending.close(&self.events, description, now);
            }
            _ => {}
        }
        self.events.push(now, event);
    }

    /// Creates the snapshot of `description`. Reuses the previous list of servers unless servers
    /// were added or removed.
    fn next_snapshot(
        &self,
        state: &mut Locked,
        description: Arc<TopologyDescription>,
        relisted: bool,
    ) -> Arc<Snapshot> {
        state.version += 1;
        let servers = if relisted {
            let servers = description.servers().iter();
            servers.filter_map(|server| state.servers.get(&server.id).cloned()).collect()
        } else {
            Arc::clone(&self.published.load().servers)
        };
        let closed = state.deployment.is_closed();
        Arc::new(Snapshot { version: state.version, description, servers, closed })
    }
}

impl Locked {
    /// Prepares the pools of the servers whose first check is under way, each pool once. A
    /// displaced primary counts as unchecked, too, but its pool has already been marked ready.
    ///
    /// If an available server is known and selections still wait, they most likely need the
    /// primary. Only the pool of the possible primary is prepared then.
    pub(super) fn prepare(&self) -> AfterUnlock {
        let mut after = AfterUnlock::default();
        let servers = self.deployment.description().servers();
        let is_found = servers.iter().any(|server| server.server_type.is_available());
        let is_candidate = |server: &&Arc<ServerDescription>| {
            is_unchecked(server) && (!is_found || server.server_type == ServerType::PossiblePrimary)
        };
        for server in servers.iter().filter(is_candidate) {
            let own = self.servers.get(&server.id).filter(|own| own.is_under_way());
            if let Some((own, pool)) = own.and_then(|own| Some((own, own.core.pool()?)))
                && own.begin_pool()
            {
                after.panic.catch(|| pool.prepare());
            }
        }
        after
    }

    /// Updates the time of a server's last error if its check has just failed. A repeated error
    /// does not change the description, so no event reports it.
    pub(super) fn note_failure(&self, now: Instant, server: ServerId) {
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
    pub(super) fn note_silence(&self, server: ServerId) {
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
}

/// The first panic of a pool, which is re-raised in the calling thread.
///
/// The remaining effects must still run after a pool panics, because the state machine never
/// requests an effect a second time.
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
        Input::Due { timer: Timer::Server(server), .. }
        | Input::Handshake { server, .. }
        | Input::Answered { server }
        | Input::Error { server, .. } => Some(*server),
        _ => input.conn().map(|conn| conn.server),
    }
}

/// Returns whether the first check of a server has not finished yet.
pub(super) fn is_unchecked(server: &ServerDescription) -> bool {
    server.last_update_time.is_none()
}

impl AfterUnlock {
    fn wake(&mut self, server: &Arc<Server>) {
        if !self.woken.iter().any(|other| Arc::ptr_eq(other, server)) {
            self.woken.push(Arc::clone(server));
        }
    }
}
