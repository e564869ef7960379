//! Connections that carry whole wire messages, as a seam.

use std::fmt::Debug;

use async_trait::async_trait;
use sdam_core::{address::ServerAddress, time::Instant};

use crate::{error::TransportError, wire::WireMessage};

/// Opens connections: name resolution, connect and TLS.
///
/// # Contract
///
/// - The caller holds no lock, and may poll the future by any executor on any thread.
/// - The attempt ends with a time-out once `deadline` has passed; without one it takes as long as
///   the operating system allows.
/// - Dropping the future abandons the attempt: its sockets are closed, and nothing that the caller
///   could notice goes on in the background.
/// - An error says at which [`stage`](TransportError::stage) the attempt failed, and is a time-out
///   exactly if time ran out.
/// - A connection does not need the transport that opened it any more.
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
    ) -> Result<Box<dyn Connection>, TransportError>;
}

/// An open connection to a server.
///
/// # Contract
///
/// - The caller holds no lock, and may poll the futures by any executor on any thread.
/// - Messages arrive whole, in order, and once.
/// - A message longer than the connection accepts is refused by its header, as a protocol error, and
///   memory grows with the bytes that arrive, not with the length that is announced.
/// - A `send` or `recv` that failed, or was dropped before it was ready, makes the connection
///   unusable: every later call fails, and no half message is ever read as the start of the next.
/// - Dropping the connection closes its socket at once, which is what ends a stream of replies at
///   the server.
#[async_trait]
pub trait Connection: Send + Debug + 'static {
    /// Sends `message`; ready when the operating system has taken all of it.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future makes the connection unusable.
    async fn send(&mut self, message: WireMessage) -> Result<(), TransportError>;

    /// Reads the next message.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future makes the connection unusable.
    async fn recv(&mut self) -> Result<WireMessage, TransportError>;

    /// The length, in bytes, of the longest message that later calls of `recv` accept; until it is
    /// called [`Hello::DEFAULT_MAX_MESSAGE_SIZE`].
    ///
    /// Whoever opens a connection sets it: a monitor to the little that replies to hello need, a pool
    /// to what the server has announced ([`Hello::max_message_size`]). A transport that is handed
    /// whole messages, such as a simulated one, may do nothing.
    ///
    /// [`Hello::DEFAULT_MAX_MESSAGE_SIZE`]: sdam_core::hello::Hello::DEFAULT_MAX_MESSAGE_SIZE
    /// [`Hello::max_message_size`]: sdam_core::hello::Hello::max_message_size
    fn set_max_message_size(&mut self, bytes: usize) {
        let _ = bytes;
    }

    /// The time by which every later `send` and `recv` is to end, `None` for any time.
    ///
    /// Only blocking transports need it, which have no way to race a sleep; for all others it may
    /// do nothing.
    fn set_deadline(&mut self, deadline: Option<Instant>) {
        let _ = deadline;
    }
}
