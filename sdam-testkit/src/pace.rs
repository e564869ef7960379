//! The pace of a clock for tests with real sockets.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant as SystemInstant},
};

use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    time::Instant,
};
use sdam_transport::{
    async_trait,
    clock::Clock,
    connect::{Connection, Transport},
    race,
    runtime::Runtime,
    wrap::{Wrap, Wrapped},
};

use crate::ManualClock;

/// Advances a clock for tests with short time limits on a real runtime, but not while a thread of
/// this process lacks a processor.
///
/// On an idle machine the clock runs at half of the speed of the system's. It looks at the threads in
/// turn, and stands still from the moment it finds one that runs or could run until it finds it
/// waiting. So a busy machine makes tests slower, and no limit passes because of it: each message
/// that was sent on loopback has made its reader able to run.
///
/// Where the system does not tell the state of threads as Linux does, nothing stops the clock.
#[derive(Debug)]
pub struct Pace {
    clock: ManualClock,
    began: SystemInstant,
    /// The clock advances until this value is dropped.
    alive: Arc<()>,
}

impl Pace {
    /// The time by which the clock advances at once, at most.
    pub const STEP: Duration = Duration::from_millis(5);

    /// The name of the threads that advance clocks.
    const NAME: &str = "pace";

    /// The time between two looks at threads.
    const REST: Duration = Duration::from_millis(4);

    /// The number of looks in which all threads have their turn.
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

    /// Returns `runtime` with the clock, by which its transport measures time limits, too.
    #[must_use]
    pub fn apply(&self, mut runtime: Runtime) -> Runtime {
        let backend = &mut runtime.backend;
        backend.clock = Arc::new(self.clock());
        let inner = Arc::clone(&backend.transport);
        backend.transport = Arc::new(Wrapped::new(inner, Limit(self.clock())));
        runtime
    }

    /// Returns how many times slower than the system's the clock has been so far.
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

/// Returns whether a thread runs or could run, or waits for a disk. One that advances a clock counts
/// as waiting, and so does one that has ended.
fn is_runnable(thread: &Path) -> bool {
    let stat = fs::read_to_string(thread).unwrap_or_default();
    let Some((head, state)) = stat.rsplit_once(") ") else { return false };
    let name = head.split_once('(').map(|(_, name)| name);
    state.starts_with(['R', 'D']) && name != Some(Pace::NAME)
}

/// The time limit of connection attempts, by a clock that the transport does not know.
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
