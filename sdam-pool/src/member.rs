//! A connection of a pool.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use futures::FutureExt as _;
use sdam_core::{
    event::ConnectionId,
    ids::{Generation, ObjectId},
    time::Instant,
};
use sdam_transport::pool::Established;

use crate::{interrupt::Interrupt, machine::Pooled};

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

    /// Looks for the end of an idle connection without waiting. If it has ended, it is not usable
    /// any more.
    ///
    /// Receiving finds more than the readiness of the socket would: with TLS 1.3, a server may have
    /// sent session tickets.
    pub(crate) fn is_open(&mut self, now: Instant) -> bool {
        let connection = self.established.connection();
        // A connection that blocks times out at once.
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
