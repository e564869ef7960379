//! The connection shared by checks and operations.

use std::{fmt, sync::Arc};

use sdam_core::{
    error::{Error, Stage},
    hello::Hello,
    ids::{Generation, ObjectId},
    time::Instant,
};
use sdam_transport::{connect::Connection, wire::WireMessage};

use super::member::Member;
use crate::topology::shared::Shared;

/// The open connection to a server, lent to one operation.
///
/// The caller has to report errors ([`handle_error`](crate::ScanTopology::handle_error)), and to
/// close the connection if it does not wait for a reply
/// ([`disconnect`](crate::ScanTopology::disconnect)).
/// [`run_command`](crate::ScanTopology::run_command) does both.
pub struct ScanConnection<'t> {
    member: &'t mut Member,
    shared: &'t Arc<Shared>,
    generation: Generation,
}

impl<'t> ScanConnection<'t> {
    /// Borrows the member's connection; `None` if it is closed or unusable.
    pub(super) fn of(
        member: &'t mut Member,
        shared: &'t Arc<Shared>,
        generation: Generation,
    ) -> Option<Self> {
        if !member.is_connected() {
            return None;
        }
        member.used = shared.now();
        Some(Self { member, shared, generation })
    }

    /// Returns the generation of the connection, for use in error reports.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the last reply to hello on the connection, with the server's limits, and with the
    /// `maxWireVersion` for use in error reports.
    pub fn hello(&self) -> &Hello {
        &self.member.hello
    }

    /// Returns the service to which a load balancer has connected this client, for use in error
    /// reports.
    pub fn service_id(&self) -> Option<ObjectId> {
        self.member.service
    }

    /// Marks the connection as authenticated, for drivers that authenticate it themselves. An
    /// overload error from a check then does not close the connection.
    pub fn set_authenticated(&mut self) {
        self.member.set_authenticated(self.shared, Box::default());
    }

    /// Sends `command` and reads the reply. `deadline` applies to blocking connections; for others,
    /// the caller has to race a timer. If the connection is no longer usable afterwards, the next
    /// call that uses it closes it.
    pub(super) async fn command(
        &mut self,
        command: &[u8],
        deadline: Option<Instant>,
    ) -> Result<WireMessage, Error> {
        let Some(wire) = self.member.connection.wire() else {
            return Err(Error::network(Stage::Operation, "the connection is closed"));
        };
        wire.line.set_deadline(deadline);
        wire.line.set_limits(&self.member.hello);
        let request = wire.line.exchange().command(command);
        wire.line.converse(request, Stage::Operation).await
    }

    /// Returns the connection itself, for drivers that frame their own messages.
    ///
    /// Each request must be followed by its reply; otherwise the next call of the topology closes
    /// the connection. The deadline of the last check applies until another deadline is set.
    /// Messages of up to `maxMessageSizeBytes` are accepted until the next check.
    pub fn connection(&mut self) -> Option<&mut dyn Connection> {
        let wire = self.member.connection.wire()?;
        wire.line.set_limits(&self.member.hello);
        Some(&mut wire.line)
    }
}

impl fmt::Debug for ScanConnection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanConnection")
            .field("generation", &self.generation)
            .field("service", &self.member.service)
            .finish_non_exhaustive()
    }
}
