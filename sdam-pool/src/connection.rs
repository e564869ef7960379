//! The connections of a pool, and the operations on a connection that is checked out.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use sdam_core::{
    address::ServerAddress,
    error::Error,
    event::ConnectionId,
    hello::Hello,
    ids::{Generation, ObjectId},
    time::Instant,
};
use sdam_transport::pool::{CommandReply, Established};

use crate::{
    core::Interrupt,
    inner::Inner,
    machine::{Pin, Pooled},
};

/// A connection that is checked out. Dropping this value checks the connection in.
///
/// The connection is then closed if a command on it failed or was dropped, or if its generation is
/// outdated.
pub struct PooledConnection {
    /// The connection; `None` only while this value is dropped.
    member: Option<Box<Member>>,
    pin: Option<Pin>,
    pool: Arc<Inner>,
}

impl PooledConnection {
    pub(crate) fn new(pool: Arc<Inner>, member: Box<Member>) -> Self {
        Self { member: Some(member), pin: None, pool }
    }

    /// Returns the ids that the driver and the server have given to the connection.
    pub fn id(&self) -> ConnectionId {
        self.member().id
    }

    /// Returns the reply to the handshake, which contains the server's limits.
    pub fn hello(&self) -> &Hello {
        self.member().established.hello()
    }

    /// Returns the generation of the connection.
    pub fn generation(&self) -> Generation {
        self.member().established.generation()
    }

    /// Returns the service behind a load balancer to which the connection leads, if any.
    pub fn service_id(&self) -> Option<ObjectId> {
        self.member().established.service_id()
    }

    /// Returns the address of the server.
    pub fn address(&self) -> &ServerAddress {
        &self.pool.context.address
    }

    /// Runs a command, which is a BSON document that contains `$db`, and returns the reply if its
    /// `ok` is 1. All errors, including those in the reply, are reported to the topology.
    ///
    /// `timeout` limits the wait for the reply; `None` means no limit.
    ///
    /// # Errors
    ///
    /// If the server answered with an error, the connection broke, no reply came in time, or the
    /// received message is not a valid reply. The kind is
    /// [`Interrupted`](sdam_core::error::ErrorKind::Interrupted) if a clear interrupted the
    /// connection because the server's monitor got no answer. If the clear came between the
    /// check-out and this call, the command is not sent.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. It is then unknown whether the command took effect,
    /// and the connection is closed when it is checked in.
    pub async fn run_command(
        &mut self,
        command: &[u8],
        timeout: Option<Duration>,
    ) -> Result<CommandReply, Error> {
        let member = self.member_mut();
        let interrupt = Arc::clone(&member.interrupt);
        let running = member.established.run_command(command, timeout);
        let result = interrupt.race(running).await;
        let now = self.pool.clock().now();
        self.member_mut().used = now;
        match result {
            Some(result) => result,
            None => Err(Error::interrupted(self.address())),
        }
    }

    /// Reports an error on this connection; see [`Established::report`].
    pub fn report(&self, error: Error) -> Error {
        self.member().established.report(error)
    }

    /// Returns the underlying connection, for drivers that frame their own messages. A clear does
    /// not interrupt commands that are run directly on the underlying connection.
    pub fn established(&mut self) -> &mut Established {
        &mut self.member_mut().established
    }

    /// Marks the connection as used by a cursor or a transaction until [`unpin`](Self::unpin) or
    /// the check-in. This affects only the error messages of check-out timeouts (Load Balancers:
    /// "Wait Queue Timeout Errors").
    pub fn pin(&mut self, pin: Pin) {
        let old = self.pin.replace(pin);
        self.pool.core.with(|machine| {
            machine.unpin(old);
            machine.pin(pin);
        });
    }

    /// Reverts [`pin`](Self::pin).
    pub fn unpin(&mut self) {
        let old = self.pin.take();
        self.pool.core.with(|machine| machine.unpin(old));
    }

    /// Closes the connection at its check-in, because its state is unknown.
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

sdam_core::opaque!(PooledConnection, |this| id: this.id(), address: this.address());

/// A connection of a pool.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) established: Established,
    pub(crate) id: ConnectionId,
    pub(crate) interrupt: Arc<Interrupt>,
    /// The time of the last reply to a command or, if there was none since, of the last check-out.
    pub(crate) used: Instant,
    /// True if the user of the connection has discarded it, or if it was found closed.
    pub(crate) is_discarded: bool,
}

impl Member {
    pub(crate) fn new(id: u64, established: Established, now: Instant) -> Self {
        let (generation, service) = (established.generation(), established.service_id());
        Self {
            id: ConnectionId { driver: id, server: established.hello().connection_id },
            interrupt: Arc::new(Interrupt::new(generation, service)),
            used: now,
            is_discarded: false,
            established,
        }
    }

    /// Checks, without waiting, whether an idle connection is still open. If it is not, the
    /// connection is marked as discarded.
    ///
    /// It is not enough to check whether the socket is readable: with TLS 1.3, the socket of an
    /// open connection is readable if the server has sent session tickets.
    pub(crate) fn is_open(&mut self, now: Instant) -> bool {
        let connection = self.established.connection();
        // With this deadline, a blocking connection times out at once.
        connection.set_deadline(Some(now));
        // This is unwind safe, because a connection that panics is closed.
        let look = AssertUnwindSafe(|| match connection.recv().now_or_never() {
            None => true,
            Some(received) => received.is_err_and(|error| error.is_timeout()),
        });
        self.is_discarded = !catch_unwind(look).unwrap_or(false);
        self.established.connection().set_deadline(None);
        !self.is_discarded
    }
}

impl Pooled for Box<Member> {
    fn generation(&self) -> Generation {
        self.established.generation()
    }

    fn service(&self) -> Option<ObjectId> {
        self.established.service_id()
    }

    fn is_usable(&self) -> bool {
        self.established.is_usable() && !self.is_discarded && !self.interrupt.is_set()
    }
}
