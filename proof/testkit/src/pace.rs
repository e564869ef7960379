//! The pace of a clock for tests with real sockets.

use std::{
    error::Error as StdError,
    fs,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use bson::doc;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    time::Instant,
};
use sdam_sim::serve::{Builder, ServeError, Server};
use sdam_transport::{
    async_trait,
    clock::Clock,
    connect::{Connection, Transport},
    race,
    runtime::Runtime,
    spawn::Task,
    testing::ManualClock,
    wire::OpMsg,
    wrap::{Wrap, Wrapped},
};

/// Advances a clock for tests with short time limits on a real runtime. The clock is slower than
/// the system's by a factor, times the number of threads that share a core of the machine, and it
/// stands still while the machine lags.
///
/// A task on the runtime asks a simulated server of its own for replies, one after another. They
/// take the way that the replies to the tests take: through the runtime's executor, sockets, and
/// the threads of a server. With each of them, the clock advances by [`STEP`](Self::STEP) at most.
/// While one takes long, because other programs use the processor or many tests start at once, no
/// time passes for the tests.
#[derive(Debug)]
pub struct Pace {
    clock: ManualClock,
    system: Arc<dyn Clock>,
    /// The time of `system` at which `clock` began.
    began: Instant,
    /// The clock advances until this value is dropped.
    alive: Arc<()>,
}

impl Pace {
    /// The time that passes between two replies at most.
    pub const STEP: Duration = Duration::from_millis(5);

    /// Starts a clock that is at least `factor` times slower than that of `runtime`. It advances
    /// while `runtime` runs, until this value is dropped.
    ///
    /// # Errors
    ///
    /// If the server whose replies let the clock advance cannot be started.
    pub fn start(runtime: &Runtime, factor: u32) -> Result<Self, ServeError> {
        let server = Builder::standalone().start()?;
        let (clock, system) = (ManualClock::default(), Arc::clone(&runtime.backend.clock));
        let pace = Self { clock, began: system.now(), system, alive: Arc::default() };
        let advance = advance(
            (pace.clock.clone(), Arc::clone(&pace.system)),
            Arc::downgrade(&pace.alive),
            factor,
            server,
            Arc::clone(&runtime.backend.transport),
        );
        runtime.spawner.spawn(Task::new("pace", async {
            if let Err(error) = advance.await {
                eprintln!("the clock of the tests stands still: {error}");
            }
        }));
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
        self.system.now().since(self.began).as_secs_f64() / passed.max(f64::MIN_POSITIVE)
    }
}

/// Advances `clock` with the replies of `server` while `alive` exists.
async fn advance(
    (clock, system): (ManualClock, Arc<dyn Clock>),
    alive: Weak<()>,
    factor: u32,
    server: Server,
    transport: Arc<dyn Transport>,
) -> Result<(), Box<dyn StdError + Send + Sync>> {
    let (_, place) = server.places().first().ok_or("the server has no address")?;
    let mut connection = transport.connect(place, None).await?;
    let body = doc! { "ping": 1, "$db": "admin" }.to_vec()?;
    let ping = OpMsg { request_id: 1, body: &body, ..OpMsg::default() }.encode()?;
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let mut last = system.now();
    while alive.strong_count() > 0 {
        connection.send(ping.clone()).await?;
        connection.recv().await?;
        let now = system.now();
        let threads = runnable().map_or(1, |threads| threads.div_ceil(cores));
        clock.advance(Pace::STEP.min(now.since(last) / factor / threads));
        // On an idle machine, a step takes several replies.
        system.sleep_until(last + Pace::STEP * factor / 4).await;
        last = now;
    }
    Ok(())
}

/// Returns the number of threads of the machine that run or could run, where the system tells it as
/// Linux does.
fn runnable() -> Option<u32> {
    let loads = fs::read_to_string("/proc/loadavg").ok()?;
    let (running, _) = loads.split(' ').nth(3)?.split_once('/')?;
    running.parse().ok()
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
