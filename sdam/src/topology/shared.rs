//! The state that handles, monitors and pools share. Writers lock the engine; readers load the
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
    address::ServerAddress,
    app_error::{AppError, ErrorOutcome},
    error::ServerError,
    hello::{Hello, HelloRequest},
    ids::{Generation, ObjectId, ServerId},
    machine::{Input, RecordedInput},
    monitor::MonitorConfig,
    options::{Options, Warning},
    rng::{Rng, mix},
    server::Rtt,
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::{history::History, queue::EventQueue};
use sdam_select::{criteria::Criteria, explain, explain::Explanation, settings::Settings};
use sdam_transport::pool::{PoolHost, ServiceConnection};
use sdam_transport::{
    runtime::Io,
    spawn::{Spawner, Task},
};

use super::{
    builder::Prepared, lock::Lock, metadata::MetadataHandshake, polling::SrvTask, tasks::Tasks,
};
use crate::{
    engine::{
        AfterUnlock, Engine, panic::DeferredPanic, server::lane_of_thread, snapshot::Published,
    },
    monitor::{Monitor, MonitorHost},
    select::{Limit, events::SelectionContext, waiters::Waiters},
    sync::{Mutex, MutexGuard},
};

/// The number of counters that random numbers are drawn from.
const LANES: usize = 4;

/// The state of a topology of either kind.
#[derive(Debug)]
pub(crate) struct Shared {
    engine: Lock<Engine>,
    pub(crate) published: Published,
    pub(crate) waiters: Waiters,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) io: Io,
    pub(crate) background: Background,
    pub(crate) settings: Settings,
    /// The default selection timeout.
    pub(crate) limit: Limit,
    /// The recent transitions for selection errors, if enabled.
    pub(crate) history: Option<Arc<History>>,
    pub(crate) options: Options,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) config: Arc<MonitorConfig>,
    pub(crate) metadata: MetadataHandshake,
    random: [Random; LANES],
}

/// The runner of monitors, which re-raises panics of pools.
#[derive(Debug)]
pub(crate) enum Background {
    /// Tasks run the monitors, and a panic is re-raised in the thread that changed the topology.
    Tasks(TaskSet),
    /// The caller of a single-threaded topology runs the monitors. It takes the panics at the end
    /// of each call.
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
    fn spawner(&self) -> Option<Arc<dyn Spawner>> {
        match self {
            Self::Tasks(tasks) => Some(Arc::clone(&tasks.spawner)),
            Self::Caller(_) => None,
        }
    }
}

/// A random counter, aligned to its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Random(AtomicU64);

impl Shared {
    pub(crate) fn new(
        prepared: Prepared,
        settings: Settings,
        io: Io,
        background: Background,
    ) -> Arc<Self> {
        let Prepared {
            options,
            config,
            metadata,
            mut rng,
            pools,
            events,
            history,
            warnings,
            ..
        } = prepared;
        // All counters start with the same seed, so a thread draws the same numbers from any lane.
        let seed = rng.next_u64();
        Arc::new_cyclic(|host: &Weak<Self>| {
            let host = Weak::clone(host) as Weak<dyn PoolHost>;
            let runtime = (io.clone(), background.spawner());
            let engine = Engine::new(&options, pools, host, Arc::clone(&events), runtime);
            Self {
                published: Published::new(engine.snapshot()),
                engine: Lock::new(engine),
                waiters: Waiters::default(),
                events,
                io,
                background,
                settings,
                limit: Limit::configured(&options),
                history,
                options,
                warnings,
                config: Arc::new(config),
                metadata,
                random: std::array::from_fn(|_| Random(AtomicU64::new(seed))),
            }
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.io.clock.now()
    }

    /// Returns 64 random bits and the lane of the calling thread.
    pub(crate) fn random(&self) -> (u64, usize) {
        let lane = lane_of_thread() % LANES;
        let [first, ..] = &self.random;
        let counter = &self.random.get(lane).unwrap_or(first).0;
        // Not one atomic step, which would take longer: that two threads of one lane can draw the
        // same number makes neither of them less random.
        let state = counter.load(Ordering::Relaxed);
        counter.store(state.wrapping_add(0x9E37_79B9_7F4A_7C15), Ordering::Relaxed);
        (mix(state), lane)
    }

    pub(crate) fn selection_context(&self) -> SelectionContext<'_> {
        SelectionContext {
            published: &self.published,
            events: &self.events,
            clock: &*self.io.clock,
            settings: &self.settings,
        }
    }

    /// Explains for each known server why a selection would choose or reject it.
    pub(crate) fn explain(&self, criteria: &Criteria) -> Explanation {
        // No snapshot guard is held while the application's selectors run.
        let topology = Arc::clone(&self.published.load().description);
        explain(&topology, &self.settings, criteria)
    }

    /// Applies an input to the engine. On return all effects have run, even after a panic of a
    /// pool.
    pub(crate) fn apply(self: &Arc<Self>, input: Input<'_>) {
        self.change(|engine, now| {
            let after = engine.apply(now, input, RecordedInput::of, &self.published);
            ((), after)
        });
    }

    /// Applies an application error that an operation or a pool reports.
    pub(crate) fn apply_error(
        self: &Arc<Self>,
        server: ServerId,
        error: &AppError<'_>,
    ) -> ErrorOutcome {
        self.change(|engine, now| engine.apply_error(now, server, error, &self.published))
    }

    /// Applies the handshake of a pooled connection. Behind a load balancer, returns the counted
    /// connection, unless the server has left the topology.
    pub(crate) fn apply_handshake(
        self: &Arc<Self>,
        server: ServerId,
        generation: Generation,
        reply: &[u8],
    ) -> Result<Option<ServiceConnection>, ServerError> {
        let hello = Hello::parse(reply)?;
        let balanced = self.options.load_balanced;
        let service = balanced
            .then(|| hello.load_balanced_service())
            .transpose()?;
        let current = self.change(|engine, now| {
            let rtt = engine.rtt(server);
            let after = self.apply_hello(engine, now, (server, generation, rtt), hello, reply);
            (engine.generation(server, service), after)
        });
        Ok(service
            .zip(current)
            .map(|(service, generation)| ServiceConnection::new(server, service, generation)))
    }

    /// Applies the outcome of a check that no monitor has made. A success has the effects of a
    /// handshake, and is recorded as one, because no heartbeat event carries the reply.
    pub(crate) fn apply_check(
        self: &Arc<Self>,
        server: ServerId,
        outcome: Result<&[u8], ServerError>,
        rtt: Duration,
    ) {
        let checked = outcome.and_then(|reply| Ok((reply, Hello::parse(reply)?)));
        self.change(|engine, now| {
            let after = match checked {
                Ok((reply, hello)) => {
                    let generation = engine.generation(server, None).unwrap_or(Generation::FIRST);
                    let rtt = Rtt {
                        average: rtt,
                        minimum: rtt,
                        p90: rtt,
                    };
                    self.apply_hello(engine, now, (server, generation, Some(rtt)), hello, reply)
                }
                Err(error) => {
                    let input = Input::Checked {
                        server,
                        outcome: Err(error),
                        rtt: None,
                    };
                    engine.apply(now, input, RecordedInput::of, &self.published)
                }
            };
            ((), after)
        });
    }

    /// Applies the reply to a hello, and records it.
    fn apply_hello(
        &self,
        engine: &mut Engine,
        now: Instant,
        (server, generation, rtt): (ServerId, Generation, Option<Rtt>),
        hello: Hello,
        reply: &[u8],
    ) -> AfterUnlock {
        let input = Input::Handshake {
            server,
            generation,
            hello,
            rtt,
        };
        let record = |_: &Input<'_>| {
            Some(RecordedInput::Handshake {
                server,
                generation,
                reply: reply.into(),
                rtt,
            })
        };
        engine.apply(now, input, record, &self.published)
    }

    /// Applies the end of a connection to a service behind a load balancer.
    pub(crate) fn apply_service_connection_closed(
        self: &Arc<Self>,
        connection: &ServiceConnection,
    ) {
        self.apply(Input::ServiceConnectionClosed {
            server: connection.server(),
            service: connection.service_id(),
            generation: connection.generation(),
        });
    }

    /// Applies the hosts of an SRV record, sampled by `srvMaxHosts`.
    pub(crate) fn apply_hosts(self: &Arc<Self>, hosts: &[ServerAddress]) {
        let max_hosts = self.options.srv.as_ref().map_or(0, |srv| srv.max_hosts);
        let max_hosts = usize::try_from(max_hosts).unwrap_or(usize::MAX);
        let mut rng = Rng::new(self.random().0);
        self.change(|engine, now| {
            let hosts = engine
                .description()
                .sample_hosts(hosts, max_hosts, &mut rng);
            let input = Input::Hosts(&hosts);
            let after = engine.apply(now, input, RecordedInput::of, &self.published);
            ((), after)
        });
    }

    /// Returns the current description with the time of each server's last check, which the published
    /// one does not have while a server stays Unknown by the same error.
    pub(crate) fn checked_description(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.engine.lock().description())
    }

    /// Starts the task that polls the SRV record, if there is one to poll.
    pub(crate) fn poll_srv(self: &Arc<Self>) {
        if let Some(task) = SrvTask::new(self) {
            self.spawn("sdam-srv", task.run());
        }
    }

    /// Returns the first message of a connection that is opened now.
    pub(crate) fn hello_request(&self) -> HelloRequest {
        HelloRequest::handshake(
            self.metadata.handshake(),
            self.config.server_api.clone(),
            self.config.handshake_opcode,
        )
    }

    /// Returns the generation of connections that are opened now. Locks the engine.
    pub(crate) fn generation(
        &self,
        server: ServerId,
        service: Option<ObjectId>,
    ) -> Option<Generation> {
        self.engine.lock().generation(server, service)
    }

    /// Closes the topology; tasks end soon after.
    pub(crate) fn shut_down(self: &Arc<Self>) {
        let mut panic = DeferredPanic::default();
        panic.catch(|| self.apply(Input::Close));
        let last = match &self.background {
            Background::Tasks(tasks) => tasks.monitors.close(),
            Background::Caller(_) => false,
        };
        if last {
            self.events.monitors_ended();
        }
        panic.resume();
    }

    /// Requests a check from every monitor.
    pub(crate) fn request_checks(&self) {
        for server in self.published.load().servers.iter() {
            server.control.check();
        }
    }

    /// Takes the panics of pools that are re-raised at the end of a call.
    pub(crate) fn take_panic(&self) -> DeferredPanic {
        match &self.background {
            Background::Tasks(_) => DeferredPanic::default(),
            Background::Caller(panic) => std::mem::take(&mut *lock(panic)),
        }
    }

    /// Changes the engine, then does the work that must not happen under its lock.
    fn change<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Engine, Instant) -> (T, AfterUnlock),
    ) -> T {
        let mut engine = self.engine.lock();
        let now = self.now();
        let (answer, after) = change(&mut engine, now);
        // Counted under the lock, so that closing waits for these monitors, too.
        let monitors: Vec<_> = match &self.background {
            Background::Tasks(_) => {
                let of = |server| Monitor::new(Arc::clone(self), server);
                after.opened.into_iter().map(of).collect()
            }
            Background::Caller(_) => Vec::new(),
        };
        let pools: Vec<_> = after
            .tasks
            .into_iter()
            .map(|task| self.pool_task(task))
            .collect();
        drop(engine);
        if after.published {
            self.wake_readers();
        }
        for monitor in monitors {
            self.spawn("sdam-monitor", monitor.run());
        }
        for (name, task) in pools {
            self.spawn(name, task);
        }
        match &self.background {
            Background::Tasks(_) => after.panic.resume(),
            Background::Caller(panic) => lock(panic).merge(after.panic),
        }
        answer
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

/// The background task of a pool, as a task of the topology.
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

impl MonitorHost for Shared {
    fn io(&self) -> &Io {
        &self.io
    }

    fn config(&self) -> &Arc<MonitorConfig> {
        &self.config
    }

    fn max_hello_size(&self) -> usize {
        self.options.max_hello_size
    }

    fn renew(&self, request: HelloRequest) -> HelloRequest {
        self.metadata.renew(request)
    }

    fn events(&self) -> &EventQueue {
        &self.events
    }

    fn is_check_wanted(&self) -> bool {
        self.waiters.any()
    }

    fn apply(self: &Arc<Self>, input: Input<'_>) {
        Self::apply(self, input);
    }

    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        Self::spawn(self, name, task);
    }

    fn task_begins(&self) {
        if let Background::Tasks(tasks) = &self.background {
            tasks.monitors.begin();
        }
    }

    fn task_ended(&self) {
        if let Background::Tasks(tasks) = &self.background
            && tasks.monitors.end()
        {
            self.events.monitors_ended();
        }
    }

    fn wake_readers(&self) {
        self.published.changed.notify(usize::MAX);
    }
}

impl PoolHost for Shared {
    fn handle_error(self: Arc<Self>, server: ServerId, error: &AppError<'_>) -> ErrorOutcome {
        self.apply_error(server, error)
    }

    fn handle_handshake(
        self: Arc<Self>,
        server: ServerId,
        generation: Generation,
        reply: &[u8],
    ) -> Result<Option<ServiceConnection>, ServerError> {
        self.apply_handshake(server, generation, reply)
    }

    fn handle_service_connection_closed(self: Arc<Self>, connection: ServiceConnection) {
        self.apply_service_connection_closed(&connection);
    }

    fn generation(&self, server: ServerId, service: Option<ObjectId>) -> Option<Generation> {
        Self::generation(self, server, service)
    }

    fn hello(&self) -> HelloRequest {
        self.hello_request()
    }
}
