//! A checked out connection.

use std::{fmt, sync::Arc, time::Duration};

use sdam_core::{
    address::ServerAddress,
    app_error::{AppError, ErrorOutcome},
    event::ConnectionId,
    hello::Hello,
    ids::{Generation, ObjectId},
    pool::PoolError,
};
use sdam_transport::pool::{CommandReply, Established};

use crate::{error::Error, inner::Inner, machine::Pin, member::Member};

/// A connection that is checked out. Dropping it checks it in.
///
/// A connection with a failed or dropped command, or of an earlier generation, is closed then.
pub struct PooledConnection {
    /// `None` only while it is dropped.
    member: Option<Box<Member>>,
    pin: Option<Pin>,
    pool: Arc<Inner>,
}

impl PooledConnection {
    pub(crate) fn new(pool: Arc<Inner>, member: Box<Member>) -> Self {
        Self {
            member: Some(member),
            pin: None,
            pool,
        }
    }

    /// Returns the numbers of the connection: the pool's, and the server's.
    pub fn id(&self) -> ConnectionId {
        self.member().id
    }

    /// Returns the reply to the handshake, with the limits of the server.
    pub fn hello(&self) -> &Hello {
        self.member().established.hello()
    }

    /// Returns the generation of the connection.
    pub fn generation(&self) -> Generation {
        self.member().established.generation()
    }

    /// Returns the service behind a load balancer that the connection leads to.
    pub fn service_id(&self) -> Option<ObjectId> {
        self.member().established.service_id()
    }

    /// Returns the address of the server.
    pub fn address(&self) -> &ServerAddress {
        &self.pool.new.address
    }

    /// Runs a command, a BSON document with `$db`, and returns the reply, whose `ok` is 1. Errors,
    /// also those in the reply, are reported to the topology.
    ///
    /// `timeout` is that of the reply; `None` is no limit.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`] if the server has answered with an error, the connection broke, no reply
    /// came in time, or the message that came cannot be the reply.
    /// [`PoolError::Interrupted`] if the server's monitor got no answer meanwhile, or since the
    /// connection was checked out: then the command is not sent.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. Whether the command took effect is then unknown, and the
    /// connection is closed when it is checked in.
    pub async fn run_command(
        &mut self,
        command: &[u8],
        timeout: Option<Duration>,
    ) -> Result<CommandReply, Error> {
        let member = self.member_mut();
        let interrupt = Arc::clone(&member.interrupt);
        let running = member.established.run_command(command, timeout);
        match interrupt.race(running).await {
            Some(result) => Ok(result?),
            None => Err(Error::Pool(PoolError::Interrupted {
                address: self.address().clone(),
            })),
        }
    }

    /// Reports an error of this connection, see [`Established::report`].
    pub fn report<'e>(&self, make: impl FnOnce(Generation) -> AppError<'e>) -> ErrorOutcome {
        self.member().established.report(make)
    }

    /// Returns the connection below, for drivers that frame their own messages. Commands on it are
    /// not interrupted by a clear.
    pub fn established(&mut self) -> &mut Established {
        &mut self.member_mut().established
    }

    /// Marks the connection as used by a cursor or a transaction until [`unpin`](Self::unpin) or
    /// the check-in, for the text of time-outs (Load Balancers: "Wait Queue Timeout Errors").
    pub fn pin(&mut self, pin: Pin) {
        let old = self.pin.replace(pin);
        self.pool.core.with(|machine| {
            machine.unpin(old);
            machine.pin(pin);
        });
    }

    /// Ends [`pin`](Self::pin).
    pub fn unpin(&mut self) {
        let old = self.pin.take();
        self.pool.core.with(|machine| machine.unpin(old));
    }

    /// Checks the connection in to be closed, because its state is unknown.
    pub fn discard(mut self) {
        self.member_mut().is_discarded = true;
    }

    #[expect(clippy::expect_used, reason = "only `drop` takes the member")]
    fn member(&self) -> &Member {
        self.member.as_ref().expect("the connection is checked out")
    }

    #[expect(clippy::expect_used, reason = "only `drop` takes the member")]
    fn member_mut(&mut self) -> &mut Member {
        self.member.as_mut().expect("the connection is checked out")
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(member) = self.member.take() {
            self.pool.check_in(member, self.pin);
        }
    }
}

impl fmt::Debug for PooledConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledConnection")
            .field("id", &self.id())
            .field("address", self.address())
            .finish_non_exhaustive()
    }
}
