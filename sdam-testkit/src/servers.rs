mod connection;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::channel::oneshot;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    time::Instant,
};
use sdam_transport::{
    async_trait,
    clock::Clock,
    connect::{Connection, Transport},
};

use self::connection::ServerConnection;
pub use self::connection::reply_to;
use crate::{ManualClock, server::Server};

/// A transport without a network. It connects to servers whose behaviour a test sets and changes.
/// Clones share the state.
///
/// With a jumping clock, no future is ever pending unless [`stall`](Self::stall) was called: a
/// delayed reply advances the clock, and a silent server advances it to the connection's deadline.
#[derive(Clone, Debug)]
pub struct Servers {
    clock: ManualClock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// The behaviour of every server whose behaviour the test has not set.
    unknown: Server,
    ports: BTreeMap<ServerAddress, Port>,
    /// True if connections wait to be admitted.
    holds_connections: bool,
    waiting: Vec<Waiting>,
    log: Vec<String>,
    open: usize,
    /// The number of connections opened so far.
    opened: i64,
    /// The number of upcoming calls to `recv` that will be pending at their first poll.
    stalls: usize,
}

/// A server, its current process, and the times at which it answered.
#[derive(Debug)]
struct Port {
    server: Server,
    /// The number of the current process. Connections to an earlier process are broken.
    process: u64,
    answered: Vec<Instant>,
}

/// A waiting connection attempt or request.
#[derive(Debug)]
struct Waiting {
    address: ServerAddress,
    is_request: bool,
    wake: oneshot::Sender<Wake>,
}

/// The reason why a connection attempt or request stops waiting.
#[derive(Debug)]
enum Wake {
    /// The server has changed.
    Changed,
    /// The connection is opened.
    Admitted,
    /// The request is answered with this reply; `None` breaks the connection instead.
    Answered(Option<Vec<u8>>),
}

impl Servers {
    /// Creates a transport to servers that behave like `unknown` until a test sets their behaviour.
    /// Delays are measured by `clock`.
    pub fn new(clock: ManualClock, unknown: Server) -> Self {
        let state = State {
            unknown,
            ports: BTreeMap::new(),
            holds_connections: false,
            waiting: Vec::new(),
            log: Vec::new(),
            open: 0,
            opened: 0,
            stalls: 0,
        };
        Self { clock, state: Arc::new(Mutex::new(state)) }
    }

    /// Makes connection attempts wait until they are [admitted](Self::admit).
    #[must_use]
    pub fn holding_connections(self) -> Self {
        self.lock().holds_connections = true;
        self
    }

    /// Sets the behaviour of the server at `address`, including its behaviour towards requests that
    /// are already waiting.
    pub fn set(&self, address: &ServerAddress, server: Server) {
        self.change(address, |own| *own = server);
    }

    /// Changes the behaviour of the server at `address`, including its behaviour towards requests
    /// that are already waiting.
    pub fn change(&self, address: &ServerAddress, change: impl FnOnce(&mut Server)) {
        self.wake_after(address, |state| change(&mut state.port(address).server));
    }

    /// Breaks all connections to the server at `address`.
    pub fn restart(&self, address: &ServerAddress) {
        self.wake_after(address, |state| state.port(address).process += 1);
    }

    /// Removes the server at `address`. Returns the times at which it answered a request, refused a
    /// connection or request, or broke a connection instead of answering.
    pub fn remove(&self, address: &ServerAddress) -> Vec<Instant> {
        let port = self.lock().ports.remove(address);
        port.map_or_else(Vec::new, |port| port.answered)
    }

    /// Returns the times at which the server at `address` answered a request, refused a connection
    /// or request, or broke a connection instead of answering.
    pub fn answered(&self, address: &ServerAddress) -> Vec<Instant> {
        let state = self.lock();
        let port = state.ports.get(address);
        port.map_or_else(Vec::new, |port| port.answered.clone())
    }

    /// Returns and clears the log of connections and requests, such as `a connect` and `a hello`.
    /// The suffix `awaited` marks a request whose reply the server may delay.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().log)
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.lock().open
    }

    /// Makes the next call to `recv` pending at its first poll. If the clock is a jumping one, the
    /// timer that limits the call is then pending as well.
    pub fn stall(&self) {
        self.lock().stalls += 1;
    }

    /// Returns the number of unanswered requests to `address`.
    pub fn requests(&self, address: &ServerAddress) -> usize {
        let mut state = self.lock();
        state.forget_cancelled();
        let waiting = state.waiting.iter();
        waiting.filter(|waiting| waiting.is_request && waiting.address == *address).count()
    }

    /// Opens the connection to `address` that has waited longest.
    ///
    /// # Errors
    ///
    /// If no connection waits.
    pub fn admit(&self, address: &ServerAddress) -> Result<(), String> {
        self.end_wait(address, false, Wake::Admitted)
    }

    /// Answers the request to `address` that has been waiting longest. The answer is the BSON
    /// document `reply`; `None` breaks the connection instead.
    ///
    /// # Errors
    ///
    /// If no request waits.
    pub fn answer(&self, address: &ServerAddress, reply: Option<&[u8]>) -> Result<(), String> {
        self.end_wait(address, true, Wake::Answered(reply.map(<[u8]>::to_vec)))
    }

    fn end_wait(
        &self,
        address: &ServerAddress,
        is_request: bool,
        wake: Wake,
    ) -> Result<(), String> {
        let mut state = self.lock();
        state.forget_cancelled();
        let is_meant =
            |waiting: &Waiting| waiting.is_request == is_request && waiting.address == *address;
        let index = state.waiting.iter().position(is_meant);
        let index = index.ok_or_else(|| format!("nothing waits for {address}"))?;
        let waiting = state.waiting.remove(index);
        drop(state);
        let cancelled = |_| format!("the answer of {address} comes too late");
        waiting.wake.send(wake).map_err(cancelled)
    }

    /// Applies `change`, and wakes everything that waits for the server at `address`.
    fn wake_after(&self, address: &ServerAddress, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let (woken, waiting): (Vec<_>, _) = std::mem::take(&mut state.waiting)
            .into_iter()
            .partition(|waiting| waiting.address == *address);
        state.waiting = waiting;
        drop(state);
        for waiting in woken {
            // The caller may have been dropped.
            let _ = waiting.wake.send(Wake::Changed);
        }
    }

    /// Waits until the server at `address` changes. A connection attempt also stops waiting when it
    /// is admitted, and a request when it is answered.
    async fn wait(&self, address: &ServerAddress, is_request: bool) -> Wake {
        let (wake, woken) = oneshot::channel();
        self.lock().waiting.push(Waiting { address: address.clone(), is_request, wake });
        woken.await.unwrap_or(Wake::Changed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn port(&mut self, address: &ServerAddress) -> &mut Port {
        let new = || Port { server: self.unknown.clone(), process: 0, answered: Vec::new() };
        self.ports.entry(address.clone()).or_insert_with(new)
    }

    fn note(&mut self, address: &ServerAddress, what: &str) {
        self.log.push(format!("{} {what}", address.host()));
    }

    /// Removes the entries of callers that were dropped.
    fn forget_cancelled(&mut self) {
        self.waiting.retain(|waiting| !waiting.wake.is_canceled());
    }
}

#[async_trait]
impl Transport for Servers {
    async fn connect(
        &self,
        target: &ServerAddress,
        _deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        self.lock().note(target, "connect");
        let holds_connections = self.lock().holds_connections;
        while holds_connections && matches!(self.wait(target, false).await, Wake::Changed) {}
        let mut state = self.lock();
        let now = self.clock.now();
        let port = state.port(target);
        if let Some(refusal) = &port.server.refusal {
            port.answered.push(now);
            return Err(Error::network(Stage::Connect, refusal.as_str()));
        }
        let process = port.process;
        state.open += 1;
        state.opened += 1;
        let number = state.opened;
        drop(state);
        let connection = ServerConnection::new(self.clone(), target.clone(), process, number);
        Ok(Box::new(connection))
    }
}
