//! A deterministic runtime: virtual time, a seeded scheduler, and a faulty network with DNS, TLS
//! and proxies in front of a simulated deployment.
//!
//! [`Sim`] implements the runtime traits of `sdam-transport`, so the program under test runs the
//! production code, framing included. One seed decides everything: the order in which ready tasks
//! are polled, latencies, how bytes are split, and elections. [`Sim::disturb`] adds behaviour that
//! the traits allow but that runs seldom show.
//!
//! Time stands still as long as any task is ready. It then jumps to the next timer or delivery.

mod disturbance;
mod dns;
mod executor;
mod network;
mod proxy;
mod socket;
mod state;
#[cfg(test)]
mod tests;
mod tls;

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};

use sdam_core::{address::ServerAddress, rng::Rng, time::Instant};
use sdam_transport::{
    clock::Clock,
    runtime::{Backend, Runtime},
};

pub use self::{
    disturbance::Disturbance,
    dns::{Dns, DnsFault},
    network::{DialLimit, Direction, Frame, Latency, Traffic, Verdict},
    proxy::{Proxies, ProxyFault},
    tls::{Certificate, TlsAcceptor, TlsFault, TlsMode, TlsServers, TlsSession},
};
use self::{
    disturbance::Disturbances,
    dns::SimResolver,
    executor::{Queue, SimClock, SimEntropy, SimSpawner},
    socket::SimDial,
    state::SimState,
};
use crate::{
    Action, Blueprint, Cluster, MemberId,
    action::{ActionError, Target},
    config::SetConfig,
    deployment::Status,
};

/// A simulated world: a deployment, a network, a clock, and the tasks of the program under test.
///
/// ```
/// use std::time::Duration;
///
/// use sdam_sim::{Blueprint, runtime::Sim};
///
/// let sim = Sim::new(42, &Blueprint::replica_set(3));
/// let clock = sim.runtime().backend.clock;
/// let before = clock.now();
/// sim.block_on(clock.sleep_until(before + Duration::from_secs(3600)));
/// assert_eq!(clock.now().since(before), Duration::from_secs(3600));
/// ```
pub struct Sim {
    shared: Arc<Shared>,
    runtime: Runtime,
}

/// The state shared by the parts of the runtime (clock, network, spawner and so on).
pub(crate) struct Shared {
    state: Mutex<SimState>,
    /// The queue is not protected by the lock of `state`, because wakers use the queue and are
    /// called while that lock is held.
    queue: Arc<Queue>,
    tasks: executor::Tasks,
}

/// The number of polls that counts as a busy loop if no time passes in between.
const MAX_POLLS_PER_INSTANT: u64 = 100_000;

impl Sim {
    /// Creates a simulation of the deployment that `blueprint` describes. `seed` decides every
    /// random choice.
    pub fn new(seed: u64, blueprint: &Blueprint) -> Self {
        let mut rng = Rng::new(seed);
        let deployment = Cluster::start(Instant::EPOCH, blueprint, rng.fork());
        let io_seed = rng.next_u64();
        let queue = Arc::new(Queue::new(rng.fork()));
        let shared = Arc::new(Shared {
            state: Mutex::new(SimState::new(deployment, rng.fork())),
            queue,
            tasks: executor::Tasks::default(),
        });
        let clock = Arc::new(SimClock { shared: Arc::clone(&shared), may_be_late: true });
        let dial = SimDial(Arc::clone(&shared));
        let resolver = SimResolver(Arc::clone(&shared));
        let mut backend = Backend::of_sockets(dial, clock, io_seed);
        backend.entropy = Arc::new(SimEntropy(Mutex::new(rng.fork())));
        backend.resolver = Some(Arc::new(resolver));
        #[cfg(feature = "tls")]
        {
            let (servers, program) = tls::rustls(Arc::clone(&backend.clock));
            TlsServers(&shared).accept_by(servers);
            backend.tls = Some(Arc::new(program));
        }
        let runtime = Runtime::new(backend, Arc::new(SimSpawner(Arc::clone(&shared))));
        Self { shared, runtime }
    }

    /// Returns the runtime for the program under test.
    pub fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// Returns the connection string of the deployment. It contains `tls=true` if the members
    /// [require](TlsServers::require) TLS.
    pub fn uri(&self) -> String {
        let state = self.shared.state();
        let mut uri = state.deployment.uri();
        if state.network.tls.is_required() {
            uri.push(if uri.contains('?') { '&' } else { '?' });
            uri.push_str("tls=true");
        }
        uri
    }

    /// Disturbs the simulation from now on: everything in [`Disturbance`] happens at random.
    /// Correct programs still work.
    ///
    /// `seed` decides when they happen, independently of the simulation's own seed, so a run is as
    /// reproducible as before. Each seed chooses about half of the disturbances, and makes them
    /// rare or frequent; a test should therefore run with many seeds.
    ///
    /// ```
    /// use sdam_core::address::ServerAddress;
    /// use sdam_sim::{Blueprint, runtime::Sim};
    ///
    /// for seed in 0..100 {
    ///     let sim = Sim::new(42, &Blueprint::standalone());
    ///     sim.disturb(seed);
    ///     // The program runs.
    /// }
    /// ```
    pub fn disturb(&self, seed: u64) {
        self.shared.state().disturbances = Disturbances::new(seed);
    }

    /// Returns the disturbances that have happened, in declaration order.
    pub fn disturbances(&self) -> Vec<Disturbance> {
        self.shared.state().disturbances.occurred.iter().copied().collect()
    }

    /// Returns a clock for the test itself. Unlike the program's timers, the timers of this clock
    /// are never late.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SimClock { shared: Arc::clone(&self.shared), may_be_late: false })
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.shared.state().now()
    }

    /// Runs the simulation until `future` is ready, and returns its result.
    ///
    /// # Panics
    ///
    /// If `future` is not ready although no event is pending (a deadlock), or if tasks keep running
    /// while no time passes.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.block_on_watching(future, |_| {})
    }

    /// Runs the simulation like [`block_on`](Self::block_on), and calls `watch` after every step. A
    /// step is a poll of a task, or a moment when no task is ready and time is about to pass.
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`block_on`](Self::block_on).
    pub fn block_on_watching<F: Future>(
        &self,
        future: F,
        mut watch: impl FnMut(SchedulerStep),
    ) -> F::Output {
        let mut future = pin!(future);
        let (main, waker) = self.shared.queue.main();
        let mut cx = std::task::Context::from_waker(&waker);
        self.shared.queue.wake(main);
        let mut steps = 0;
        loop {
            while let Some(task) = self.shared.next_task(main) {
                if task == main {
                    if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                        return output;
                    }
                } else {
                    self.shared.tasks.poll(task, &self.shared.queue);
                }
                steps += 1;
                assert!(
                    steps < MAX_POLLS_PER_INSTANT,
                    "a busy loop at {:?}: tasks are polled again and again without time passing",
                    self.now(),
                );
                watch(SchedulerStep::Polled);
            }
            watch(SchedulerStep::Idle);
            // Check the queue again, because the watcher may have woken a task.
            if self.shared.queue.is_empty() || self.shared.state().is_stalled() {
                steps = 0;
                assert!(
                    self.shared.change(SimState::advance),
                    "deadlock at {:?}: the program waits, but no timer or delivery is pending",
                    self.now(),
                );
            }
        }
    }

    /// Advances virtual time by `duration`.
    pub fn run_for(&self, duration: Duration) {
        let deadline = self.now() + duration;
        self.block_on(self.clock().sleep_until(deadline));
    }

    /// Stops all tasks of the program for `duration`, as if its host were suspended. Time passes
    /// and bytes arrive, but no task runs, not even the future passed to
    /// [`block_on`](Self::block_on).
    pub fn stall(&self, duration: Duration) {
        self.shared.state().stall(duration);
    }

    /// Applies `action` to the deployment. The effects of the action take virtual time.
    ///
    /// # Errors
    ///
    /// If the action is not possible in the current state.
    pub fn apply(&self, action: &Action) -> Result<(), ActionError> {
        self.shared.change(|state| state.apply(action))
    }

    /// Makes the primary step down. The old primary does not run for election for ten seconds.
    ///
    /// # Errors
    ///
    /// If there is no primary.
    pub fn step_down(&self) -> Result<(), ActionError> {
        self.apply(&Action::StepDown { period: Duration::from_secs(10) })
    }

    /// Kills the process, which closes its connections.
    ///
    /// # Errors
    ///
    /// If the process is not running.
    pub fn kill(&self, member: impl Into<Target>) -> Result<(), ActionError> {
        self.apply(&Action::Kill(member.into()))
    }

    /// Restarts the process.
    ///
    /// # Errors
    ///
    /// If there is no such member.
    pub fn restart(&self, member: impl Into<Target>) -> Result<(), ActionError> {
        self.apply(&Action::Restart(member.into()))
    }

    /// Returns the member that `target` currently refers to.
    pub(crate) fn member(&self, target: Target) -> Result<MemberId, ActionError> {
        self.shared.state().deployment.target(target)
    }

    /// Returns the true state of the deployment.
    pub fn status(&self) -> Status {
        self.shared.state().deployment.status()
    }

    /// Returns the newest configuration that a running member of the replica set has.
    pub fn config(&self) -> Option<SetConfig> {
        self.shared.state().deployment.config()
    }

    /// Returns the controls of the network between the program and the deployment.
    pub fn network(&self) -> Network<'_> {
        Network(&self.shared)
    }

    /// Returns the controls of the DNS that the program uses to look up hosts and seed lists.
    pub fn dns(&self) -> Dns<'_> {
        Dns(&self.shared)
    }

    /// Returns the controls of the members' TLS.
    pub fn tls(&self) -> TlsServers<'_> {
        TlsServers(&self.shared)
    }

    /// Returns the controls of the proxies.
    pub fn proxies(&self) -> Proxies<'_> {
        Proxies(&self.shared)
    }

    /// Returns the number of live tasks of the program.
    pub fn tasks(&self) -> usize {
        self.shared.tasks.len()
    }

    /// Returns the number of connections that the program holds open.
    pub fn connections(&self) -> usize {
        self.shared.state().network.sockets.len()
    }

    /// Returns the number of pending timers of the program.
    pub fn timers(&self) -> usize {
        self.shared.state().timers.len()
    }

    /// Returns a hash of the run so far, which covers every choice of the scheduler, every frame,
    /// and every advance of time. Two runs with the same seed and program have the same hash.
    pub fn trace(&self) -> u64 {
        self.shared.state().trace.hash
    }

    /// Returns the number of steps in the trace.
    pub fn steps(&self) -> u64 {
        self.shared.state().trace.steps
    }
}

impl Drop for Sim {
    /// Drops the tasks one by one. No lock is held, because dropping a task may use the runtime.
    fn drop(&mut self) {
        self.shared.tasks.clear();
    }
}

/// A step after which the function passed to `block_on_watching` is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerStep {
    /// A task was polled.
    Polled,
    /// No task is ready, and time is about to pass.
    Idle,
}

/// Controls faults in the network between the program and the deployment.
#[derive(Clone, Copy, Debug)]
pub struct Network<'s>(&'s Shared);

impl Network<'_> {
    /// Sets the latency of the network, and decides whether messages are split.
    pub fn set_latency(&self, latency: Latency) {
        self.0.state().network.latency = latency;
    }

    /// Starts or stops refusing new connections to `member`.
    pub fn refuse(&self, member: MemberId, refuse: bool) {
        self.0.state().network.port_mut(member).refuse = refuse;
    }

    /// Starts or stops silently dropping all bytes between the program and `member`. A connection
    /// that has lost bytes stays dead even when bytes are delivered again.
    pub fn blackhole(&self, member: MemberId, blackhole: bool) {
        self.0.state().network.port_mut(member).blackhole = blackhole;
    }

    /// Sets the limit on new connections for every member. `None`, the default, means that there is
    /// no limit. Proxies are not limited.
    pub fn limit_dials(&self, limit: Option<DialLimit>) {
        let network = &mut self.0.state().network;
        network.limit = limit;
        network.limiters.clear();
    }

    /// Opens a port forwarder, such as a tunnel, from `place` to `member`. The forwarder itself
    /// never fails.
    pub fn forward(&self, place: ServerAddress, member: MemberId) {
        self.0.state().network.forwarders.insert(place, member);
    }

    /// Makes every new connection to `member` break with a reset after the member has sent this
    /// many bytes. `None` turns this off.
    pub fn reset_after(&self, member: MemberId, bytes: Option<usize>) {
        self.0.state().network.port_mut(member).reset_after = bytes;
    }

    /// Resets every connection to `member`.
    pub fn reset(&self, member: MemberId) {
        self.0.change(|state| state.reset_sockets(|socket| socket.leads_to(member)));
    }

    /// Resets every connection to `member` that has carried nothing for `time`, as a proxy or a
    /// firewall does. Returns the number of these connections.
    pub fn reset_idle(&self, member: MemberId, time: Duration) -> usize {
        self.0.change(|state| {
            let now = state.now();
            let is_idle = |last: &Instant| *last + time <= now;
            state.reset_sockets(|socket| {
                socket.leads_to(member) && socket.last_arrival.iter().all(is_idle)
            })
        })
    }

    /// Ends all faults of the network, DNS, TLS handshakes and proxies. DNS records and
    /// certificates stay as they are. Connections that have lost bytes stay dead.
    pub fn heal(&self) {
        self.0.state().network.heal();
    }

    /// Returns statistics about the program's traffic so far.
    pub fn traffic(&self) -> Traffic {
        self.0.state().network.traffic
    }

    /// Adds `rule`, which is called for every later frame. If several rules apply to a frame, the
    /// first one that does not return [`Verdict::Pass`] decides.
    pub fn add_rule(&self, rule: impl FnMut(&Frame<'_>) -> Verdict + Send + 'static) {
        self.0.state().network.rules.push(Box::new(rule));
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, SimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and then wakes the tasks that are affected.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut SimState) -> T) -> T {
        let mut state = self.state();
        let done = change(&mut state);
        let woken = std::mem::take(&mut state.woken);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        done
    }
}

sdam_core::opaque!(Shared);
sdam_core::opaque!(Sim, |this| now: this.now());
