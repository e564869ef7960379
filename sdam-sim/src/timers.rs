//! The timers of a deployment, in order of their deadlines.

use std::collections::{BTreeMap, BTreeSet};

use sdam_core::time::Instant;

use crate::{ConnectionId, MemberId};

/// The event that is due at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The member joins its set after its start.
    Startup(MemberId),
    /// The member sends heartbeats to its peers.
    Heartbeat(MemberId),
    /// The member has not seen a primary for the duration of the election timeout.
    Election(MemberId),
    /// The member has a higher priority than the primary.
    Takeover(MemberId),
    /// The new primary has caught up.
    CatchUp(MemberId),
    /// The primary writes a no-op.
    NoOp(MemberId),
    /// The quiesce period of the member's shutdown ends.
    Quiesce(MemberId),
    /// The member changes its topology version again ([`Action::Flood`](crate::Action::Flood)).
    Flood(MemberId),
    /// The connection's current request reaches its deadline.
    Connection(ConnectionId),
}

impl Timer {
    /// Returns the member to which this timer belongs.
    pub(crate) fn owner(self) -> MemberId {
        match self {
            Self::Startup(member)
            | Self::Heartbeat(member)
            | Self::Election(member)
            | Self::Takeover(member)
            | Self::CatchUp(member)
            | Self::NoOp(member)
            | Self::Quiesce(member)
            | Self::Flood(member) => member,
            Self::Connection(connection) => connection.member,
        }
    }
}

/// The deadlines, at most one for each [`Timer`].
#[derive(Debug, Default)]
pub(crate) struct Timers {
    deadlines: BTreeMap<Timer, Instant>,
    queue: BTreeSet<(Instant, Timer)>,
}

impl Timers {
    /// Sets or replaces the deadline of `timer`.
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        if let Some(before) = self.deadlines.insert(timer, at) {
            self.queue.remove(&(before, timer));
        }
        self.queue.insert((at, timer));
    }

    /// Sets the deadline of `timer` if it has none.
    pub(crate) fn set_if_unset(&mut self, timer: Timer, at: Instant) {
        if !self.deadlines.contains_key(&timer) {
            self.set(timer, at);
        }
    }

    pub(crate) fn cancel(&mut self, timer: Timer) {
        if let Some(at) = self.deadlines.remove(&timer) {
            self.queue.remove(&(at, timer));
        }
    }

    /// Cancels every timer for which `stays` returns false.
    pub(crate) fn retain(&mut self, stays: impl Fn(Timer) -> bool) {
        self.deadlines.retain(|timer, _| stays(*timer));
        self.queue.retain(|(_, timer)| stays(*timer));
    }

    /// Returns the next deadline and its timer.
    pub(crate) fn next(&self) -> Option<(Instant, Timer)> {
        self.queue.first().copied()
    }
}
