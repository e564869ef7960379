//! The state of one server in single-threaded mode.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    deployment::{ConnId, Input},
    hello::Hello,
    ids::{Generation, ObjectId, ServerId},
    time::Instant,
};
use sdam_transport::pool::{PoolHost as _, ServiceConnection};

use crate::{
    engine::{
        orders::{Action, Order},
        server::Server,
    },
    monitor::connection::MonitorConnection,
    topology::shared::Shared,
};

/// A server with the connection shared by checks and operations.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) server: Arc<Server>,
    /// The connection, whose generation is always current, because clearing the pool closes the
    /// connection.
    pub(super) connection: MonitorConnection,
    /// The last connection opened by a check.
    pub(super) conn: Option<ConnId>,
    /// The time at which the connection was last used.
    pub(super) used: Instant,
    /// The service to which the connection leads behind a load balancer.
    pub(super) service: Option<ObjectId>,
    /// The last connection to a load balancer that was reported to the topology. It is reported as
    /// closed only when the next one opens, because an operation may report its error after the
    /// connection is closed.
    pub(super) counted: Option<ServiceConnection>,
    /// The last reply to hello on the connection, or on the one before if it is closed.
    pub(super) hello: Hello,
}

impl Member {
    /// Creates the member of `server`, without a connection.
    pub(super) fn new(server: Arc<Server>) -> Self {
        Self {
            connection: MonitorConnection::default(),
            conn: None,
            used: Instant::EPOCH,
            service: None,
            counted: None,
            hello: Hello::default(),
            server,
        }
    }

    pub(super) fn id(&self) -> ServerId {
        self.server.id()
    }

    /// Carries out the orders for the connection, and closes it if its service was cleared. Returns
    /// whether the server is still in the topology.
    pub(super) fn follow(&mut self, shared: &Shared) -> bool {
        let news = self.server.orders.take();
        for Order { conn, action } in news.orders {
            if let Action::Connect { .. } = action {
                self.conn = Some(conn);
            }
            shared.execute(action, &self.server, &mut self.connection);
        }
        if news.end || self.is_service_cleared(shared) {
            self.disconnect();
        }
        !news.end
    }

    /// Returns whether the connection leads to a service behind a load balancer, and that service
    /// was cleared after the connection had been opened.
    fn is_service_cleared(&self, shared: &Shared) -> bool {
        let (Some(_), Some(counted)) = (self.service, &self.counted) else {
            return false;
        };
        let current = self.generation(shared);
        current.is_some_and(|current| current > counted.generation())
    }

    /// Returns the current generation of the service, if there is one, otherwise the generation of
    /// the server.
    pub(super) fn generation(&self, shared: &Shared) -> Option<Generation> {
        shared.generation(self.id(), self.service)
    }

    /// Returns the time for which the connection has been idle; `None` without a connection.
    pub(super) fn idle(&mut self, now: Instant) -> Option<Duration> {
        self.connection.wire().map(|_| now.since(self.used))
    }

    /// Returns whether the connection is open and usable.
    pub(super) fn is_connected(&mut self) -> bool {
        !self.is_abandoned() && self.connection.wire().is_some()
    }

    /// Returns whether the connection is unusable, because an operation was dropped before its
    /// reply arrived, or received a message that was not its reply.
    pub(super) fn is_abandoned(&mut self) -> bool {
        self.connection.wire().is_some_and(|wire| !wire.line.is_usable())
    }

    /// Returns whether the connection is authenticated.
    pub(super) fn is_authenticated(&mut self) -> bool {
        self.connection.wire().is_some_and(|wire| wire.authenticated.is_some())
    }

    /// Marks the connection as authenticated, in a conversation that began with the reply `hello`.
    pub(super) fn set_authenticated(&mut self, shared: &Arc<Shared>, hello: Box<[u8]>) {
        if let Some(wire) = self.connection.wire() {
            wire.authenticated = Some(hello);
        }
        if let Some(conn) = self.conn {
            shared.handle(Input::Authenticated { conn });
        }
    }

    /// Closes the connection.
    pub(super) fn disconnect(&mut self) {
        self.connection.disconnect();
        self.service = None;
    }
}
