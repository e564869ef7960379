//! The engine of one topology: passes inputs to the state machine under one lock, and does the rest
//! of the work after the lock is released. Readers load the published snapshot.

mod outputs;
pub(crate) mod server;
pub(crate) mod snapshot;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Weak},
};

use sdam_core::{
    deployment::{ConnId, Deployment, Input, Output, Role, Timer},
    error::{Error, ErrorOutcome},
    hello::{HelloReply, HelloRequest},
    ids::{Generation, ObjectId, ServerId},
    options::{ConfigError, Options},
    report::ErrorReport,
    time::Instant,
};
use sdam_events::{history::History, queue::EventQueue, sink::Interest};
use sdam_select::{criteria::Criteria, explain::Explanation, settings::Settings};
use sdam_transport::{
    pool::{Authenticator, PoolContext, PoolFactory, PoolHandle, PoolHost, ServiceConnection},
    runtime::Backend,
    spawn::{Spawner, Task},
};

pub(crate) use self::outputs::DeferredPanic;
use self::{
    outputs::{AfterUnlock, is_unchecked},
    server::Server,
    snapshot::{Published, Snapshot},
};
use crate::{
    common::{Common, Counters},
    monitor::MonitorConnection,
    select::{SelectionContext, explain_from},
    srv::Lookup,
    sync::{
        Lock, Mutex,
        atomic::{Ordering, fence},
        lock,
    },
    topology::{
        builder::Prepared,
        select::Waiters,
        tasks::{ServerTask, Tasks},
    },
};

/// A topology, with or without background tasks: the state machine behind a lock, and the parts
/// that are used without the lock.
#[derive(Debug)]
pub(crate) struct Engine {
    state: Lock<Locked>,
    pools: Arc<dyn CreatePool>,
    /// This engine, to which pools report.
    host: Weak<dyn PoolHost>,
    pub(crate) published: Published,
    pub(crate) waiters: Waiters,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) background: Background,
    /// The recent transitions, which selection errors include; `None` unless the history is
    /// enabled.
    pub(crate) history: Option<Arc<History>>,
    pub(crate) common: Arc<Common>,
}

/// The part of a topology that changes under the lock.
#[derive(Debug)]
pub(crate) struct Locked {
    deployment: Deployment,
    servers: BTreeMap<ServerId, Arc<Server>>,
    /// The number of snapshots so far.
    version: u64,
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

impl Engine {
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
        let mut deployment =
            Deployment::new(Arc::clone(&common.options), Arc::clone(&common.config), rng);
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
            let first = Snapshot::first(Arc::clone(deployment.description()));
            let state = Locked { deployment, servers: BTreeMap::new(), version: 0 };
            Self {
                state: Lock::new(state),
                pools,
                host: Weak::clone(host) as Weak<dyn PoolHost>,
                published: Published::new(first),
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
        self.change(|state, now| ((), self.apply(state, now, input)));
    }

    /// Passes an input to the deployment, and returns the output that the caller has to carry out.
    pub(crate) fn ask(self: &Arc<Self>, input: Input) -> Option<Output> {
        self.change(|state, now| {
            let mut after = self.apply(state, now, input);
            (after.asked.take(), after)
        })
    }

    /// Reads the state of the deployment, under the lock.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Deployment) -> T) -> T {
        read(&self.state.lock().deployment)
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

    /// Prepares the pools of the servers whose first check is under way, if a selection is waiting
    /// for such a check. Returns the panic of a pool, if any. The caller re-raises the panic,
    /// unless the caller is a server's task.
    pub(crate) fn prepare_pools(self: &Arc<Self>) -> DeferredPanic {
        let snapshot = self.published.load_full();
        let unchecked = snapshot.description.servers().iter().any(|own| is_unchecked(own));
        if unchecked && self.common.options.early_dial && self.waiters.any() {
            self.change_for(None, |state, _| ((), state.prepare())).1
        } else {
            DeferredPanic::default()
        }
    }

    /// Returns whether a check waits for its server after it has begun `order`. With TLS or a
    /// proxy, connecting counts as waiting, because it takes further round trips.
    pub(crate) fn is_wait(&self, order: &Output) -> bool {
        let options = &self.common.options;
        let conn = match order {
            Output::Connect { conn, .. } if options.tls.is_some() || options.proxy.is_some() => {
                conn
            }
            Output::Send { conn, .. } => conn,
            _ => return false,
        };
        conn.role == Role::Check
    }

    /// Takes a pool's panic that has to be re-raised at the end of a call.
    pub(crate) fn take_panic(&self) -> DeferredPanic {
        match &self.background {
            Background::Tasks(_) => DeferredPanic::default(),
            Background::Caller(panic) => std::mem::take(&mut *lock(panic)),
        }
    }

    /// Changes the state, then releases the lock and does the remaining work.
    fn change<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Locked, Instant) -> (T, AfterUnlock),
    ) -> T {
        let (answer, panic) = self.change_for(None, change);
        match &self.background {
            Background::Tasks(_) => panic.resume(),
            Background::Caller(kept) => lock(kept).merge(panic),
        }
        answer
    }

    /// Changes the state. The task of the server `own` is not woken, because that task is the
    /// caller and will read its orders after this call.
    fn change_for<T>(
        self: &Arc<Self>,
        own: Option<ServerId>,
        change: impl FnOnce(&mut Locked, Instant) -> (T, AfterUnlock),
    ) -> (T, DeferredPanic) {
        let mut state = self.state.lock();
        let now = self.now();
        let (answer, after) = change(&mut state, now);
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
        drop(state);
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
    pub(crate) fn counted(
        self: &Arc<Self>,
        of: fn(&TaskSet) -> &Tasks,
        name: &'static str,
        work: impl Future + Send + 'static,
    ) -> Task {
        if let Some(tasks) = self.background.tasks() {
            of(tasks).begin();
        }
        let counted = Counted { engine: Arc::clone(self), of };
        Task::new(name, async move {
            work.await;
            drop(counted);
        })
    }

    pub(crate) fn spawn(&self, task: Task) {
        if let Some(spawner) = &self.common.spawner {
            spawner.spawn(task);
        }
    }
}

/// A guard that marks a task as ended when the task ends or is dropped.
struct Counted {
    engine: Arc<Engine>,
    of: fn(&TaskSet) -> &Tasks,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(tasks) = self.engine.background.tasks() {
            (self.of)(tasks).end();
        }
    }
}

/// Methods for tasks.
impl Engine {
    /// Passes an answer from a connection to the engine, and returns the server's next deadline.
    pub(crate) fn answered(self: &Arc<Self>, server: ServerId, input: Input) -> Option<Instant> {
        self.act(server, || input)
    }

    /// Handles the deadline of `server`, and returns the next one.
    pub(crate) fn due(self: &Arc<Self>, server: ServerId) -> Option<Instant> {
        self.act(server, || Input::Due { timer: Timer::Server(server), wanted: self.waiters.any() })
    }

    /// Requests an immediate check, and returns the server's next deadline.
    pub(crate) fn check_requested(self: &Arc<Self>, server: ServerId) -> Option<Instant> {
        self.act(server, || Input::CheckRequested { server })
    }

    /// Returns the time at which the timer is due, or `None` if it is not set.
    pub(crate) fn deadline(&self, timer: Timer) -> Option<Instant> {
        self.read(|deployment| deployment.deadline_of(timer, self.waiters.any()))
    }

    /// Ends the checks of a server whose task was dropped.
    pub(crate) fn deserted(self: &Arc<Self>, server: ServerId) {
        self.act(server, || Input::Deserted { server });
    }

    /// Passes an input from the task of `server` to the engine, and returns the server's next
    /// deadline.
    ///
    /// A pool's panic is not re-raised: the panic hook has reported it, and all outputs have run.
    fn act(self: &Arc<Self>, server: ServerId, input: impl FnOnce() -> Input) -> Option<Instant> {
        let (deadline, _) = self.change_for(Some(server), |state, now| {
            let after = self.apply(state, now, input());
            let (timer, wanted) = (Timer::Server(server), self.waiters.any());
            (state.deployment.deadline_of(timer, wanted), after)
        });
        deadline
    }

    /// Carries out an order on its connection to `server`.
    pub(crate) fn execute(
        &self,
        order: Output,
        server: &Server,
        connection: &mut MonitorConnection,
    ) {
        match order {
            Output::Connect { conn, deadline } => self.connect(conn, server, connection, deadline),
            Output::Send { request, deadline, .. } => {
                connection.send(self.common.metadata.renew(*request), deadline);
            }
            Output::Read { deadline, .. } => connection.read_next(deadline),
            Output::Disconnect { .. } => connection.disconnect(),
            _ => {}
        }
    }

    /// Starts to open a connection to `server`.
    pub(crate) fn connect(
        &self,
        conn: ConnId,
        server: &Server,
        connection: &mut MonitorConnection,
        deadline: Option<Instant>,
    ) {
        let limit = self.common.options.max_hello_size;
        connection.connect(conn, (&self.common.backend, limit), &server.core.address, deadline);
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
    pub(crate) fn task_begins(&self) {
        if let Background::Tasks(tasks) = &self.background {
            tasks.monitors.begin();
        }
    }

    pub(crate) fn task_ended(&self) {
        if let Background::Tasks(tasks) = &self.background
            && tasks.monitors.end()
        {
            self.events.monitors_ended();
        }
    }

    /// Wakes the readers of the snapshot.
    pub(crate) fn wake_readers(&self) {
        self.published.announce();
    }
}

impl PoolHost for Engine {
    fn handle_error(self: Arc<Self>, server: ServerId, error: &ErrorReport) -> ErrorOutcome {
        self.change(|state, now| {
            let (outcome, outputs) = state.deployment.handle_error(now, server, error);
            let after = self.carry_out(state, now, outputs);
            state.note_silence(server);
            (outcome, after)
        })
    }

    fn handle_handshake(
        self: Arc<Self>,
        server: ServerId,
        generation: Generation,
        reply: HelloReply,
    ) -> Result<Option<ServiceConnection>, Error> {
        let hello = reply.hello.as_ref().map_err(Error::clone)?;
        let balanced = self.common.options.load_balanced;
        let service = balanced.then(|| hello.load_balanced_service()).transpose()?;
        let current = self.change(|state, now| {
            let input = Input::Handshake { server, generation, reply };
            let after = self.apply(state, now, input);
            (state.deployment.generation(server, service), after)
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
