//! The state that handle, monitors and pools share. Writers lock a mutex; readers load an
//! `ArcSwap`.

mod lock;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use sdam_core::{
    address::ServerAddress,
    app_error::{AppError, ErrorOutcome},
    event::{EventKind, EventName},
    hello::Hello,
    ids::{Generation, ObjectId, ServerId},
    machine::{Effect, Effects, Input, RecordedInput, TopologyMachine},
    monitor::MonitorConfig,
    options::{Options, Warning},
    pool::{NoPools, PoolClear, PoolFactory},
    rng::{Rng, mix},
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::{history::History, queue::EventQueue};
use sdam_select::settings::Settings;
use sdam_transport::{runtime::Runtime, spawn::Task};
use smallvec::SmallVec;

use self::lock::{Lock, LockGuard};
use crate::{
    demand::Demand,
    failures::Failures,
    held::HeldPanic,
    introduction::Introduction,
    monitor::Monitor,
    pending::Pending,
    report,
    select::Limit,
    server::{Server, lane_of_thread},
    snapshot::Snapshot,
    sync::{ArcSwap, Event},
    tasks::Tasks,
};

/// The number of counters that random numbers are drawn from.
const LANES: usize = 4;

/// The shared state of a running topology.
#[derive(Debug)]
pub(crate) struct TopologyCell {
    state: Lock<State>,
    snapshot: ArcSwap<Snapshot>,
    /// Notified after each publication.
    pub(crate) changed: Event,
    pub(crate) demand: Demand,
    pub(crate) pending: Pending,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) runtime: Runtime,
    pub(crate) settings: Settings,
    /// The default selection timeout.
    pub(crate) limit: Limit,
    /// The recent transitions for selection errors, if enabled.
    pub(crate) history: Option<Arc<History>>,
    pub(crate) options: Options,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) monitors: Tasks,
    pub(crate) dispatchers: Tasks,
    pub(crate) config: Arc<MonitorConfig>,
    pub(crate) introduction: Introduction,
    pools: Arc<dyn PoolFactory>,
    random: [Random; LANES],
}

/// The state that changes only under the lock.
#[derive(Debug)]
struct State {
    machine: TopologyMachine,
    servers: BTreeMap<ServerId, Arc<Server>>,
    version: u64,
}

/// A random counter, aligned to its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Random(AtomicU64);

/// The work that remains once the lock is released.
#[derive(Debug, Default)]
struct Aftermath {
    published: bool,
    /// Monitors to start.
    monitors: SmallVec<[Monitor; 1]>,
    panic: HeldPanic,
}

pub(crate) struct Parts {
    pub(crate) options: Options,
    pub(crate) topology: ObjectId,
    pub(crate) rng: Rng,
    pub(crate) settings: Settings,
    pub(crate) history: Option<Arc<History>>,
    pub(crate) config: Arc<MonitorConfig>,
    pub(crate) introduction: Introduction,
    pub(crate) pools: Arc<dyn PoolFactory>,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) runtime: Runtime,
}

impl TopologyCell {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            options,
            topology,
            mut rng,
            settings,
            history,
            config,
            introduction,
            pools,
            events,
            warnings,
            runtime,
        } = parts;
        // All counters start with the same seed, so a thread draws the same numbers from any lane.
        let seed = rng.next_u64();
        let machine = TopologyMachine::new(&options, topology);
        let snapshot = Snapshot {
            version: 0,
            description: Arc::clone(machine.description()),
            servers: Arc::default(),
            closed: false,
        };
        let state = State {
            machine,
            servers: BTreeMap::new(),
            version: 0,
        };
        Self {
            state: Lock::new(state),
            snapshot: ArcSwap::from_pointee(snapshot),
            changed: Event::new(),
            demand: Demand::default(),
            pending: Pending::default(),
            events,
            runtime,
            settings,
            limit: Limit::configured(&options),
            history,
            options,
            warnings,
            monitors: Tasks::default(),
            dispatchers: Tasks::default(),
            config,
            introduction,
            pools,
            random: std::array::from_fn(|_| Random(AtomicU64::new(seed))),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.runtime.io.clock.now()
    }

    /// Returns the published snapshot.
    pub(crate) fn snapshot(&self) -> &ArcSwap<Snapshot> {
        &self.snapshot
    }

    /// Returns 64 random bits and the lane of the calling thread.
    pub(crate) fn random(&self) -> (u64, usize) {
        let lane = lane_of_thread() % LANES;
        let [first, ..] = &self.random;
        let counter = &self.random.get(lane).unwrap_or(first).0;
        (
            mix(counter.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed)),
            lane,
        )
    }

    /// Applies an input to the topology machine. On return all effects have run, even after a
    /// panic of a pool.
    pub(crate) fn apply(self: &Arc<Self>, input: Input<'_>) {
        self.apply_as(self.state.lock(), input, RecordedInput::of, |_| ());
    }

    /// Applies the handshake of a pooled connection, with its raw `reply` for recordings. Returns
    /// the current generation; `None` if the server has left the topology.
    pub(crate) fn apply_handshake(
        self: &Arc<Self>,
        server: ServerId,
        generation: Generation,
        hello: Hello,
        reply: &[u8],
    ) -> Option<Generation> {
        let service = hello.service_id.filter(|_| self.options.load_balanced);
        let state = self.state.lock();
        let rtt = state.servers.get(&server);
        let rtt = rtt.and_then(|server| server.rtt().rtt());
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
        self.apply_as(state, input, record, |machine| {
            machine.generation(server, service)
        })
    }

    /// Applies an input and runs its effects. `answer` reads the machine under the same lock.
    fn apply_as<T>(
        self: &Arc<Self>,
        mut state: LockGuard<'_, State>,
        input: Input<'_>,
        record: impl FnOnce(&Input<'_>) -> Option<RecordedInput>,
        answer: impl FnOnce(&TopologyMachine) -> T,
    ) -> T {
        let now = self.now();
        if self.events.wants(EventName::Input)
            && let Some(recorded) = record(&input)
        {
            self.events.push(now, EventKind::Input(Arc::new(recorded)));
        }
        let failed = Failures::failed_check(&input);
        let effects = state.machine.handle(now, input);
        let aftermath = self.run(&mut state, now, effects);
        if let Some(server) = failed.and_then(|server| state.servers.get(&server)) {
            server.failures().repeat(now);
        }
        let answer = answer(&state.machine);
        drop(state);
        self.finish(aftermath);
        answer
    }

    /// Applies an application error that an operation or a pool reports.
    pub(crate) fn apply_error(
        self: &Arc<Self>,
        server: ServerId,
        error: &AppError<'_>,
    ) -> ErrorOutcome {
        let mut state = self.state.lock();
        let now = self.now();
        self.events.push_with(now, EventName::Input, || {
            EventKind::Input(Arc::new(RecordedInput::of_error(server, error)))
        });
        let (outcome, effects) = state.machine.handle_error(now, server, error);
        let aftermath = self.run(&mut state, now, effects);
        drop(state);
        self.finish(aftermath);
        outcome
    }

    /// Closes the topology; tasks end soon after.
    pub(crate) fn shut_down(self: &Arc<Self>) {
        let mut panic = HeldPanic::default();
        panic.catch(|| self.apply(Input::Close));
        if self.monitors.close() {
            self.events.close();
        }
        panic.resume();
    }

    /// Requests a check from every monitor.
    pub(crate) fn request_checks(&self) {
        for server in self.snapshot.load().servers.iter() {
            server.mailbox.check();
        }
    }

    /// Counts the end of a monitoring task. The last one of a closed topology closes the queue.
    pub(crate) fn monitor_ended(&self) {
        if self.monitors.end() {
            self.events.close();
        }
    }

    /// Runs effects in order, under the lock.
    fn run(self: &Arc<Self>, state: &mut State, now: Instant, effects: Effects) -> Aftermath {
        let mut aftermath = Aftermath::default();
        let moved = effects.iter().any(|effect| {
            matches!(
                effect,
                Effect::OpenServer { .. } | Effect::CloseServer { .. }
            )
        });
        for effect in effects {
            match effect {
                Effect::OpenServer {
                    server: id,
                    address,
                    monitored,
                } => {
                    let server = self.open_server(id, address, &mut aftermath.panic);
                    if monitored {
                        // Counted under the lock, so that closing waits for this monitor, too.
                        let server = Arc::clone(&server);
                        aftermath
                            .monitors
                            .push(Monitor::new(Arc::clone(self), server));
                    }
                    state.servers.insert(id, server);
                }
                Effect::Publish(description) => {
                    self.publish(state, description, moved);
                    aftermath.published = true;
                }
                Effect::Emit(event) => {
                    remember(state, now, &event);
                    if event == EventKind::TopologyClosed {
                        report::close(&&**self);
                    }
                    self.events.push(now, event);
                }
                Effect::CloseServer { server } => {
                    if let Some(server) = state.servers.remove(&server) {
                        aftermath.panic.catch(|| server.core.pool.close());
                        server.stop();
                    }
                }
                Effect::PoolReady { server } => {
                    if let Some(server) = state.servers.get(&server) {
                        self.ready_pool(now, server, &mut aftermath.panic);
                    }
                }
                Effect::PoolClear { server, clear } => {
                    if let Some(server) = state.servers.get(&server) {
                        self.clear_pool(now, server, clear, &mut aftermath.panic);
                    }
                }
                Effect::ServerKnown { server, known } => {
                    if let Some(server) = state.servers.get(&server) {
                        server.set_known(known);
                    }
                }
                Effect::ResetRtt { server } => {
                    if let Some(server) = state.servers.get(&server) {
                        server.rtt().reset();
                    }
                }
                Effect::CancelCheck { server, generation } => {
                    if let Some(server) = state.servers.get(&server) {
                        server.mailbox.cancel(generation);
                    }
                }
                Effect::RequestCheck { server } => {
                    if let Some(server) = state.servers.get(&server) {
                        server.mailbox.check();
                    }
                }
            }
        }
        aftermath
    }

    /// Creates a server with its pool. If the pool factory panics, the server is still monitored.
    fn open_server(
        &self,
        id: ServerId,
        address: ServerAddress,
        panic: &mut HeldPanic,
    ) -> Arc<Server> {
        let pool = panic.catch(|| self.pools.create(id, &address));
        let pool = pool.unwrap_or_else(|| Arc::new(NoPools));
        Arc::new(Server::new(id, address, pool))
    }

    fn ready_pool(&self, now: Instant, server: &Server, panic: &mut HeldPanic) {
        panic.catch(|| server.core.pool.ready());
        self.events.push_with(now, EventName::PoolReady, || {
            let address = server.core.address.clone();
            EventKind::PoolReady {
                server: server.id(),
                address,
            }
        });
    }

    fn clear_pool(&self, now: Instant, server: &Server, clear: PoolClear, panic: &mut HeldPanic) {
        if clear.service_id.is_none() {
            server.set_generation(clear.generation);
        }
        panic.catch(|| server.core.pool.clear(&clear));
        self.events.push_with(now, EventName::PoolCleared, || {
            let address = server.core.address.clone();
            EventKind::PoolCleared {
                server: server.id(),
                address,
                clear,
            }
        });
    }

    /// Publishes `description` in a new snapshot. Reuses the previous snapshot's list of servers
    /// unless servers were added or removed.
    fn publish(&self, state: &mut State, description: Arc<TopologyDescription>, moved: bool) {
        state.version += 1;
        let servers = if moved {
            let of = |id| state.servers.get(&id).cloned();
            description
                .servers()
                .iter()
                .filter_map(|server| of(server.id))
                .collect()
        } else {
            Arc::clone(&self.snapshot.load().servers)
        };
        let closed = state.machine.is_closed();
        self.snapshot.store(Arc::new(Snapshot {
            version: state.version,
            description,
            servers,
            closed,
        }));
    }

    fn finish(&self, aftermath: Aftermath) {
        if aftermath.published {
            self.changed.notify(usize::MAX);
        }
        for monitor in aftermath.monitors {
            let task = Task::new("sdam-monitor", monitor.run());
            self.runtime.spawner.spawn(task);
        }
        aftermath.panic.resume();
    }
}

/// Records a server's error from its new description.
fn remember(state: &State, now: Instant, event: &EventKind) {
    if let EventKind::ServerDescriptionChanged { new, .. } = event
        && let Some(server) = state.servers.get(&new.id)
    {
        server.failures().observe(new, now);
    }
}
