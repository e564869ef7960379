//! The transport and connection traits: connections that carry whole wire messages.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use sdam_core::{address::ServerAddress, error::Error, time::Instant};

use crate::{
    layers::{Guards, Layers},
    wire::WireMessage,
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

    /// Returns a transport with `layers` between its sockets and its messages. Each of them
    /// replaces the layer of the same kind that this transport already has. The default
    /// implementation returns `None`, and so should a transport that does not support one of the
    /// layers. A topology whose options need that layer then refuses to start.
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
///   network error at [`Stage::Hello`](sdam_core::error::Stage::Hello).
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
    /// one, may ignore the limit.
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
