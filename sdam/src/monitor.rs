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
    deployment::{ConnId, Input, Role},
    error::{Error, ErrorKind, Stage},
    hello::{Hello, HelloReply, HelloRequest},
    time::Instant,
};
use sdam_transport::{
    clock::Clock,
    connect::{Connection as _, Line},
    race,
    runtime::Backend,
    wire::{Exchange, WireError, WireMessage},
};

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
    /// The connection that was last opened.
    conn: Option<ConnId>,
    connection: MonitorConnection,
    /// True if the connection has panicked and its operation has no answer yet.
    panicked: bool,
}

impl Links {
    /// Begins to open `conn`, by calling `connect`.
    pub(crate) fn connect(&mut self, conn: ConnId, connect: impl FnOnce(&mut MonitorConnection)) {
        let link = self.link(conn.role);
        link.act(MonitorConnection::disconnect);
        link.conn = Some(conn);
        link.panicked = false;
        link.act(connect);
    }

    /// Applies `act` to `conn`, unless a later connection of the same role was opened.
    pub(crate) fn on(&mut self, conn: ConnId, act: impl FnOnce(&mut MonitorConnection)) {
        let link = self.link(conn.role);
        if link.conn == Some(conn) {
            link.act(act);
        }
    }

    /// Becomes ready with the next answer.
    pub(crate) fn poll(
        &mut self,
        now: impl Fn() -> Instant,
        cx: &mut Context<'_>,
    ) -> Poll<(ConnId, Answer)> {
        let probe = self.probe.as_deref_mut();
        for link in [&mut self.check, &mut self.ping].into_iter().chain(probe) {
            if let (Some(conn), Poll::Ready(answer)) = (link.conn, link.poll(&now, cx)) {
                return Poll::Ready((conn, answer));
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
            let broken = std::mem::take(&mut self.connection);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(broken)));
        }
        result.ok()
    }

    fn poll(&mut self, now: impl Fn() -> Instant, cx: &mut Context<'_>) -> Poll<Answer> {
        if !self.panicked
            && let Some(state) = self.act(|connection| connection.poll(cx))
        {
            return state;
        }
        self.panicked = false;
        let reason = "the transport panicked";
        Poll::Ready(Answer::Failed {
            at: now(),
            error: Error::new(ErrorKind::Internal, Stage::Connect, reason),
        })
    }
}

/// The result of an operation on the connection.
pub(crate) enum Answer {
    /// The connection is open.
    Connected,
    /// A reply to a request, or a streamed reply.
    Reply {
        /// The instant at which the request was written, or at which reading began if there was no
        /// request.
        sent: Instant,
        /// The instant at which the message arrived.
        at: Instant,
        message: WireMessage,
        more_to_come: bool,
    },
    /// The connection could not be opened or is unusable.
    Failed { at: Instant, error: Error },
}

impl Answer {
    /// Converts the answer on `conn` to an input, and parses it if it is a reply.
    pub(crate) fn parsed(self, conn: ConnId) -> Input {
        match self {
            Self::Connected => Input::Connected { conn },
            Self::Failed { at, error } => Input::Failed { conn, at, error },
            Self::Reply { sent, at, message, more_to_come } => {
                let reply = match conn.role {
                    Role::Check => HelloReply::parse(message.body()),
                    Role::Ping | Role::Probe => Hello::parse(message.body()).into(),
                };
                Input::Reply { conn, sent, at, reply, more_to_come }
            }
        }
    }
}

/// A monitoring connection.
///
/// The operation in progress owns the connection, so dropping the operation also closes the
/// connection. The reply to a cancelled check is therefore never mistaken for the reply to a later
/// one.
#[derive(Default)]
pub(crate) struct MonitorConnection {
    idle: Option<Wire>,
    busy: Option<BoxFuture<'static, Done>>,
}

/// An open connection.
pub(crate) struct Wire {
    clock: Arc<dyn Clock>,
    pub(crate) line: Line,
    /// The reply to the hello that began the authentication of the connection; empty if a driver
    /// has authenticated it, and `None` before. Connections are authenticated only in
    /// single-threaded mode.
    pub(crate) authenticated: Option<Box<[u8]>>,
    max_hello_size: usize,
}

/// An encoded request, or the error that occurred while encoding it.
type Encoded = Result<WireMessage, WireError>;

/// The connection, if it is still usable after an operation, and the operation's result.
type Done = (Option<Wire>, Answer);

impl MonitorConnection {
    /// Starts to open a connection. `max_hello_size` limits the size of replies on the connection.
    pub(crate) fn connect(
        &mut self,
        backend: &Backend,
        max_hello_size: usize,
        address: &ServerAddress,
        deadline: Option<Instant>,
    ) {
        let (transport, address) = (backend.transport.clone(), address.clone());
        let clock = Arc::clone(&backend.clock);
        self.begin(async move {
            match transport.connect(&address, deadline).await {
                Ok(connection) => {
                    let wire = Wire {
                        clock,
                        line: Line::new(connection),
                        authenticated: None,
                        max_hello_size,
                    };
                    (Some(wire), Answer::Connected)
                }
                Err(error) => {
                    let (at, error) = (clock.now(), error.without_context());
                    (None, Answer::Failed { at, error })
                }
            }
        });
    }

    /// Starts to send a request and to read the first reply.
    pub(crate) fn send(&mut self, request: HelloRequest, deadline: Option<Instant>) {
        self.converse(move |exchange| Some(exchange.hello(&request)), deadline);
    }

    /// Starts to read the next streamed reply, without a request.
    pub(crate) fn read_next(&mut self, deadline: Option<Instant>) {
        self.converse(|_| None, deadline);
    }

    /// Starts to send a command (a BSON document) and to read its reply.
    pub(crate) fn command(&mut self, command: Vec<u8>, deadline: Option<Instant>) {
        self.converse(move |exchange| Some(exchange.command(&command)), deadline);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Returns the connection if it is open and no operation is in progress.
    pub(crate) fn wire(&mut self) -> Option<&mut Wire> {
        self.idle.as_mut()
    }

    /// Cancels the operation in progress and closes the connection.
    pub(crate) fn disconnect(&mut self) {
        self.busy = None;
        self.idle = None;
    }

    /// Becomes ready when the operation in progress ends; stays pending if there is none.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answer> {
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
    ) -> Option<Answer> {
        race::deadline(clock, deadline, poll_fn(|cx| self.poll(cx))).await.ok()
    }

    fn converse(
        &mut self,
        request: impl FnOnce(&mut Exchange) -> Option<Encoded> + Send + 'static,
        deadline: Option<Instant>,
    ) {
        let wire = self.idle.take();
        self.begin(async move {
            let Some(mut wire) = wire else {
                let reason = "there is no open connection";
                let error = Error::new(ErrorKind::Internal, STAGE, reason);
                // Without a connection there is no clock to read, so this instant is a placeholder,
                // which the machine clamps.
                return (None, Answer::Failed { at: Instant::EPOCH, error });
            };
            wire.line.set_deadline(deadline);
            let request = request(wire.line.exchange());
            match wire.converse(request).await {
                Ok(answer) => (Some(wire), answer),
                Err(error) => (None, Answer::Failed { at: wire.clock.now(), error }),
            }
        });
    }

    fn begin(&mut self, work: impl Future<Output = Done> + Send + 'static) {
        self.busy = Some(Box::pin(work));
    }
}

impl Wire {
    /// Sends the request, if there is one, and reads a reply.
    async fn converse(&mut self, request: Option<Encoded>) -> Result<Answer, Error> {
        let sent = self.clock.now();
        if let Some(request) = request {
            self.line.request(request, STAGE).await?;
        }
        // The limit is set again for each request, because operations of a single-threaded client
        // change it.
        self.line.set_max_message_size(self.max_hello_size);
        let message = self.line.reply(STAGE).await?;
        let (at, more_to_come) = (self.clock.now(), message.more_to_come());
        Ok(Answer::Reply { sent, at, message, more_to_come })
    }
}

/// The stage of errors on connections of checks.
const STAGE: Stage = Stage::Hello;

sdam_core::opaque!(MonitorConnection, |this|
    open: this.idle.is_some(),
    busy: this.busy.is_some()
);
