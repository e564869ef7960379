//! What a monitor is doing, and on which connection.

use core::time::Duration;

use crate::{
    error::{ErrorKind, SYSTEM_OVERLOADED_ERROR, ServerError, Stage},
    event::{ConnectionId, EventKind, Heartbeat},
    hello::Hello,
    ids::TopologyVersion,
    time::Instant,
};

use super::{MonitorConfig, MonitorEffect, Negotiation};

/// What a monitor is doing.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) enum State {
    /// It waits for the next check.
    Idle(Idle),
    /// It checks the server.
    Checking(Check),
    /// It has ended.
    Done,
}

/// The wait between two checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    /// When the last check ended.
    pub(super) ended: Instant,
    /// When the next one begins.
    pub(super) until: Instant,
}

/// A running check. Its heartbeat was started and has to end.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Check {
    pub(super) heartbeat: Heartbeat,
    /// What was asked for and has not come yet.
    pub(super) waiting: Waiting,
    /// When it was asked for.
    pub(super) since: Instant,
    /// When to stop waiting for it.
    pub(super) deadline: Option<Instant>,
    /// Whether the deadline was moved because the host had slept.
    pub(super) extended: bool,
    /// Whether it has asked again, because the first reply was late.
    pub(super) repeated: bool,
}

/// What a check waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Connection,
    Reply,
}

impl Check {
    /// A check that waits from `now` on, for at most `limit`.
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

    /// Whether a reply at `now` comes after its time and was accepted only because the host slept
    /// or stalled, so that another one is needed to measure the round trip; once.
    pub(super) fn has_to_be_repeated(&self, now: Instant) -> bool {
        let late = self.extended || self.deadline.is_some_and(|deadline| deadline < now);
        late && !self.heartbeat.awaited && !self.repeated
    }

    /// How long the round trip took that ended with a reply at `now`. More than the limit is the
    /// host's doing.
    pub(super) fn sample(&self, now: Instant) -> Duration {
        let end = self.deadline.map_or(now, |deadline| deadline.min(now));
        end.since(self.since)
    }

    /// The event that ends the heartbeat with `error`.
    pub(super) fn failed(self, now: Instant, error: ServerError) -> MonitorEffect {
        MonitorEffect::Emit(EventKind::ServerHeartbeatFailed {
            heartbeat: self.heartbeat,
            duration: now.since(self.since),
            failure: error.shared(),
        })
    }

    /// The event that ends the heartbeat without an outcome.
    pub(super) fn cancelled(self, now: Instant, reason: &str) -> MonitorEffect {
        let stage = match self.waiting {
            Waiting::Connection => Stage::Connect,
            Waiting::Reply => Stage::Hello,
        };
        self.failed(now, ServerError::new(ErrorKind::Cancelled, stage, reason))
    }
}

/// An open connection and what was learned on it.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) negotiation: Negotiation,
    /// The version in the last reply, if the server can stream and may.
    ///
    /// The monitor's own, whatever the topology has heard from others since.
    topology_version: Option<TopologyVersion>,
    /// Whether the server sends another reply unasked.
    more_to_come: bool,
    /// Whether operations share the connection and have authenticated on it.
    pub(super) authenticated: bool,
}

/// How the next check goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// Open a connection first.
    Connect,
    /// Ask, and get the answer at once.
    Poll(Negotiation),
    /// Ask for the next change of this version, and for the changes after it.
    Await(Negotiation, TopologyVersion),
    /// Read what the server sends unasked.
    Read,
}

impl Connection {
    /// A new connection, nothing sent yet.
    pub(super) fn new(id: ConnectionId) -> Self {
        Self {
            id,
            negotiation: Negotiation::Handshake,
            topology_version: None,
            more_to_come: false,
            authenticated: false,
        }
    }

    /// Whether the connection is to be kept although a check on it has failed with `error`.
    pub(super) fn outlives(&self, error: &ServerError) -> bool {
        self.authenticated
            && error.kind == ErrorKind::Command
            && error.has_label(SYSTEM_OVERLOADED_ERROR)
    }

    /// Takes in what a reply says about the conversation.
    pub(super) fn learn(&mut self, hello: &Hello, more_to_come: bool, config: &MonitorConfig) {
        self.id.server = self.id.server.or(hello.connection_id);
        self.negotiation = Negotiation::after(hello, config);
        self.topology_version = hello.topology_version.filter(|_| config.streaming);
        self.more_to_come = more_to_come;
    }

    /// How the next check on this connection goes.
    pub(super) fn next(&self) -> Next {
        match self.topology_version {
            _ if self.more_to_come => Next::Read,
            Some(version) => Next::Await(self.negotiation, version),
            None => Next::Poll(self.negotiation),
        }
    }
}
