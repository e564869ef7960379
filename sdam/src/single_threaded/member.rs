//! The state of one server in single-threaded mode.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    ids::{Generation, ObjectId, ServerId},
    monitor::{MonitorConfig, MonitorInput, MonitorMachine, ServerStatus},
    time::Instant,
};
use sdam_transport::pool::ServiceConnection;

use crate::{
    engine::server::Server,
    monitor::{self, connection::MonitorConnection},
    topology::shared::Shared,
};

/// A server's monitor and connection, which operations use, too.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) server: Arc<Server>,
    /// `None` for a load balancer, which is never checked.
    pub(super) monitor: Option<MonitorMachine>,
    /// Its generation is never older than the pool's: clearing the pool closes it.
    pub(super) connection: MonitorConnection,
    /// The pool's status that the connection was last compared with.
    pub(super) seen: ServerStatus,
    /// The time when the connection was last used.
    pub(super) used: Instant,
    /// The service behind a load balancer that the connection leads to.
    pub(super) service: Option<ObjectId>,
    /// The newest counted connection to a load balancer. It is uncounted only when the next one
    /// opens, because an operation may report its error after the connection is closed.
    pub(super) counted: Option<ServiceConnection>,
    /// The `maxWireVersion` of the connection to that service.
    pub(super) max_wire_version: i32,
}

impl Member {
    /// Creates the member of `server`, which is checked unless it is a load balancer.
    pub(super) fn new(server: Arc<Server>, config: &Arc<MonitorConfig>, balancer: bool) -> Self {
        let monitor = || {
            let address = server.core.address.clone();
            MonitorMachine::new(Arc::clone(config), server.id(), address)
        };
        Self {
            monitor: (!balancer).then(monitor),
            connection: MonitorConnection::default(),
            seen: server.status(),
            used: Instant::EPOCH,
            service: None,
            counted: None,
            max_wire_version: 0,
            server,
        }
    }

    pub(super) fn id(&self) -> ServerId {
        self.server.id()
    }

    /// Passes an input to the monitor and runs its effects.
    pub(super) fn tell(&mut self, shared: &Arc<Shared>, input: MonitorInput) {
        if let Some(machine) = &mut self.monitor {
            let effects = machine.handle(shared.now(), self.server.status(), input);
            monitor::execute(effects, shared, &self.server, &mut self.connection);
        }
    }

    /// Returns when the monitor acts next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.monitor.as_ref().and_then(MonitorMachine::deadline)
    }

    /// Returns the generation of connections that are opened now, to the service if there is one.
    pub(super) fn generation(&self, shared: &Shared) -> Option<Generation> {
        shared.generation(self.id(), self.service)
    }

    /// Returns how long the connection has been idle; `None` if there is none.
    pub(super) fn idle(&mut self, now: Instant) -> Option<Duration> {
        self.connection.wire().map(|_| now.since(self.used))
    }

    /// Returns whether the connection is open and usable.
    pub(super) fn is_connected(&mut self) -> bool {
        !self.is_abandoned() && self.connection.wire().is_some()
    }

    /// Returns whether the connection is unusable: an operation was dropped before its reply, or got
    /// a message that was not its reply.
    pub(super) fn is_abandoned(&mut self) -> bool {
        let wire = self.connection.wire();
        wire.is_some_and(|wire| !wire.exchange.is_usable())
    }

    /// Returns whether a user of the connection was authenticated.
    pub(super) fn is_authenticated(&mut self) -> bool {
        let wire = self.connection.wire();
        wire.is_some_and(|wire| wire.is_authenticated)
    }

    /// Notes that a user of the connection was authenticated.
    pub(super) fn set_authenticated(&mut self, now: Instant) {
        if let Some(wire) = self.connection.wire() {
            wire.is_authenticated = true;
        }
        if let Some(monitor) = &mut self.monitor {
            // This input yields no effects.
            let _ = monitor.handle(now, self.server.status(), MonitorInput::Authenticated);
        }
    }

    /// Closes the connection.
    pub(super) fn disconnect(&mut self) {
        self.connection.disconnect();
        self.service = None;
    }

    /// Returns whether the monitor, after a failed check, would retry without a pause.
    pub(super) fn wants_retry(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}
