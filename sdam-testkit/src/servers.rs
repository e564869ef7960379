use std::{
    collections::BTreeMap,
    future::{pending, poll_fn},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use bson::{Document, RawDocument, doc};
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
    error,
    wire::{OpCode, OpMsg, OpReply, WireError, WireMessage},
};

use crate::ManualClock;

/// A transport without a network. It connects to servers whose behaviour a test sets and changes.
/// Clones share the state.
///
/// With a jumping clock, no future is ever pending unless [`stall`](Self::stall) was called: a
/// delayed reply advances the clock, and a silent server advances it to the connection's deadline.
#[derive(Clone, Debug)]
pub struct Servers {
    clock: ManualClock,
    state: Arc<Mutex<ServersState>>,
}

#[derive(Debug)]
struct ServersState {
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
        let state = ServersState {
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

    /// Makes the next call to `recv` pending at its first poll. On a jumping clock, the timer that
    /// limits the call is then pending as well.
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
    fn wake_after(&self, address: &ServerAddress, change: impl FnOnce(&mut ServersState)) {
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

    fn lock(&self) -> MutexGuard<'_, ServersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServersState {
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

/// An open connection to one of the servers.
#[derive(Debug)]
struct ServerConnection {
    servers: Servers,
    address: ServerAddress,
    process: u64,
    number: i64,
    deadline: Option<Instant>,
    /// The outstanding request, and the time at which it was sent.
    request: Option<(WireMessage, Instant)>,
}

impl ServerConnection {
    fn new(servers: Servers, address: ServerAddress, process: u64, number: i64) -> Self {
        Self { servers, address, process, number, deadline: None, request: None }
    }

    /// Remains pending for one poll each time that [`Servers::stall`] was called.
    async fn stall(&self) {
        poll_fn(|_| {
            let mut state = self.servers.lock();
            if state.stalls == 0 {
                return Poll::Ready(());
            }
            state.stalls -= 1;
            self.servers.clock.hold_next_timer();
            Poll::Pending
        })
        .await;
    }

    /// Returns the server. Fails if the server was restarted after the connection was opened, or if
    /// it now refuses connections.
    fn server(&self) -> Result<Server, Error> {
        let mut state = self.servers.lock();
        let now = self.servers.clock.now();
        let port = state.port(&self.address);
        if port.process != self.process {
            return Err(broken("reset by peer"));
        }
        if let Some(refusal) = &port.server.refusal {
            port.answered.push(now);
            return Err(broken(refusal));
        }
        Ok(port.server.clone())
    }

    /// Waits until `instant`. If the deadline is earlier, waits until the deadline and fails.
    async fn wait_until(&self, instant: Instant) -> Result<(), Error> {
        let clock = &self.servers.clock;
        let end = self.deadline.map_or(instant, |deadline| deadline.min(instant));
        if clock.is_jumping() {
            clock.advance_to(end);
        } else if end > clock.now() {
            clock.sleep_until(end).await;
        }
        if end < instant {
            return Err(Error::timeout(Stage::Hello, "no reply"));
        }
        Ok(())
    }

    /// Returns the body of the reply to `request`.
    async fn body(&self, request: &WireMessage, sent: Instant) -> Result<Vec<u8>, Error> {
        let server = loop {
            let server = self.server()?;
            if !server.silent {
                break server;
            }
            if self.servers.clock.is_jumping() && self.deadline.is_some() {
                self.wait_until(Instant::MAX).await?;
            }
            if let Wake::Answered(reply) = self.servers.wait(&self.address, true).await {
                self.note_answer();
                return reply.ok_or_else(|| broken("the test says so"));
            }
        };
        self.wait_until(sent + server.delay).await?;
        self.note_answer();
        let request = Request {
            command: command(request),
            body: request.body().to_vec(),
            connection: self.number,
            now: self.servers.clock.now(),
        };
        let reply = match &*request.command {
            "hello" | "isMaster" => Arc::clone(&server.hello),
            _ => Arc::clone(&server.other),
        };
        reply(&request).ok_or_else(|| broken("the test says so"))
    }

    fn note_answer(&self) {
        let now = self.servers.clock.now();
        self.servers.lock().port(&self.address).answered.push(now);
    }
}

#[async_trait]
impl Connection for ServerConnection {
    async fn send(&mut self, message: WireMessage) -> Result<(), Error> {
        let mut what = command(&message);
        if is_awaited(&message) {
            what.push_str(" awaited");
        }
        self.servers.lock().note(&self.address, &what);
        self.request = Some((message, self.servers.clock.now()));
        Ok(())
    }

    async fn recv(&mut self) -> Result<WireMessage, Error> {
        self.stall().await;
        let Some((request, sent)) = self.request.take() else {
            return pending().await;
        };
        let body = self.body(&request, sent).await?;
        reply_to(&request, &body).map_err(|error| error::from_wire(Stage::Hello, error))
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.servers.lock().open -= 1;
    }
}

fn broken(message: &str) -> Error {
    Error::network(Stage::Hello, message)
}

/// Returns the name of the command in `message`; empty if there is none.
fn command(message: &WireMessage) -> String {
    let body = RawDocument::from_bytes(message.body()).ok();
    let first = body.and_then(|body| body.iter().next()?.ok());
    first.map_or_else(String::new, |(name, _)| name.to_string())
}

/// Returns whether the server may delay the reply to `message`.
fn is_awaited(message: &WireMessage) -> bool {
    let body = RawDocument::from_bytes(message.body());
    let version = body.and_then(|body| body.get("topologyVersion"));
    message.exhaust_allowed() || matches!(version, Ok(Some(_)))
}

/// Encodes the reply to `request` with the BSON document `body`.
///
/// # Errors
///
/// If `body` is too long for a message.
pub fn reply_to(request: &WireMessage, body: &[u8]) -> Result<WireMessage, WireError> {
    let (request_id, response_to) = (1, request.request_id());
    if request.op_code() == OpCode::Query {
        let flags = OpReply::AWAIT_CAPABLE;
        return OpReply { request_id, response_to, flags, body }.encode();
    }
    OpMsg { request_id, response_to, body, ..OpMsg::default() }.encode()
}

/// The behaviour of one of the [`Servers`](crate::Servers).
#[derive(Clone)]
pub struct Server {
    /// The error message with which connections are refused and requests fail, or `None` if the
    /// server is reachable.
    pub refusal: Option<String>,
    /// True if requests are not answered. They wait until the behaviour of the server changes, or
    /// until [`Servers::answer`](crate::Servers::answer) is called.
    pub silent: bool,
    /// The time from a request to its reply.
    pub delay: Duration,
    /// The reply to hello.
    pub hello: Reply,
    /// The reply to every other command.
    pub other: Reply,
}

/// Computes the BSON document of a reply. The result `None` breaks the connection instead.
pub type Reply = Arc<dyn Fn(&Request) -> Option<Vec<u8>> + Send + Sync>;

/// A request that needs an answer.
#[derive(Clone, Debug)]
pub struct Request {
    /// The name of the command.
    pub command: String,
    /// The body, a BSON document.
    pub body: Vec<u8>,
    /// The number of the connection. Connections are counted from 1 across all servers.
    pub connection: i64,
    /// The current time.
    pub now: Instant,
}

impl Server {
    /// Returns a server that immediately replies to every command with this document.
    pub fn replying(reply: &Document) -> Self {
        Self::computing(fixed_reply(reply.to_vec().ok()))
    }

    /// Returns a server that immediately replies to every command with the result of `reply`.
    pub fn computing(reply: Reply) -> Self {
        Self {
            refusal: None,
            silent: false,
            delay: Duration::ZERO,
            hello: Arc::clone(&reply),
            other: reply,
        }
    }

    /// Returns a server that cannot be reached. Connection attempts fail with `message`.
    pub fn refusing(message: impl Into<String>) -> Self {
        Self { refusal: Some(message.into()), ..Self::computing(fixed_reply(None)) }
    }

    /// Returns a server that accepts connections but does not answer.
    pub fn silent() -> Self {
        Self { silent: true, ..Self::computing(fixed_reply(None)) }
    }

    /// Returns a server that replies with [`member`].
    pub fn member(hosts: &[ServerAddress], is_primary: bool) -> Self {
        Self::replying(&member(hosts, is_primary))
    }

    /// Returns a server that replies with [`mongos`].
    pub fn mongos() -> Self {
        Self::replying(&mongos())
    }
}

/// Returns a reply that is the same for every request.
pub fn fixed_reply(body: Option<Vec<u8>>) -> Reply {
    Arc::new(move |_| body.clone())
}

/// Builds a hello reply from a member of the replica set `rs` with these `hosts`.
pub fn member(hosts: &[ServerAddress], is_primary: bool) -> Document {
    let hosts: Vec<&str> = hosts.iter().map(ServerAddress::as_str).collect();
    doc! {
        "ok": 1, "ismaster": is_primary, "secondary": !is_primary, "setName": "rs",
        "hosts": hosts, "minWireVersion": 0, "maxWireVersion": 17,
    }
}

/// Builds a hello reply from a mongos.
pub fn mongos() -> Document {
    doc! { "ok": 1, "ismaster": true, "msg": "isdbgrid", "minWireVersion": 0, "maxWireVersion": 17 }
}

sdam_core::opaque!(Server, |this| refusal: this.refusal, silent: this.silent, delay: this.delay);
