//! The state shared by handles, tasks and pools. Writers lock the engine; readers load the
//! published snapshot.

#[cfg(debug_assertions)]
use std::thread;
use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, PoisonError, Weak},
};

use sdam_core::{
    deployment::{Deployment, Input, Output, Timer},
    error::{Error, ErrorOutcome},
    hello::{HelloReply, HelloRequest},
    ids::{Generation, ObjectId, ServerId},
    report::ErrorReport,
    time::Instant,
};
use sdam_events::{history::History, queue::EventQueue, sink::Interest};
use sdam_select::{criteria::Criteria, explain::Explanation, settings::Settings};
use sdam_transport::{
    pool::{PoolHost, ServiceConnection},
    runtime::Backend,
    spawn::{Spawner, Task},
};

use super::{
    builder::Prepared,
    select::Waiters,
    tasks::{ServerTask, Tasks},
};
use crate::{
    common::{Common, Counters},
    engine::{
        AfterUnlock, DeferredPanic, Engine, is_unchecked,
        server::{Action, Server},
        snapshot::Published,
    },
    monitor::MonitorConnection,
    select::{SelectionContext, explain_from},
    srv::Lookup,
    sync::{
        Mutex, MutexGuard,
        atomic::{Ordering, fence},
    },
};

/// The state of a topology, with or without background tasks.
#[derive(Debug)]
pub(crate) struct Shared {
    engine: Lock<Engine>,
    pub(crate) published: Published,
    pub(crate) waiters: Waiters,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) background: Background,
    /// The recent transitions, which selection errors include; `None` unless the history is
    /// enabled.
    pub(crate) history: Option<Arc<History>>,
    pub(crate) common: Arc<Common>,
}

/// The kind of topology, which determines who runs the checks, and where pools' panics are
/// re-raised.
#[derive(Debug)]
pub(crate) enum Background {
    /// Tasks check the servers. A panic is re-raised in the thread that changed the topology,
    /// unless that is a server's task.
    Tasks(TaskSet),
    /// The caller of a single-threaded topology checks the servers. A panic is re-raised at the end
    /// of the call.
    Caller(Mutex<DeferredPanic>),
}

/// The tasks of a topology.
#[derive(Debug, Default)]
pub(crate) struct TaskSet {
    pub(crate) monitors: Tasks,
    pub(crate) pools: Tasks,
    pub(crate) dispatchers: Tasks,
}

impl Background {
    fn tasks(&self) -> Option<&TaskSet> {
        match self {
            Self::Tasks(tasks) => Some(tasks),
            Self::Caller(_) => None,
        }
    }
}

impl Shared {
    /// Creates the state of a topology, which is not open yet.
    pub(crate) fn new(
        mut prepared: Prepared,
        settings: Settings,
        (backend, spawner): (Backend, Option<Arc<dyn Spawner>>),
        background: Background,
    ) -> Arc<Self> {
        let counters = Counters::new(prepared.rng.next_u64());
        let rng = prepared.rng.fork();
        let Prepared { pools, events, history, .. } = prepared;
        let common = Arc::new(Common {
            backend,
            spawner,
            settings,
            options: Arc::new(prepared.options),
            authenticator: prepared.authenticator,
            warnings: prepared.warnings,
            config: Arc::new(prepared.config),
            metadata: prepared.metadata,
            counters,
        });
        let mut deployment = Deployment::new(&common.options, Arc::clone(&common.config), rng);
        if events.wants_any(Interest::INPUTS) {
            deployment = deployment.with_recorded_inputs();
        }
        if let Background::Caller(_) = background {
            deployment = deployment.with_scans(&common.options);
        }
        // Without a resolver, the topology does not poll the SRV record, but a driver may.
        if common.backend.resolver.is_some() {
            deployment = deployment.with_srv_polling(&common.options);
        }
        Arc::new_cyclic(|host: &Weak<Self>| {
            let host = Weak::clone(host) as Weak<dyn PoolHost>;
            let engine =
                Engine::new(deployment, pools, host, Arc::clone(&events), Arc::clone(&common));
            Self {
                published: Published::new(engine.snapshot()),
                engine: Lock::new(engine),
                waiters: Waiters::default(),
                events,
                background,
                history,
                common,
            }
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.common.backend.clock.now()
    }

    pub(crate) fn selection_context(&self) -> SelectionContext<'_> {
        SelectionContext {
            published: &self.published,
            events: &self.events,
            clock: &*self.common.backend.clock,
            settings: &self.common.settings,
        }
    }

    /// Explains for each known server why a selection would choose or reject it.
    pub(crate) fn explain(&self, criteria: &Criteria) -> Explanation {
        // No snapshot guard is held while the application's selectors run.
        let snapshot = self.published.load_full();
        explain_from(&snapshot, &self.common.settings, criteria, self.now())
    }

    /// Passes an input to the deployment. All outputs have been carried out on return, even if a
    /// pool panics.
    pub(crate) fn handle(self: &Arc<Self>, input: Input) {
        self.change(|engine, now| ((), engine.handle(now, input, &self.published)));
    }

    /// Passes an input to the engine, and returns the output that the caller has to carry out.
    pub(crate) fn ask(self: &Arc<Self>, input: Input) -> Option<Output> {
        self.change(|engine, now| {
            let mut after = engine.handle(now, input, &self.published);
            (after.asked.take(), after)
        })
    }

    /// Reads the state of the deployment. Locks the engine.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Deployment) -> T) -> T {
        read(self.engine.lock().deployment())
    }

    /// Closes the topology; tasks end soon after.
    pub(crate) fn shut_down(self: &Arc<Self>) {
        let mut panic = DeferredPanic::default();
        panic.catch(|| self.handle(Input::Close));
        if self.background.tasks().is_some_and(|tasks| tasks.monitors.close()) {
            self.events.monitors_ended();
        }
        panic.resume();
    }

    /// Requests a check of every server.
    pub(crate) fn request_checks(&self) {
        for server in self.published.load().servers.iter() {
            server.orders.check();
            server.orders.wake();
        }
    }

    /// Wakes every server's task to read its deadline again, because waiting selections may have
    /// brought it forward.
    pub(crate) fn announce_waiters(&self) {
        // Pairs with the fence in `Published::announce`: the task of a server that is not in this
        // snapshot yet sees the waiters.
        fence(Ordering::SeqCst);
        for server in self.published.load().servers.iter() {
            server.orders.look();
            server.orders.wake();
        }
    }

    /// Prepares the pools of the servers whose first check is not finished, because a selection is
    /// waiting for that check.
    pub(crate) fn prepare_pools(self: &Arc<Self>) {
        let unchecked =
            self.published.load().description.servers().iter().any(|own| is_unchecked(own));
        if unchecked {
            self.change(|engine, _| ((), engine.prepare()));
        }
    }

    /// Takes a pool's panic that has to be re-raised at the end of a call.
    pub(crate) fn take_panic(&self) -> DeferredPanic {
        match &self.background {
            Background::Tasks(_) => DeferredPanic::default(),
            Background::Caller(panic) => std::mem::take(&mut *lock(panic)),
        }
    }

    /// Changes the engine, then releases its lock and does the remaining work.
    fn change<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Engine, Instant) -> (T, AfterUnlock),
    ) -> T {
        let (answer, panic) = self.change_for(None, change);
        match &self.background {
            Background::Tasks(_) => panic.resume(),
            Background::Caller(kept) => lock(kept).merge(panic),
        }
        answer
    }

    /// Changes the engine. The task of the server `own` is not woken, because that task is the
    /// caller and will read its orders after this call.
    fn change_for<T>(
        self: &Arc<Self>,
        own: Option<ServerId>,
        change: impl FnOnce(&mut Engine, Instant) -> (T, AfterUnlock),
    ) -> (T, DeferredPanic) {
        let mut engine = self.engine.lock();
        let now = self.now();
        let (answer, after) = change(&mut engine, now);
        // The tasks are counted under the lock, so that closing also waits for them.
        let servers: Vec<_> = match &self.background {
            Background::Tasks(_) => {
                let of = |server| ServerTask::new(Arc::clone(self), server);
                after.opened.into_iter().map(of).collect()
            }
            Background::Caller(_) => Vec::new(),
        };
        let pools: Vec<_> = after
            .tasks
            .into_iter()
            .map(|task| self.counted(|tasks| &tasks.pools, task.name(), task))
            .collect();
        drop(engine);
        if !after.replaced.is_empty() {
            self.wake_readers();
        }
        for server in after.woken {
            if own != Some(server.id()) {
                server.orders.wake();
            }
        }
        for server in servers {
            self.spawn(Task::new("sdam-monitor", server.run()));
        }
        for task in pools {
            self.spawn(task);
        }
        (answer, after.panic)
    }

    /// Returns a task that is counted until it ends or is dropped.
    pub(super) fn counted(
        self: &Arc<Self>,
        of: fn(&TaskSet) -> &Tasks,
        name: &'static str,
        work: impl Future + Send + 'static,
    ) -> Task {
        if let Some(tasks) = self.background.tasks() {
            of(tasks).begin();
        }
        let counted = Counted { shared: Arc::clone(self), of };
        Task::new(name, async move {
            work.await;
            drop(counted);
        })
    }

    pub(super) fn spawn(&self, task: Task) {
        if let Some(spawner) = &self.common.spawner {
            spawner.spawn(task);
        }
    }
}

/// A guard that marks a task as ended when the task ends or is dropped.
struct Counted {
    shared: Arc<Shared>,
    of: fn(&TaskSet) -> &Tasks,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(tasks) = self.shared.background.tasks() {
            (self.of)(tasks).end();
        }
    }
}

/// Methods for tasks.
impl Shared {
    /// Passes an answer from a connection to the engine, and returns the server's next deadline.
    pub(super) fn answered(self: &Arc<Self>, server: ServerId, input: Input) -> Option<Instant> {
        self.act(server, || input)
    }

    /// Handles the deadline of `server`, and returns the next one.
    pub(super) fn due(self: &Arc<Self>, server: ServerId) -> Option<Instant> {
        self.act(server, || Input::Due { timer: Timer::Server(server), wanted: self.waiters.any() })
    }

    /// Requests an immediate check, and returns the server's next deadline.
    pub(super) fn check_requested(self: &Arc<Self>, server: ServerId) -> Option<Instant> {
        self.act(server, || Input::CheckRequested { server })
    }

    /// Returns the time at which the timer is due, or `None` if it is not set.
    pub(crate) fn deadline(&self, timer: Timer) -> Option<Instant> {
        self.read(|deployment| deployment.deadline_of(timer, self.waiters.any()))
    }

    /// Ends the checks of a server whose task was dropped.
    pub(super) fn deserted(self: &Arc<Self>, server: ServerId) {
        self.act(server, || Input::Deserted { server });
    }

    /// Passes an input from the task of `server` to the engine, and returns the server's next
    /// deadline.
    ///
    /// A pool's panic is not re-raised: the panic hook has reported it, and all outputs have run.
    fn act(self: &Arc<Self>, server: ServerId, input: impl FnOnce() -> Input) -> Option<Instant> {
        let (deadline, _) = self.change_for(Some(server), |engine, now| {
            let after = engine.handle(now, input(), &self.published);
            let (timer, wanted) = (Timer::Server(server), self.waiters.any());
            (engine.deployment().deadline_of(timer, wanted), after)
        });
        deadline
    }

    /// Carries out an action on a connection to `server`.
    pub(crate) fn execute(
        &self,
        action: Action,
        server: &Server,
        connection: &mut MonitorConnection,
    ) {
        match action {
            Action::Connect { deadline } => self.connect(server, connection, deadline),
            Action::Send { request, deadline } => {
                connection.send(self.common.metadata.renew(request), deadline);
            }
            Action::Read { deadline } => connection.read_next(deadline),
            Action::Disconnect => connection.disconnect(),
        }
    }

    /// Starts to open a connection to `server`.
    pub(crate) fn connect(
        &self,
        server: &Server,
        connection: &mut MonitorConnection,
        deadline: Option<Instant>,
    ) {
        let limit = self.common.options.max_hello_size;
        connection.connect(&self.common.backend, limit, &server.core.address, deadline);
    }

    /// Looks up the SRV record if `output` requests it, and returns the outcome. Returns `None` for
    /// any other output.
    pub(crate) async fn look_up(&self, output: Option<Output>) -> Option<Input> {
        let Some(Output::LookUp { name, deadline }) = output else {
            return None;
        };
        let timeout = self.common.options.connect_timeout;
        let backend = &self.common.backend;
        let resolver = &**backend.resolver.as_ref()?;
        let lookup = Lookup { backend, resolver, timeout, deadline };
        Some(Input::LookedUp(lookup.srv(&name).await))
    }

    /// Counts a task that is about to be spawned.
    pub(super) fn task_begins(&self) {
        if let Background::Tasks(tasks) = &self.background {
            tasks.monitors.begin();
        }
    }

    pub(super) fn task_ended(&self) {
        if let Background::Tasks(tasks) = &self.background
            && tasks.monitors.end()
        {
            self.events.monitors_ended();
        }
    }

    /// Wakes the readers of the snapshot.
    pub(super) fn wake_readers(&self) {
        self.published.announce();
    }
}

impl PoolHost for Shared {
    fn handle_error(self: Arc<Self>, server: ServerId, error: &ErrorReport) -> ErrorOutcome {
        self.change(|engine, now| engine.handle_error(now, server, error, &self.published))
    }

    fn handle_handshake(
        self: Arc<Self>,
        server: ServerId,
        generation: Generation,
        reply: &[u8],
    ) -> Result<Option<ServiceConnection>, Error> {
        let reply = HelloReply::parse(reply);
        let hello = reply.hello.as_ref().map_err(Error::clone)?;
        let balanced = self.common.options.load_balanced;
        let service = balanced.then(|| hello.load_balanced_service()).transpose()?;
        let current = self.change(|engine, now| {
            let input = Input::Handshake { server, generation, reply };
            let after = engine.handle(now, input, &self.published);
            (engine.deployment().generation(server, service), after)
        });
        Ok(service
            .zip(current)
            .map(|(service, generation)| ServiceConnection::new(server, service, generation)))
    }

    fn handle_service_connection_closed(self: Arc<Self>, connection: ServiceConnection) {
        self.handle(Input::ServiceConnectionClosed {
            server: connection.server(),
            service: connection.service_id(),
            generation: connection.generation(),
        });
    }

    fn handle_late(self: Arc<Self>, server: ServerId, sent: Instant) {
        self.handle(Input::Late { server, sent });
    }

    fn handle_answer(self: Arc<Self>, server: ServerId) {
        self.handle(Input::Answered { server });
    }

    fn generation(&self, server: ServerId, service: Option<ObjectId>) -> Option<Generation> {
        self.read(|deployment| deployment.generation(server, service))
    }

    fn hello(&self) -> HelloRequest {
        let config = &self.common.config;
        HelloRequest::handshake(
            self.common.metadata.handshake(),
            config.server_api.clone(),
            config.handshake_opcode,
        )
    }
}

/// A mutex that ignores poisoning, because a state machine never stops half-way.
///
/// In debug builds, locking it again on the same thread, which happens if a pool calls back into
/// the topology, panics with an explanation instead of deadlocking.
#[derive(Debug)]
struct Lock<T> {
    value: Mutex<T>,
    holder: Holder,
}

/// The guard of a held [`Lock`].
#[derive(Debug)]
struct LockGuard<'l, T> {
    value: MutexGuard<'l, T>,
    holder: &'l Holder,
}

/// The thread that holds the lock, recorded in debug builds only.
#[derive(Debug, Default)]
struct Holder {
    #[cfg(debug_assertions)]
    thread: Mutex<Option<thread::ThreadId>>,
}

impl Holder {
    fn is_this_thread(&self) -> bool {
        #[cfg(debug_assertions)]
        return *lock(&self.thread) == Some(thread::current().id());
        #[cfg(not(debug_assertions))]
        false
    }

    fn set(&self, is_held: bool) {
        #[cfg(debug_assertions)]
        {
            *lock(&self.thread) = is_held.then(|| thread::current().id());
        }
        #[cfg(not(debug_assertions))]
        let _ = is_held;
    }
}

impl<T> Lock<T> {
    fn new(value: T) -> Self {
        Self { value: Mutex::new(value), holder: Holder::default() }
    }

    fn lock(&self) -> LockGuard<'_, T> {
        assert!(
            !self.holder.is_this_thread(),
            "a connection pool called back into the topology from `create`, `ready`, `clear` or \
             `close`, which run while the topology is locked; make the call from a task of the pool instead",
        );
        let value = lock(&self.value);
        self.holder.set(true);
        LockGuard { value, holder: &self.holder }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        self.holder.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locking_twice_panics_with_an_explanation_in_debug_builds() {
        let lock = Lock::new(1);
        let attempt = || {
            let _outer = lock.lock();
            let _inner = lock.lock();
        };
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempt)).unwrap_err();
        let message = panic.downcast_ref::<&str>().copied().unwrap_or_default();
        assert!(message.contains("called back into the topology"), "{message}");
        assert_eq!(*lock.lock(), 1, "the lock is usable afterwards");
    }
}
