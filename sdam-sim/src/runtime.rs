//! A deterministic runtime: virtual time, a seeded scheduler, a faulty network, and a simulated
//! deployment at its other end.
//!
//! [`Sim`] implements the seams of `sdam-transport`, so the program under test is the one that runs
//! in production, framing included. One seed decides everything that happens: the order in which
//! tasks that are ready are polled, latencies, how bytes are cut, elections.
//!
//! Time stands still while anything is ready and then jumps to whatever comes next.

mod clock;
mod dial;
mod executor;
mod network;
mod stream;
#[cfg(test)]
mod tests;
mod trace;
mod world;

use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sdam_core::{rng::Rng, time::Instant};
use sdam_transport::{
    net::NetTransport,
    runtime::{Io, Runtime},
};

pub use self::network::{Direction, Frame, Latency, Verdict};
use self::{
    clock::SimClock,
    dial::SimDial,
    executor::{Queue, SimSpawner},
    world::World,
};
use crate::{
    Action, Blueprint, Deployment, MemberId,
    action::{ActionError, Target},
    config::SetConfig,
    deployment::Status,
};

/// A simulated world: a deployment, a network, a clock, and the tasks of the program under test.
///
/// ```
/// use std::time::Duration;
///
/// use sdam_sim::{config::SetConfig, runtime::Sim, Blueprint};
/// use sdam_core::address::ServerAddress;
///
/// let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
/// let sim = Sim::new(42, &Blueprint::replica_set(SetConfig::new("rs", hosts)));
/// let clock = sim.runtime().io.clock;
/// let before = clock.now();
/// sim.block_on(clock.sleep_until(before + Duration::from_secs(3600)));
/// assert_eq!(clock.now().since(before), Duration::from_secs(3600));
/// ```
pub struct Sim {
    shared: Arc<Shared>,
    runtime: Runtime,
}

/// What the seams share.
pub(crate) struct Shared {
    world: Mutex<World>,
    /// Apart from the world, because wakers are called while it is locked.
    queue: Arc<Queue>,
    tasks: executor::Tasks,
}

/// How long a task may go on without time passing before it counts as a busy loop.
const STEPS_AT_ONE_INSTANT: u64 = 100_000;

impl Sim {
    /// A world with the deployment of `blueprint`, in which everything descends from `seed`.
    pub fn new(seed: u64, blueprint: &Blueprint) -> Self {
        let mut rng = Rng::new(seed);
        let deployment = Deployment::start(Instant::EPOCH, blueprint, rng.fork());
        let entropy = rng.next_u64();
        let queue = Arc::new(Queue::new(rng.fork()));
        let shared = Arc::new(Shared {
            world: Mutex::new(World::new(deployment, rng.fork())),
            queue,
            tasks: executor::Tasks::default(),
        });
        let clock = Arc::new(SimClock::new(Arc::clone(&shared)));
        let transport = NetTransport::new(SimDial::new(Arc::clone(&shared)), clock.clone());
        let io = Io::new(clock, Arc::new(transport), entropy);
        let runtime = Runtime::new(io, Arc::new(SimSpawner::new(Arc::clone(&shared))));
        Self { shared, runtime }
    }

    /// The runtime to start the program under test on.
    pub fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// The connection string of the deployment.
    pub fn uri(&self) -> String {
        self.shared.world().deployment.uri()
    }

    /// What time it is.
    pub fn now(&self) -> Instant {
        self.shared.world().now()
    }

    /// Runs the world until `future` is ready.
    ///
    /// # Panics
    ///
    /// If nothing will ever happen again and `future` is not ready, or if tasks go on for ever
    /// without time passing.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.block_on_watching(future, |_| {})
    }

    /// As [`block_on`](Self::block_on), and calls `watch` after every step: each poll of a task, and
    /// each time that nothing is ready, just before time passes.
    ///
    /// # Panics
    ///
    /// As [`block_on`](Self::block_on).
    pub fn block_on_watching<F: Future>(
        &self,
        future: F,
        mut watch: impl FnMut(Step),
    ) -> F::Output {
        let mut future = pin!(future);
        let (main, waker) = self.shared.queue.main();
        let mut cx = std::task::Context::from_waker(&waker);
        self.shared.queue.wake(main);
        let mut steps = 0;
        loop {
            while let Some(task) = self.shared.queue.next() {
                self.shared.world().trace.task(task);
                if task == main {
                    if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                        return output;
                    }
                } else {
                    self.shared.tasks.poll(task, &self.shared.queue);
                }
                steps += 1;
                assert!(
                    steps < STEPS_AT_ONE_INSTANT,
                    "a busy loop at {:?}: tasks go on without time passing",
                    self.now(),
                );
                watch(Step::Polled);
            }
            watch(Step::Idle);
            // The watcher may have woken somebody.
            if self.shared.queue.is_empty() {
                steps = 0;
                let wakers = self.shared.world().pass_time();
                assert!(
                    wakers.is_some(),
                    "nothing will ever happen again at {:?}, and the program waits",
                    self.now(),
                );
                wakers
                    .into_iter()
                    .flatten()
                    .for_each(std::task::Waker::wake);
            }
        }
    }

    /// Lets `duration` pass.
    pub fn run_for(&self, duration: Duration) {
        let deadline = self.now() + duration;
        self.block_on(self.runtime.io.clock.sleep_until(deadline));
    }

    /// Does something to the deployment; what follows takes its time.
    ///
    /// # Errors
    ///
    /// If it is not possible at this moment.
    pub fn apply(&self, action: &Action) -> Result<(), ActionError> {
        let wakers = self.shared.world().act(action)?;
        wakers.into_iter().for_each(std::task::Waker::wake);
        Ok(())
    }

    /// The primary steps down and does not run again for ten seconds.
    ///
    /// # Errors
    ///
    /// If there is no primary.
    pub fn step_down(&self) -> Result<(), ActionError> {
        self.apply(&Action::StepDown {
            period: Duration::from_secs(10),
        })
    }

    /// The process dies, and its connections with it.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn kill(&self, member: impl Into<Target>) -> Result<(), ActionError> {
        self.apply(&Action::Kill(member.into()))
    }

    /// The process starts again.
    ///
    /// # Errors
    ///
    /// If there is no such member.
    pub fn restart(&self, member: impl Into<Target>) -> Result<(), ActionError> {
        self.apply(&Action::Restart(member.into()))
    }

    /// The true state of the deployment.
    pub fn status(&self) -> Status {
        self.shared.world().deployment.status()
    }

    /// The newest configuration that a running member of the replica set knows.
    pub fn config(&self) -> Option<SetConfig> {
        self.shared.world().deployment.config()
    }

    /// The network between the program and the deployment.
    pub fn network(&self) -> Network<'_> {
        Network(&self.shared)
    }

    /// How many tasks of the program are alive.
    pub fn tasks(&self) -> usize {
        self.shared.tasks.len()
    }

    /// How many connections the program holds open.
    pub fn connections(&self) -> usize {
        self.shared.world().network.open_links()
    }

    /// How many timers the program waits for.
    pub fn timers(&self) -> usize {
        self.shared.world().timers()
    }

    /// A hash of everything that has happened: every choice of the scheduler, every frame, every
    /// passing of time. Two runs with the same seed and program yield the same.
    pub fn trace(&self) -> u64 {
        self.shared.world().trace.hash()
    }

    /// How many events the trace has seen.
    pub fn steps(&self) -> u64 {
        self.shared.world().trace.steps()
    }
}

impl Drop for Sim {
    /// Drops tasks one by one, outside of every lock: what they hold may use the seams.
    fn drop(&mut self) {
        self.shared.tasks.clear();
    }
}

/// When a watcher is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A task was polled.
    Polled,
    /// Nothing is ready; time is about to pass.
    Idle,
}

/// What the network does to the program's connections.
#[derive(Clone, Copy)]
pub struct Network<'s>(&'s Shared);

impl Network<'_> {
    /// How long bytes take, and how finely they are cut.
    pub fn set_latency(&self, latency: Latency) {
        self.0.world().network.latency = latency;
    }

    /// New connections to `member` are refused, or not.
    pub fn refuse(&self, member: MemberId, refuse: bool) {
        self.0.world().network.door_mut(member).refuse = refuse;
    }

    /// Nothing passes between the program and `member`, and nothing says so; connections that lost
    /// bytes stay dead.
    pub fn blackhole(&self, member: MemberId, blackhole: bool) {
        self.0.world().network.door_mut(member).blackhole = blackhole;
    }

    /// Every new connection to `member` is reset after that many bytes from the server.
    pub fn reset_after(&self, member: MemberId, bytes: Option<usize>) {
        self.0.world().network.door_mut(member).reset_after = bytes;
    }

    /// Look-ups of host names take that long; `None`: they fail.
    pub fn set_dns(&self, delay: Option<Duration>) {
        self.0.world().network.dns = delay;
    }

    /// Resets every connection to `member`.
    pub fn reset(&self, member: MemberId) {
        let wakers = self.0.world().reset(member);
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Ends all faults of the network. Connections that lost bytes stay dead.
    pub fn heal(&self) {
        self.0.world().network.heal();
    }

    /// Lets `rule` judge every frame from now on; of several rules the first that does not let it
    /// pass decides.
    pub fn add_rule(&self, rule: impl FnMut(&Frame<'_>) -> Verdict + Send + 'static) {
        self.0.world().network.rules.push(Box::new(rule));
    }
}

impl Shared {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Network<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}
