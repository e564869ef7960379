//! The transport and connection traits: connections that carry whole wire messages. Also contains a
//! transport that wraps another transport.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    hello::Hello,
    time::Instant,
};

use crate::{
    error::from_wire,
    layers::{Guards, Layers},
    wire::{Exchange, WireError, WireMessage},
};

/// Opens connections: looks up host names, connects sockets and negotiates TLS.
///
/// # Contract
///
/// - The caller holds no lock, and may poll the future by any executor on any thread.
/// - A host name is looked up, and its addresses are tried until one answers.
/// - An error says at which [`stage`](Error::stage) the attempt failed, and is a timeout
///   if and only if time ran out.
/// - The attempt ends with a time-out once `deadline` has passed; without one it takes as long as
///   the operating system allows.
/// - Dropping the future abandons the attempt: a socket that it has opened is closed.
/// - A path is connected to as a Unix domain socket, or refused by
///   [`DialTarget::unsupported`](crate::dial::DialTarget::unsupported).
/// - After the runtime behind the transport has ended, an attempt succeeds or fails, and neither
///   panics nor outlasts its deadline.
#[async_trait]
pub trait Transport: Send + Sync + Debug + 'static {
    /// Opens a connection to `target`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the attempt.
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error>;

    /// Returns the steps that this transport performs itself. If the options of a topology require
    /// TLS or a proxy, and that step is neither returned here nor available as a layer, the
    /// topology refuses to start.
    fn guards(&self) -> Guards {
        Guards::NONE
    }

    /// Returns a transport with `layers` between its sockets and its messages. Each layer replaces
    /// the layer of the same kind that this transport already has. The default implementation
    /// returns `None`. A transport that does not support one of the layers should also return
    /// `None`. A topology whose options need that layer then refuses to start.
    fn with_layers(&self, layers: Layers) -> Option<Arc<dyn Transport>> {
        let _ = layers;
        None
    }
}

/// An open connection to a server.
///
/// # Contract
///
/// - The caller holds no lock, and may poll the futures by any executor on any thread, each poll on
///   another one.
/// - Messages arrive whole, in order, and once.
/// - A message longer than the connection accepts is refused by its header, as a protocol error.
/// - A connection that the server closes or resets, in the middle of a message or before, is a
///   network error at [`Stage::Hello`].
/// - A `send` or `recv` that failed, or was dropped before it was ready, makes the connection
///   unusable: every later call fails, and no half message is ever read as the start of the next.
/// - A `recv` that is dropped or times out while no reply is due, and before a byte has arrived,
///   leaves the connection as it was. Pools poll it once to look at an idle connection.
/// - A connection that blocks ends `send` and `recv` with a time-out when the deadline that was set
///   has passed.
/// - Dropping the connection closes its socket, at once or as soon as the runtime runs, without
///   further polling. That ends a stream of replies at the server.
/// - After the runtime behind the connection has ended, `recv` may fail, stay pending or continue
///   to work. Dropping the connection closes its socket unless that has already happened.
///
/// Memory for a message grows with the bytes that arrive, not with the announced length.
#[async_trait]
pub trait Connection: Send + Debug + 'static {
    /// Sends `message`. The future becomes ready when the operating system has accepted the whole
    /// message, or when the runtime will send the rest without further polling. If sending the rest
    /// fails later, `recv` returns the error.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future makes the connection unusable.
    async fn send(&mut self, message: WireMessage) -> Result<(), Error>;

    /// Reads the next message.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future makes the connection unusable, unless no reply was due
    /// and no byte had arrived.
    async fn recv(&mut self) -> Result<WireMessage, Error>;

    /// Sets the maximum length, in bytes, of messages that later calls of `recv` accept. The
    /// default is [`Hello::DEFAULT_MAX_MESSAGE_SIZE`].
    ///
    /// The code that opens a connection sets the limit. Monitors use a small limit that is
    /// sufficient for hello replies, and pools use the limit that the server announced
    /// ([`Hello::max_message_size`]). A transport that receives whole messages, such as a simulated
    /// transport, may ignore the limit.
    ///
    /// [`Hello::DEFAULT_MAX_MESSAGE_SIZE`]: sdam_core::hello::Hello::DEFAULT_MAX_MESSAGE_SIZE
    /// [`Hello::max_message_size`]: sdam_core::hello::Hello::max_message_size
    fn set_max_message_size(&mut self, bytes: usize) {
        let _ = bytes;
    }

    /// Sets the deadline of every later `send` and `recv`. `None` removes the deadline.
    ///
    /// Only blocking transports need the deadline, because they cannot be raced against a timer;
    /// other transports may ignore it.
    fn set_deadline(&mut self, deadline: Option<Instant>) {
        let _ = deadline;
    }
}

/// An open connection together with its [`Exchange`], which knows whether another request may be
/// sent.
///
/// As a [`Connection`], it carries messages that a driver has framed itself. A message that is
/// longer than the server accepts is refused with an error of kind
/// [`Invalid`](sdam_core::error::ErrorKind::Invalid), and changes nothing. Messages that are out of
/// order are carried, but break the exchange.
#[derive(Debug)]
pub struct Line {
    connection: Box<dyn Connection>,
    exchange: Exchange,
}

impl Line {
    /// Creates the line of a connection on which nothing has been sent.
    pub fn new(connection: Box<dyn Connection>) -> Self {
        Self { connection, exchange: Exchange::new() }
    }

    /// Makes later messages obey the size limits that the server has announced.
    pub fn set_limits(&mut self, hello: &Hello) {
        self.connection.set_max_message_size(hello.max_message_size());
        self.exchange.set_limits(hello);
    }

    /// Returns the exchange, which encodes requests.
    pub fn exchange(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    /// Returns whether a request may be sent. Once a send or a receive has failed or was dropped,
    /// or a message was not the reply that was due, this always returns false.
    pub fn is_usable(&self) -> bool {
        self.exchange.is_usable()
    }

    /// Sends a request of the [exchange](Self::exchange) and returns the reply to it. Errors have
    /// the given stage. Exception: at [`Stage::Hello`], the error of a server that rejects the
    /// client's certificate after the TLS handshake keeps [`Stage::Tls`].
    pub async fn converse(
        &mut self,
        request: Result<WireMessage, WireError>,
        stage: Stage,
    ) -> Result<WireMessage, Error> {
        self.request(request, stage).await?;
        self.reply(stage).await
    }

    /// Sends a request of the [exchange](Self::exchange).
    pub fn request(
        &mut self,
        request: Result<WireMessage, WireError>,
        stage: Stage,
    ) -> impl Future<Output = Result<(), Error>> {
        let sending = request.map(|request| self.connection.send(request));
        async move {
            let sending = sending.map_err(|error| from_wire(stage, error))?;
            sending.await.map_err(|error| staged(error, stage))
        }
    }

    /// Receives the reply that is due.
    pub async fn reply(&mut self, stage: Stage) -> Result<WireMessage, Error> {
        let reply = self.connection.recv().await.map_err(|error| staged(error, stage))?;
        self.exchange.accept(&reply).map_err(|error| from_wire(stage, error))?;
        Ok(reply)
    }

    /// Returns a copy of the exchange, and breaks the exchange until the copy is restored.
    fn take(&mut self) -> Exchange {
        let exchange = self.exchange.clone();
        self.exchange.break_off();
        exchange
    }
}

/// Sets the stage of an error of a connection. At [`Stage::Hello`], the stage is kept: it is
/// already [`Stage::Hello`], or [`Stage::Tls`] if the server has rejected the client's certificate,
/// which happens after the handshake with TLS 1.3.
fn staged(error: Error, stage: Stage) -> Error {
    if stage == Stage::Hello { error } else { error.at(stage) }
}

#[async_trait]
impl Connection for Line {
    async fn send(&mut self, message: WireMessage) -> Result<(), Error> {
        let sending = self.exchange.sending(&message);
        sending.map_err(|error| from_wire(Stage::Operation, error))?;
        let sent = self.take();
        self.connection.send(message).await?;
        self.exchange = sent;
        Ok(())
    }

    async fn recv(&mut self) -> Result<WireMessage, Error> {
        // While no reply is due, a receive that is dropped or times out leaves the connection
        // unchanged.
        let mut received =
            if self.exchange.is_usable() { self.exchange.clone() } else { self.take() };
        let outcome = self.connection.recv().await;
        if outcome.as_ref().is_err_and(|error| !error.is_timeout()) {
            self.exchange.break_off();
        }
        let message = outcome?;
        // A message that is not the reply breaks the exchange, but is returned, because the driver
        // may need it.
        let _ = received.accept(&message);
        self.exchange = received;
        Ok(message)
    }

    fn set_max_message_size(&mut self, bytes: usize) {
        self.connection.set_max_message_size(bytes);
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.connection.set_deadline(deadline);
    }
}

/// A hook around the connections of another transport. It may count or limit the connections,
/// inject faults, or wrap each [`Connection`]. [`Wrapped`] is the resulting transport.
///
/// # Contract
///
/// Implementations must satisfy the part of the contract of [`Transport`] that concerns `connect`.
#[async_trait]
pub trait Wrap: Send + Sync + Debug + 'static {
    /// Opens a connection to `target` with `inner`, or refuses it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the attempt.
    async fn connect(
        &self,
        inner: &dyn Transport,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error>;
}

/// A transport that wraps another one and keeps its features: address translation, proxies and TLS
/// become layers of the inner transport, below the wrapper.
///
/// In contrast, a type that implements [`Transport`] itself and forwards only `connect` has no
/// layers. A topology whose options need a layer then refuses to start.
#[derive(Clone, Debug)]
pub struct Wrapped {
    inner: Arc<dyn Transport>,
    wrap: Arc<dyn Wrap>,
}

impl Wrapped {
    /// Creates a transport that opens the connections of `inner` through `wrap`.
    pub fn new(inner: Arc<dyn Transport>, wrap: impl Wrap) -> Self {
        let wrap = Arc::new(wrap);
        Self { inner, wrap }
    }
}

#[async_trait]
impl Transport for Wrapped {
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        self.wrap.connect(&*self.inner, target, deadline).await
    }

    fn guards(&self) -> Guards {
        self.inner.guards()
    }

    fn with_layers(&self, layers: Layers) -> Option<Arc<dyn Transport>> {
        Some(Arc::new(Self {
            inner: self.inner.with_layers(layers)?,
            wrap: Arc::clone(&self.wrap),
        }))
    }
}
