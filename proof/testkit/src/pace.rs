//! A clock for tests with real sockets, which stands still while the machine lags.

use std::{
    error::Error as StdError,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bson::doc;
use futures::future::BoxFuture;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    time::{Instant, UnixTime},
};
use sdam_sim::serve::{Builder, ServeError, Server};
use sdam_transport::{
    async_trait,
    clock::Clock,
    connect::{Connection, Transport},
    race,
    runtime::Runtime,
    spawn::Task,
    wire::OpMsg,
    wrap::{Wrap, Wrapped},
};

/// A clock for tests with short time limits on a real runtime. It is slower than the system's by a
/// factor, and stands still while the machine lags. Clones are the same clock.
///
/// A task on the runtime asks a simulated server of its own for replies, one after another. They
/// take the way that the replies to the tests take: through the runtime's executor, sockets, and
/// the threads of a server. Each of them lets the clock advance by [`STEP`](Self::STEP) at most.
/// While one takes long, because other programs use the processor or many tests start at once, no
/// time passes for the tests.
#[derive(Clone, Debug)]
pub struct Pace {
    factor: u32,
    system: Arc<dyn Clock>,
    began: Instant,
    state: Arc<Mutex<State>>,
}

/// The time of the last reply, by both clocks.
#[derive(Debug)]
struct State {
    system: Instant,
    paced: Duration,
}

impl Pace {
    /// The time that passes between two replies at most.
    pub const STEP: Duration = Duration::from_millis(5);

    /// Returns a clock that is `factor` times slower than that of `runtime`. It advances while
    /// `runtime` runs, until its last clone is dropped.
    ///
    /// # Errors
    ///
    /// If the server whose replies let the clock advance cannot be started.
    pub fn start(runtime: &Runtime, factor: u32) -> Result<Self, ServeError> {
        let system = Arc::clone(&runtime.backend.clock);
        let began = system.now();
        let state = State { system: began, paced: Duration::ZERO };
        let pace = Self { factor, system, began, state: Arc::new(Mutex::new(state)) };
        let server = Builder::standalone().start()?;
        let (own, transport) = (pace.clone(), Arc::clone(&runtime.backend.transport));
        runtime.spawner.spawn(Task::new("pace", async move {
            if let Err(error) = own.advance(&server, &*transport).await {
                eprintln!("the clock of the tests stands still: {error}");
            }
        }));
        Ok(pace)
    }

    /// Returns `runtime` with this clock, by which its transport measures time limits, too.
    #[must_use]
    pub fn apply(&self, mut runtime: Runtime) -> Runtime {
        let backend = &mut runtime.backend;
        backend.clock = Arc::new(self.clone());
        let inner = Arc::clone(&backend.transport);
        backend.transport = Arc::new(Wrapped::new(inner, Limit(self.clone())));
        runtime
    }

    /// Returns how many times slower than the system's this clock has been so far.
    pub fn slowness(&self) -> f64 {
        let paced = self.now().since(Instant::EPOCH).as_secs_f64();
        self.system.now().since(self.began).as_secs_f64() / paced.max(f64::MIN_POSITIVE)
    }

    /// Asks `server` for replies until this is the last clone.
    async fn advance(
        &self,
        server: &Server,
        transport: &dyn Transport,
    ) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let (_, place) = server.places().first().ok_or("the server has no address")?;
        let mut connection = transport.connect(place, None).await?;
        let body = doc! { "ping": 1, "$db": "admin" }.to_vec()?;
        let ping = OpMsg { request_id: 1, body: &body, ..OpMsg::default() }.encode()?;
        while Arc::strong_count(&self.state) > 1 {
            connection.send(ping.clone()).await?;
            connection.recv().await?;
            self.step();
            // The next reply is due before the step ends.
            let pause = Self::STEP * self.factor / 4;
            self.system.sleep_until(self.system.now() + pause).await;
        }
        Ok(())
    }

    /// Lets the clock advance by another step.
    fn step(&self) {
        let mut state = self.lock();
        let system = self.system.now();
        *state = State { system, paced: self.at(&state, system) };
    }

    fn at(&self, state: &State, system: Instant) -> Duration {
        let passed = system.since(state.system) / self.factor;
        state.paced + passed.min(Self::STEP)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for Pace {
    fn now(&self) -> Instant {
        let state = self.lock();
        Instant::EPOCH + self.at(&state, self.system.now())
    }

    fn wall(&self) -> UnixTime {
        self.system.wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let pace = self.clone();
        Box::pin(async move {
            loop {
                let left = deadline.since(pace.now());
                if left.is_zero() {
                    return;
                }
                // A clock that stands still must not wake its sleepers all the time.
                let pause = left.max(Duration::from_millis(1)) * pace.factor;
                pace.system.sleep_until(pace.system.now() + pause).await;
            }
        })
    }
}

/// The time limit of connection attempts, by a clock that the transport does not know.
#[derive(Debug)]
struct Limit(Pace);

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
