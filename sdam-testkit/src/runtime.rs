//! The parts of a runtime for tests: a clock that only tests advance, a thread that advances such a
//! clock in tests with real sockets, and spawners.

use std::{
    collections::BTreeMap,
    fs,
    future::Future,
    io, mem,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant as SystemInstant},
};

use futures::future::BoxFuture;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    time::{Instant, UnixTime},
};
use sdam_transport::{
    async_trait,
    clock::Clock,
    connect::{Connection, Transport, Wrap, Wrapped},
    race,
    runtime::Runtime,
    spawn::{Spawner, Task},
};

/// A clock that advances only on request. Clones share the same time.
///
/// ```
/// use std::time::Duration;
/// use futures::FutureExt;
/// use sdam_core::time::Instant;
/// use sdam_testkit::ManualClock;
/// use sdam_transport::clock::Clock;
///
/// let clock = ManualClock::default();
/// let mut timer = clock.sleep_until(Instant::from_millis(10));
/// assert!((&mut timer).now_or_never().is_none());
/// clock.advance(Duration::from_millis(10));
/// assert!(timer.now_or_never().is_some());
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Mutex<ClockState>>);

#[derive(Debug, Default)]
struct ClockState {
    now: Instant,
    jumps: bool,
    /// True if the next timer that is polled stays pending at that poll, even on a jumping clock.
    held: bool,
    last_sleeper: u64,
    /// The wakers of pending timers, ordered by deadline and then by creation.
    sleepers: BTreeMap<(Instant, u64), Waker>,
}

impl ManualClock {
    /// Creates a clock that jumps to the deadline of each timer that is polled, so that no timer is
    /// ever pending. Such a clock is suitable for code that waits for only one thing at a time.
    pub fn jumping() -> Self {
        let clock = Self::default();
        clock.lock().jumps = true;
        clock
    }

    /// Returns whether the clock jumps to the deadline of each polled timer.
    pub fn is_jumping(&self) -> bool {
        self.lock().jumps
    }

    /// Makes the next timer that is polled pending at that poll, even though the clock jumps.
    pub fn hold_next_timer(&self) {
        self.lock().held = true;
    }

    /// Advances by `time` and wakes the expired timers.
    pub fn advance(&self, time: Duration) {
        let end = self.lock().now + time;
        self.advance_to(end);
    }

    /// Advances to `instant`, unless that time has passed, and wakes the expired timers.
    pub fn advance_to(&self, instant: Instant) {
        let mut state = self.lock();
        let now = state.now.max(instant);
        state.now = now;
        let later = state.sleepers.split_off(&(now, u64::MAX));
        let woken = mem::replace(&mut state.sleepers, later);
        drop(state);
        for waker in woken.into_values() {
            waker.wake();
        }
    }

    /// Returns the deadline of the next timer.
    pub fn next_deadline(&self) -> Option<Instant> {
        let state = self.lock();
        state.sleepers.keys().next().map(|(deadline, _)| *deadline)
    }

    fn lock(&self) -> MutexGuard<'_, ClockState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.lock().now
    }

    fn wall(&self) -> UnixTime {
        UnixTime::from_millis(self.now().as_nanos() / 1_000_000)
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let mut state = self.lock();
        state.last_sleeper += 1;
        Box::pin(Sleep { clock: self.clone(), key: (deadline, state.last_sleeper) })
    }
}

struct Sleep {
    clock: ManualClock,
    key: (Instant, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.lock();
        if state.now >= self.key.0 {
            return Poll::Ready(());
        }
        if state.jumps && !mem::take(&mut state.held) {
            drop(state);
            self.clock.advance_to(self.key.0);
            return Poll::Ready(());
        }
        state.sleepers.insert(self.key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.clock.lock().sleepers.remove(&self.key);
        drop(waker);
    }
}

/// Advances a clock for tests with short time limits on a real runtime, but not while a thread of
/// this process waits for a processor.
///
/// On an idle machine, the clock runs at half the speed of the system's clock. The threads of this
/// process are inspected in turn. Once a thread is found that runs or could run, the clock stands
/// still until that thread is found waiting. A busy machine therefore makes tests slower, but no
/// time limit passes because of it: each message that was sent on loopback has made its reader able
/// to run.
///
/// On a system that does not expose the state of threads as Linux does, the clock never stands
/// still.
#[derive(Debug)]
pub struct Pace {
    clock: ManualClock,
    began: SystemInstant,
    /// The clock advances until this value is dropped.
    alive: Arc<()>,
}

impl Pace {
    /// The maximum time by which the clock advances at once.
    pub const STEP: Duration = Duration::from_millis(5);

    /// The name of the threads that advance clocks.
    const NAME: &str = "pace";

    /// The time between two inspections of threads.
    const REST: Duration = Duration::from_millis(4);

    /// The number of inspections in which each thread is inspected once.
    const TURNS: usize = 16;

    /// Starts a clock, which advances until this value is dropped.
    ///
    /// # Errors
    ///
    /// If the thread that advances the clock cannot be started.
    pub fn start() -> io::Result<Self> {
        let pace = Self {
            clock: ManualClock::default(),
            began: SystemInstant::now(),
            alive: Arc::default(),
        };
        let (clock, alive) = (pace.clock(), Arc::downgrade(&pace.alive));
        thread::Builder::new().name(Self::NAME.into()).spawn(move || advance(&clock, &alive))?;
        Ok(pace)
    }

    /// Returns the clock.
    pub fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    /// Returns `runtime` with this clock. Its transport also measures time limits by this clock.
    #[must_use]
    pub fn apply(&self, mut runtime: Runtime) -> Runtime {
        let backend = &mut runtime.backend;
        backend.clock = Arc::new(self.clock());
        let inner = Arc::clone(&backend.transport);
        backend.transport = Arc::new(Wrapped::new(inner, Limit(self.clock())));
        runtime
    }

    /// Returns the factor by which the clock has been slower than the system's clock so far.
    pub fn slowness(&self) -> f64 {
        let passed = self.clock.now().since(Instant::EPOCH).as_secs_f64();
        self.began.elapsed().as_secs_f64() / passed.max(f64::MIN_POSITIVE)
    }
}

/// Advances `clock` while `alive` exists.
fn advance(clock: &ManualClock, alive: &Weak<()>) {
    let mut last = SystemInstant::now();
    let mut busy: Vec<PathBuf> = Vec::new();
    for turn in (0..Pace::TURNS).cycle() {
        if alive.strong_count() == 0 {
            return;
        }
        busy.retain(|thread| is_runnable(thread));
        busy.extend(threads().skip(turn).step_by(Pace::TURNS).filter(|it| is_runnable(it)));
        let now = SystemInstant::now();
        if busy.is_empty() {
            clock.advance(Pace::STEP.min((now - last) / 2));
        }
        last = now;
        thread::park_timeout(Pace::REST);
    }
}

/// Returns the files with the states of this process's threads.
fn threads() -> impl Iterator<Item = PathBuf> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    threads.filter_map(Result::ok).map(|thread| thread.path().join("stat"))
}

/// Returns whether a thread runs, could run or waits for a disk. A thread that advances a clock, or
/// that has ended, counts as waiting.
fn is_runnable(thread: &Path) -> bool {
    let stat = fs::read_to_string(thread).unwrap_or_default();
    let Some((head, state)) = stat.rsplit_once(") ") else { return false };
    let name = head.split_once('(').map(|(_, name)| name);
    state.starts_with(['R', 'D']) && name != Some(Pace::NAME)
}

/// Limits the time of connection attempts, as measured by a clock that the transport does not know.
#[derive(Debug)]
struct Limit(ManualClock);

#[async_trait]
impl Wrap for Limit {
    async fn connect(
        &self,
        inner: &dyn Transport,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        let late = (Stage::Connect, "the connection was not established in time");
        race::within(&self.0, deadline, late, inner.connect(target, None)).await
    }
}

/// A spawner that keeps tasks until they are taken. Clones share the tasks.
#[derive(Clone, Debug, Default)]
pub struct HeldTasks(Arc<Mutex<Vec<Task>>>);

impl HeldTasks {
    /// Removes and returns the tasks that were spawned since the last call, in order.
    pub fn take(&self) -> Vec<Task> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Task>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spawner for HeldTasks {
    fn spawn(&self, task: Task) {
        self.lock().push(task);
    }
}

/// A spawner that drops every task, like a runtime that has ended.
#[derive(Clone, Copy, Debug)]
pub struct DroppedTasks;

impl Spawner for DroppedTasks {
    fn spawn(&self, task: Task) {
        drop(task);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn timers_are_woken_at_their_deadline_and_forgotten_when_dropped() {
        let clock = ManualClock::default();
        let at = |millis: u64| Instant::from_millis(millis);
        let mut early = clock.sleep_until(at(10));
        let mut late = clock.sleep_until(at(20));
        assert_eq!(early.as_mut().now_or_never(), None);
        assert_eq!(late.as_mut().now_or_never(), None);
        assert_eq!(clock.next_deadline(), Some(at(10)));
        clock.advance_to(at(10));
        assert_eq!(early.as_mut().now_or_never(), Some(()));
        assert_eq!(late.as_mut().now_or_never(), None);
        assert_eq!(clock.next_deadline(), Some(at(20)));
        drop(late);
        assert_eq!(clock.next_deadline(), None);
        clock.advance_to(at(5));
        assert_eq!(clock.now(), at(10));
        assert_eq!(clock.now() + Duration::from_millis(1), at(11));
        assert_eq!(clock.wall(), UnixTime::from_millis(10));
    }

    #[test]
    fn a_clock_that_jumps_advances_to_each_timer_unless_it_is_held() {
        let clock = ManualClock::jumping();
        let deadline = Instant::from_millis(10);
        clock.hold_next_timer();
        let mut timer = clock.sleep_until(deadline);
        assert_eq!(timer.as_mut().now_or_never(), None);
        assert_eq!(clock.now(), Instant::EPOCH);
        assert_eq!(timer.now_or_never(), Some(()));
        assert_eq!(clock.now(), deadline);
    }
}
