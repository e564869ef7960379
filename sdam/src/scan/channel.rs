//! The connection that checks and operations share.

use std::fmt;

use sdam_core::{
    error::Stage,
    hello::Hello,
    ids::{Generation, ObjectId},
    monitor::{MonitorInput, ServerStatus},
    time::Instant,
};
use sdam_transport::{
    connect::Connection,
    error::TransportError,
    wire::{WireError, WireMessage},
};

use super::Member;

/// The open connection to a server, lent to one operation.
///
/// What goes wrong on it is for the operation to report
/// ([`handle_error`](super::ScanTopology::handle_error)), and an operation that gives up half-way
/// closes the connection ([`disconnect`](super::ScanTopology::disconnect)); that is done by itself
/// for one that was dropped within [`command`](Self::command).
pub struct Channel<'t> {
    member: &'t mut Member,
    now: Instant,
    generation: Generation,
    /// What the server's monitor is told of it.
    status: ServerStatus,
}

impl<'t> Channel<'t> {
    /// `None` if the connection is not open or cannot be used any more.
    pub(super) fn of(
        member: &'t mut Member,
        now: Instant,
        generation: Generation,
        status: ServerStatus,
    ) -> Option<Self> {
        if member.is_abandoned() || member.link.wire().is_none() {
            return None;
        }
        member.used = now;
        Some(Self {
            member,
            now,
            generation,
            status,
        })
    }

    /// The generation the connection belongs to, for error reports.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The service behind a load balancer that the connection leads to, for error reports.
    pub fn service_id(&self) -> Option<ObjectId> {
        self.member.service
    }

    /// Says that the connection is authenticated from now on, so that an overloaded server's refusal
    /// to answer a check does not cost it.
    pub fn set_authenticated(&mut self) {
        let Self {
            member,
            now,
            status,
            ..
        } = self;
        if let Some(monitor) = &mut member.monitor {
            // It has no effect but this one.
            let _ = monitor.handle(*now, *status, MonitorInput::Authenticated);
        }
    }

    /// Sends `command`, a BSON document with `$db`, and reads the reply, by `deadline` if the
    /// connection blocks; for others the caller races a timer.
    ///
    /// # Errors
    ///
    /// If the connection breaks, or the deadline passes. What the reply says is for the caller to
    /// find out.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the connection is closed by the next call that comes across it.
    pub async fn command(
        &mut self,
        command: &[u8],
        deadline: Option<Instant>,
    ) -> Result<WireMessage, TransportError> {
        let Some(wire) = self.member.link.wire() else {
            return Err(TransportError::network(
                Stage::Operation,
                "the connection is closed",
            ));
        };
        let protocol = |error: WireError| TransportError::from_wire(Stage::Operation, error);
        wire.connection.set_deadline(deadline);
        wire.connection
            .set_max_message_size(Hello::DEFAULT_MAX_MESSAGE_SIZE);
        let message = wire.exchange.command(command).map_err(protocol)?;
        let at = |error: TransportError| error.at(Stage::Operation);
        wire.connection.send(message).await.map_err(at)?;
        let reply = wire.connection.recv().await.map_err(at)?;
        wire.exchange.accept(&reply).map_err(protocol)?;
        Ok(reply)
    }

    /// The connection itself, for drivers that frame their own messages.
    ///
    /// Every message that is sent has to be answered, and the answer read, before the topology's
    /// next call. The deadline is that of the last check until another one is set; replies of up to
    /// [`Hello::DEFAULT_MAX_MESSAGE_SIZE`] are accepted until the next check.
    pub fn connection(&mut self) -> Option<&mut dyn Connection> {
        let wire = self.member.link.wire()?;
        wire.connection
            .set_max_message_size(Hello::DEFAULT_MAX_MESSAGE_SIZE);
        Some(&mut *wire.connection)
    }
}

impl fmt::Debug for Channel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("generation", &self.generation)
            .field("service", &self.member.service)
            .finish_non_exhaustive()
    }
}
