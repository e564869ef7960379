//! The connections that checks use, with their current operations.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::future::BoxFuture;
use sdam_core::{
    address::ServerAddress,
    deployment::{ConnId, Input, Output, Role},
    error::{Error, ErrorKind, Stage},
    hello::{Hello, HelloReply, HelloRequest},
    ids::ServerId,
    time::Instant,
};
use sdam_transport::{
    clock::Clock,
    connect::{Connection as _, Line},
    race,
    runtime::Backend,
    wire::{Exchange, WireError, WireMessage},
};

use crate::engine::{Engine, server::Server};

/// The connections of a server, one for each [`Role`].
///
/// If the transport panics, the operation in progress fails with an error of kind `Internal`.
#[derive(Debug, Default)]
pub(crate) struct Links {
    check: Link,
    ping: Link,
    /// Unused as long as the server answers.
    probe: Option<Box<Link>>,
}

#[derive(Debug, Default)]
struct Link {
    connection: MonitorConnection,
    /// True if the connection has panicked and its operation has no answer yet.
    panicked: bool,
}

impl Links {
    /// Carries out an order of the deployment, unless the order is for a connection that a newer
    /// one of the same role has replaced.
    pub(crate) fn carry_out(&mut self, order: Output, engine: &Engine, server: &Server) {
        let conn = match &order {
            Output::Connect { conn, .. } => {
                let link = self.link(conn.role);
                link.act(MonitorConnection::disconnect);
                *link = Link { connection: MonitorConnection::of(*conn), panicked: false };
                *conn
            }
            Output::Send { conn, .. } | Output::Read { conn, .. } | Output::Disconnect { conn } => {
                *conn
            }
            _ => return,
        };
        let link = self.link(conn.role);
        if link.connection.conn == Some(conn) {
            link.act(|connection| engine.execute(order, server, connection));
        }
    }

    /// Becomes ready with the next answer.
    pub(crate) fn poll(&mut self, now: impl Fn() -> Instant, cx: &mut Context<'_>) -> Poll<Input> {
        let probe = self.probe.as_deref_mut();
        for link in [&mut self.check, &mut self.ping].into_iter().chain(probe) {
            if let Poll::Ready(answer) = link.poll(&now, cx) {
                return Poll::Ready(answer);
            }
        }
        Poll::Pending
    }

    fn link(&mut self, role: Role) -> &mut Link {
        match role {
            Role::Check => &mut self.check,
            Role::Ping => &mut self.ping,
            Role::Probe => self.probe.get_or_insert_default(),
        }
    }
}

impl Link {
    /// Applies `act`, and catches its panic. Unwind safety: after a panic, the connection is
    /// discarded.
    fn act<T>(&mut self, act: impl FnOnce(&mut MonitorConnection) -> T) -> Option<T> {
        let connection = &mut self.connection;
        let result = catch_unwind(AssertUnwindSafe(|| act(connection)));
        if result.is_err() {
            self.panicked = true;
            // Dropping the connection may panic again.
            let empty = MonitorConnection { conn: self.connection.conn, ..Default::default() };
            let broken = std::mem::replace(&mut self.connection, empty);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(broken)));
        }
        result.ok()
    }

    fn poll(&mut self, now: impl Fn() -> Instant, cx: &mut Context<'_>) -> Poll<Input> {
        if !self.panicked
            && let Some(answer) = self.act(|connection| connection.poll(cx))
        {
            return answer;
        }
        self.panicked = false;
        let Some(conn) = self.connection.conn else {
            return Poll::Pending;
        };
        let error = Error::new(ErrorKind::Internal, Stage::Connect, "the transport panicked");
        Poll::Ready(Input::Failed { conn, at: now(), error })
    }
}

/// A monitoring connection.
///
/// The operation in progress owns the connection, so dropping the operation also closes the
/// connection. The reply to a cancelled check is therefore never mistaken for the reply to a later
/// check.
#[derive(Default)]
pub(crate) struct MonitorConnection {
    /// The id of the connection that was opened last.
    pub(crate) conn: Option<ConnId>,
    idle: Option<Box<Wire>>,
    busy: Option<BoxFuture<'static, Done>>,
}

/// An open connection.
pub(crate) struct Wire {
    clock: Arc<dyn Clock>,
    pub(crate) line: Line,
    /// The reply to the hello that began the authentication of the connection; empty if a driver
    /// has authenticated the connection, and `None` before the authentication. Connections are
    /// authenticated only in single-threaded mode.
    pub(crate) authenticated: Option<Box<[u8]>>,
    max_hello_size: usize,
}

/// An encoded request, or the error that occurred while encoding it.
type Encoded = Result<WireMessage, WireError>;

/// A function that encodes a request. It is boxed, because a waiting future keeps its arguments,
/// and these should be small.
type Request = Box<dyn FnOnce(&mut Exchange) -> Encoded + Send>;

/// The connection, if it is still usable after an operation, and the operation's answer.
type Done = (Option<Box<Wire>>, Input);

impl MonitorConnection {
    /// Creates the connection `conn`, which is not open yet.
    fn of(conn: ConnId) -> Self {
        Self { conn: Some(conn), ..Self::default() }
    }

    /// Starts to open `conn`. `max_hello_size` limits the size of replies on the connection.
    pub(crate) fn connect(
        &mut self,
        conn: ConnId,
        (backend, max_hello_size): (&Backend, usize),
        address: &ServerAddress,
        deadline: Option<Instant>,
    ) {
        self.conn = Some(conn);
        let (transport, address) = (backend.transport.clone(), address.clone());
        let clock = Arc::clone(&backend.clock);
        self.begin(async move {
            match transport.connect(&address, deadline).await {
                Ok(connection) => {
                    let line = Line::new(connection);
                    let wire = Wire { clock, line, authenticated: None, max_hello_size };
                    (Some(Box::new(wire)), Input::Connected { conn })
                }
                Err(error) => {
                    let (at, error) = (clock.now(), error.without_context());
                    (None, Input::Failed { conn, at, error })
                }
            }
        });
    }

    /// Starts to send a request and to read the first reply.
    pub(crate) fn send(&mut self, request: HelloRequest, deadline: Option<Instant>) {
        self.hello(Some(Box::new(move |exchange| exchange.hello(&request))), deadline);
    }

    /// Starts to read the next streamed reply, without a request.
    pub(crate) fn read_next(&mut self, deadline: Option<Instant>) {
        self.hello(None, deadline);
    }

    /// Starts to send a command (a BSON document) to `server` and to wait for its reply, which is
    /// the answer to [`Output::Probe`].
    pub(crate) fn probe(&mut self, server: ServerId, command: Vec<u8>, deadline: Option<Instant>) {
        self.converse(
            Some(Box::new(move |exchange| exchange.command(&command))),
            move |outcome| {
                let outcome = outcome.map(drop).map_err(|(_, error)| error.at(Stage::Operation));
                Input::Probed { server, outcome }
            },
            deadline,
        );
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Returns the connection if it is open and no operation is in progress.
    pub(crate) fn wire(&mut self) -> Option<&mut Wire> {
        self.idle.as_deref_mut()
    }

    /// Cancels the operation in progress and closes the connection.
    pub(crate) fn disconnect(&mut self) {
        self.busy = None;
        self.idle = None;
    }

    /// Becomes ready when the operation in progress ends; stays pending if there is none.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
        let Some(busy) = &mut self.busy else {
            return Poll::Pending;
        };
        let (wire, answer) = ready!(Pin::new(busy).poll(cx));
        self.busy = None;
        self.idle = wire;
        Poll::Ready(answer)
    }

    /// Waits until the operation in progress ends; returns `None` at the deadline. An answer that
    /// has already arrived is returned even if the deadline has passed.
    pub(crate) async fn answer(
        &mut self,
        clock: &dyn Clock,
        deadline: Option<Instant>,
    ) -> Option<Input> {
        race::deadline(clock, deadline, poll_fn(|cx| self.poll(cx))).await.ok()
    }

    fn hello(&mut self, request: Option<Request>, deadline: Option<Instant>) {
        let Some(conn) = self.conn else {
            return;
        };
        self.converse(
            request,
            move |outcome| match outcome {
                Ok(arrival) => arrival.parsed(conn),
                Err((at, error)) => Input::Failed { conn, at, error },
            },
            deadline,
        );
    }

    /// Starts to send the request, if there is one, and to read a reply, which `answer` converts.
    fn converse(
        &mut self,
        request: Option<Request>,
        answer: impl FnOnce(Result<Arrival, (Instant, Error)>) -> Input + Send + 'static,
        deadline: Option<Instant>,
    ) {
        let Some(mut wire) = self.idle.take() else {
            let error = Error::new(ErrorKind::Internal, STAGE, "there is no open connection");
            // Without a connection there is no clock to read, so this instant is a placeholder,
            // which the state machine clamps.
            self.begin(async move { (None, answer(Err((Instant::EPOCH, error)))) });
            return;
        };
        wire.line.set_deadline(deadline);
        self.begin(async move {
            match wire.converse(request).await {
                Ok(arrival) => (Some(wire), answer(Ok(arrival))),
                Err(error) => (None, answer(Err((wire.clock.now(), error)))),
            }
        });
    }

    fn begin(&mut self, work: impl Future<Output = Done> + Send + 'static) {
        self.busy = Some(Box::pin(work));
    }
}

/// A message from the server.
struct Arrival {
    /// The instant at which the request was written, or at which reading began if there was no
    /// request.
    sent: Instant,
    /// The instant at which the message arrived.
    at: Instant,
    message: WireMessage,
}

impl Arrival {
    /// Parses the message, before the engine is locked.
    fn parsed(self, conn: ConnId) -> Input {
        let Self { sent, at, message } = self;
        let reply = match conn.role {
            Role::Check => HelloReply::parse(message.body()),
            Role::Ping | Role::Probe => Hello::parse(message.body()).into(),
        };
        Input::Reply { conn, sent, at, reply, more_to_come: message.more_to_come() }
    }
}

impl Wire {
    async fn converse(&mut self, request: Option<Request>) -> Result<Arrival, Error> {
        let sent = self.clock.now();
        if let Some(request) = request {
            let encoded = request(self.line.exchange());
            self.line.request(encoded, STAGE).await?;
        }
        // The limit is set again for each request, because operations of a single-threaded client
        // change it.
        self.line.set_max_message_size(self.max_hello_size);
        let message = self.line.reply(STAGE).await?;
        Ok(Arrival { sent, at: self.clock.now(), message })
    }
}

/// The stage of errors on connections of checks.
const STAGE: Stage = Stage::Hello;

sdam_core::opaque!(MonitorConnection, |this|
    open: this.idle.is_some(),
    busy: this.busy.is_some()
);
