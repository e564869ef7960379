//! The state shared by handles, tasks and pools. Writers lock the engine; readers load the
//! published snapshot.

use std::{
    future::Future,
    sync::{
        Arc, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sdam_core::{
    deployment::{Deployment, Input, Output, Timer},
    error::{Error, ErrorOutcome},
    hello::{HelloReply, HelloRequest},
    ids::{Generation, ObjectId, ServerId},
    monitor::MonitorConfig,
    options::{Options, Warning},
    report::ErrorReport,
    rng::mix,
    time::Instant,
};
use sdam_events::{history::History, queue::EventQueue, sink::Interest};
use sdam_select::{criteria::Criteria, explain::Explanation, settings::Settings};
use sdam_transport::pool::{PoolHost, ServiceConnection};
use sdam_transport::{
    runtime::Backend,
    spawn::{Spawner, Task},
};

use super::{
    builder::Prepared, lock::Lock, metadata::MetadataHandshake, polling::SrvTask,
    server_task::ServerTask, tasks::Tasks,
};
use crate::{
    engine::{
        AfterUnlock, Engine,
        panic::DeferredPanic,
        server::{Server, lane_of_thread},
        snapshot::Published,
    },
    monitor::connection::MonitorConnection,
    select::{Limit, events::SelectionContext, explain_from, waiters::Waiters},
    sync::{Mutex, MutexGuard},
};

/// The number of counters from which random numbers are derived.
const LANES: usize = 4;

/// The state of a topology of either kind.
#[derive(Debug)]
pub(crate) struct Shared {
    engine: Lock<Engine>,
    pub(crate) published: Published,
    pub(crate) waiters: Waiters,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) backend: Backend,
    pub(crate) background: Background,
    pub(crate) settings: Settings,
    /// The default selection timeout.
    pub(crate) limit: Limit,
    /// The recent transitions, for selection errors, if enabled.
    pub(crate) history: Option<Arc<History>>,
    pub(crate) options: Options,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) config: Arc<MonitorConfig>,
    pub(crate) metadata: MetadataHandshake,
    random: [Random; LANES],
}

/// The kind of topology: it decides who runs the checks, and where pools' panics are re-raised.
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
#[derive(Debug)]
pub(crate) struct TaskSet {
    pub(crate) spawner: Arc<dyn Spawner>,
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

/// A counter from which random numbers are derived, aligned to its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Random(AtomicU64);

impl Shared {
    pub(crate) fn new(
        prepared: Prepared,
        settings: Settings,
        backend: Backend,
        background: Background,
    ) -> Arc<Self> {
        let Prepared {
            options, config, metadata, mut rng, pools, events, history, warnings, ..
        } = prepared;
        // All counters start with the same seed, so a thread draws the same numbers from any lane.
        let seed = rng.next_u64();
        let config = Arc::new(config);
        let mut deployment = Deployment::new(&options, Arc::clone(&config), rng.fork());
        if events.wants_any(Interest::INPUTS) {
            deployment = deployment.with_recorded_inputs();
        }
        if let Background::Caller(_) = background {
            deployment = deployment.with_scans(&options);
        }
        // Without a resolver, the topology does not poll the SRV record, but a driver may.
        if backend.resolver.is_some() {
            deployment = deployment.with_srv_polling(&options);
        }
        Arc::new_cyclic(|host: &Weak<Self>| {
            let host = Weak::clone(host) as Weak<dyn PoolHost>;
            let spawner = background.tasks().map(|tasks| Arc::clone(&tasks.spawner));
            let runtime = (backend.clone(), spawner);
            let engine = Engine::new(deployment, pools, host, Arc::clone(&events), runtime);
            Self {
                published: Published::new(engine.snapshot()),
                engine: Lock::new(engine),
                waiters: Waiters::default(),
                events,
                backend,
                background,
                settings,
                limit: Limit::configured(&options),
                history,
                options,
                warnings,
                config,
                metadata,
                random: std::array::from_fn(|_| Random(AtomicU64::new(seed))),
            }
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.backend.clock.now()
    }

    /// Returns 64 random bits and the lane of the calling thread.
    pub(crate) fn random(&self) -> (u64, usize) {
        let lane = lane_of_thread() % LANES;
        let [first, ..] = &self.random;
        let counter = &self.random.get(lane).unwrap_or(first).0;
        // This is deliberately not one atomic step, which would take longer. Two threads of one
        // lane may draw the same number, which is harmless.
        let state = counter.load(Ordering::Relaxed);
        counter.store(state.wrapping_add(0x9E37_79B9_7F4A_7C15), Ordering::Relaxed);
        (mix(state), lane)
    }

    pub(crate) fn selection_context(&self) -> SelectionContext<'_> {
        SelectionContext {
            published: &self.published,
            events: &self.events,
            clock: &*self.backend.clock,
            settings: &self.settings,
        }
    }

    /// Explains for each known server why a selection would choose or reject it.
    pub(crate) fn explain(&self, criteria: &Criteria) -> Explanation {
        // No snapshot guard is held while the application's selectors run.
        let snapshot = self.published.load_full();
        explain_from(&snapshot, &self.settings, criteria, self.now())
    }

    /// Passes an input to the engine. All outputs have run on return, even if a pool panics.
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

    /// Applies the outcome of a check made by the caller.
    pub(crate) fn handle_check(
        self: &Arc<Self>,
        server: ServerId,
        outcome: Result<&[u8], Error>,
        rtt: Duration,
    ) {
        self.handle(Input::Played { server, outcome: outcome.map(HelloReply::parse), rtt });
    }

    /// Reads the state of the deployment. Locks the engine.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Deployment) -> T) -> T {
        read(self.engine.lock().deployment())
    }

    /// Starts the task that polls the SRV record, if the topology polls one.
    pub(crate) fn poll_srv(self: &Arc<Self>) {
        if let Some(task) = SrvTask::new(self) {
            self.spawn("sdam-srv", task.run());
        }
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
    /// advanced it.
    pub(crate) fn announce_waiters(&self) {
        for server in self.published.load().servers.iter() {
            server.orders.look();
            server.orders.wake();
        }
    }

    /// Takes a pool's panic that has to be re-raised at the end of a call.
    pub(crate) fn take_panic(&self) -> DeferredPanic {
        match &self.background {
            Background::Tasks(_) => DeferredPanic::default(),
            Background::Caller(panic) => std::mem::take(&mut *lock(panic)),
        }
    }

    /// Changes the engine, then does the remaining work without its lock.
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

    /// Changes the engine. The task of the server `own` is not woken, because it makes this call
    /// and takes its orders next.
    fn change_for<T>(
        self: &Arc<Self>,
        own: Option<ServerId>,
        change: impl FnOnce(&mut Engine, Instant) -> (T, AfterUnlock),
    ) -> (T, DeferredPanic) {
        let mut engine = self.engine.lock();
        let now = self.now();
        let (answer, after) = change(&mut engine, now);
        // Counted under the lock, so that closing waits for these tasks, too.
        let servers: Vec<_> = match &self.background {
            Background::Tasks(_) => {
                let of = |server| ServerTask::new(Arc::clone(self), server);
                after.opened.into_iter().map(of).collect()
            }
            Background::Caller(_) => Vec::new(),
        };
        let pools: Vec<_> = after.tasks.into_iter().map(|task| self.pool_task(task)).collect();
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
            self.spawn("sdam-monitor", server.run());
        }
        for (name, task) in pools {
            self.spawn(name, task);
        }
        (answer, after.panic)
    }

    /// Counts a pool's task until it ends or is dropped.
    fn pool_task(self: &Arc<Self>, task: Task) -> (&'static str, impl Future<Output = ()> + use<>) {
        if let Background::Tasks(tasks) = &self.background {
            tasks.pools.begin();
        }
        let counted = PoolTask(Arc::clone(self));
        let name = task.name();
        (name, async move {
            task.await;
            drop(counted);
        })
    }

    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        if let Background::Tasks(tasks) = &self.background {
            tasks.spawner.spawn(Task::new(name, task));
        }
    }
}

/// A guard that marks a pool's background task as ended when the task ends or is dropped.
struct PoolTask(Arc<Shared>);

impl Drop for PoolTask {
    fn drop(&mut self) {
        if let Background::Tasks(tasks) = &self.0.background {
            tasks.pools.end();
        }
    }
}

fn lock(panic: &Mutex<DeferredPanic>) -> MutexGuard<'_, DeferredPanic> {
    panic.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Methods for tasks.
impl Shared {
    /// Passes an answer from a connection, and returns the server's next deadline.
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

    /// Returns when the timer is due.
    pub(crate) fn deadline(&self, timer: Timer) -> Option<Instant> {
        self.read(|deployment| deployment.deadline_of(timer, self.waiters.any()))
    }

    /// Ends the checks of a server whose task was dropped.
    pub(super) fn deserted(self: &Arc<Self>, server: ServerId) {
        self.act(server, || Input::Deserted { server });
    }

    /// Passes an input from the task of `server`, and returns the server's next deadline.
    ///
    /// A pool's panic is not re-raised: the panic hook has reported it, and all outputs have run.
    fn act(self: &Arc<Self>, server: ServerId, input: impl FnOnce() -> Input) -> Option<Instant> {
        let (deadline, _) = self.change_for(Some(server), |engine, now| {
            let after = engine.handle(now, input(), &self.published);
            let timer = Timer::Server(server);
            let wanted = self.waiters.any();
            (engine.deployment().deadline_of(timer, wanted), after)
        });
        deadline
    }

    /// Starts to open a connection to `server`.
    pub(crate) fn connect(
        &self,
        server: &Server,
        connection: &mut MonitorConnection,
        deadline: Option<Instant>,
    ) {
        let limit = self.options.max_hello_size;
        connection.connect(&self.backend, limit, &server.core.address, deadline);
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
        self.published.changed.notify(usize::MAX);
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
        let balanced = self.options.load_balanced;
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
        HelloRequest::handshake(
            self.metadata.handshake(),
            self.config.server_api.clone(),
            self.config.handshake_opcode,
        )
    }
}
