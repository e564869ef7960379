//! The state of a monitor: the idle wait, the running check and the open connection.

use core::time::Duration;

use crate::{
    error::{Error, ErrorKind, SYSTEM_OVERLOADED_ERROR, Stage},
    event::{ConnectionId, EventKind, Heartbeat},
    hello::Hello,
    ids::TopologyVersion,
    time::Instant,
};

use super::{MonitorConfig, Negotiation, Trip};

#[derive(Clone, Debug)]
pub(super) enum State {
    Idle(Idle),
    Running(Running),
    Done,
}

/// The idle wait between two checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    /// The time at which the last check ended.
    pub(super) ended: Instant,
    /// The time at which the next check begins.
    pub(super) until: Instant,
    /// True if there has been no check yet.
    pub(super) is_first: bool,
}

/// A running check. The start event of its heartbeat has been emitted, so an end event must follow.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) heartbeat: Heartbeat,
    /// The outstanding request.
    pub(super) waiting: Waiting,
    /// The time of the request.
    pub(super) since: Instant,
    /// The time at which the request fails; `None` for no limit.
    pub(super) deadline: Option<Instant>,
    /// True if the deadline was extended because the host was suspended.
    pub(super) extended: bool,
    /// True if a second request was sent because the first reply was late.
    pub(super) repeated: bool,
}

/// The answer that a check waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Waiting {
    Connection,
    Reply,
}

impl Running {
    /// Creates a check that waits from `now` on, for at most `limit`.
    pub(super) fn new(
        heartbeat: Heartbeat,
        waiting: Waiting,
        now: Instant,
        limit: Option<Duration>,
    ) -> Self {
        Self {
            heartbeat,
            waiting,
            since: now,
            deadline: limit.map(|limit| now + limit),
            extended: false,
            repeated: false,
        }
    }

    /// Returns whether a late reply was accepted only because the host was suspended or stalled, so
    /// that a second request is needed to measure the round trip. Returns false for the reply to
    /// that second request.
    pub(super) fn has_to_be_repeated(&self, trip: Trip) -> bool {
        let late = self.extended || trip.is_late(self.deadline);
        late && !self.heartbeat.awaited && !self.repeated
    }

    /// Returns the event that ends the heartbeat with `error`.
    pub(super) fn failed(self, duration: Duration, error: Error) -> EventKind {
        EventKind::ServerHeartbeatFailed { heartbeat: self.heartbeat, duration, failure: error }
    }

    /// Returns the event that ends the heartbeat as cancelled, without an outcome.
    pub(super) fn cancelled(self, now: Instant, reason: &str) -> EventKind {
        let stage = match self.waiting {
            Waiting::Connection => Stage::Connect,
            Waiting::Reply => Stage::Hello,
        };
        let error = Error::new(ErrorKind::Cancelled, stage, reason);
        let duration = now.since(self.since);
        self.failed(duration, error)
    }
}

/// An open connection and the state negotiated on it.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) negotiation: Negotiation,
    /// The topology version in the last reply, if streaming is enabled and the server supports it.
    ///
    /// It is specific to this connection; the topology may know a newer version.
    pub(super) topology_version: Option<TopologyVersion>,
    /// True if the server will send another reply without a request.
    pub(super) more_to_come: bool,
    /// True if operations share the connection and have authenticated on it.
    pub(super) authenticated: bool,
}

/// The kind of the next check.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// Open a connection first.
    Connect,
    /// Send a hello that is answered at once.
    Poll(Negotiation),
    /// Send an awaitable hello with this topology version.
    Await(Negotiation, TopologyVersion),
    /// Read the next streamed reply.
    Read,
}

impl Connection {
    /// Creates the state of a new connection, on which nothing has been sent.
    pub(super) fn new(id: ConnectionId) -> Self {
        Self {
            id,
            negotiation: Negotiation::Handshake,
            topology_version: None,
            more_to_come: false,
            authenticated: false,
        }
    }

    /// Returns whether the connection is kept after a check on it has failed with `error`.
    pub(super) fn outlives(&self, error: &Error) -> bool {
        self.authenticated
            && error.kind() == ErrorKind::Command
            && error.has_label(SYSTEM_OVERLOADED_ERROR)
    }

    /// Updates the negotiation and the streaming state from a reply.
    pub(super) fn learn(&mut self, hello: &Hello, more_to_come: bool, config: &MonitorConfig) {
        self.id.server = self.id.server.or(hello.connection_id);
        self.negotiation = Negotiation::after(hello, config);
        self.topology_version = hello.topology_version.filter(|_| config.streaming);
        self.more_to_come = more_to_come;
    }

    /// Returns the kind of the next check on this connection.
    pub(super) fn next(&self) -> Next {
        match self.topology_version {
            _ if self.more_to_come => Next::Read,
            Some(version) => Next::Await(self.negotiation, version),
            None => Next::Poll(self.negotiation),
        }
    }
}
