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
    /// The member has not seen a primary for the election timeout.
    Election(MemberId),
    /// The member has a higher priority than the primary.
    Takeover(MemberId),
    /// The new primary has caught up.
    CatchUp(MemberId),
    /// The primary writes a no-op.
    NoOp(MemberId),
    /// The quiesce period of the member's shutdown ends.
    Quiesce(MemberId),
    /// The topology version of the member changes again ([`Action::Flood`](crate::Action::Flood)).
    Flood(MemberId),
    /// The connection's current request reaches its deadline.
    Connection(ConnectionId),
}

/// At most one deadline for each [`Timer`].
#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: BTreeSet<(Instant, Timer)>,
    set: BTreeMap<Timer, Instant>,
}

impl Timers {
    /// Sets or replaces the deadline of `timer`.
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.cancel(timer);
        self.set.insert(timer, at);
        self.queue.insert((at, timer));
    }

    /// Sets the deadline of `timer` if it has none.
    pub(crate) fn set_if_unset(&mut self, timer: Timer, at: Instant) {
        if !self.set.contains_key(&timer) {
            self.set(timer, at);
        }
    }

    /// Cancels `timer`.
    pub(crate) fn cancel(&mut self, timer: Timer) {
        if let Some(at) = self.set.remove(&timer) {
            self.queue.remove(&(at, timer));
        }
    }

    /// Returns the next deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Removes and returns the first timer that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        let first = *self.queue.first()?;
        if first.0 > now {
            return None;
        }
        self.queue.remove(&first);
        self.set.remove(&first.1);
        Some(first)
    }
}
