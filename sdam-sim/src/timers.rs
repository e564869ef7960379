//! The deadlines of a deployment, in order.

use std::collections::{BTreeMap, BTreeSet};

use sdam_core::time::Instant;

use crate::{ConnectionId, MemberId};

/// What happens at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The member has joined its set after it was started.
    Startup(MemberId),
    /// The member asks its peers for their state.
    Heartbeat(MemberId),
    /// The member has not heard of a primary for too long.
    Election(MemberId),
    /// The member has a higher priority than the primary.
    Takeover(MemberId),
    /// The new primary has caught up.
    CatchUp(MemberId),
    /// The primary writes a no-op.
    NoOp(MemberId),
    /// The member has announced its shutdown for long enough.
    Quiesce(MemberId),
    /// The member tells of a change again.
    Flood(MemberId),
    /// The wait of the connection's current request is over.
    Connection(ConnectionId),
}

/// At most one deadline for each [`Timer`].
#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: BTreeSet<(Instant, Timer)>,
    set: BTreeMap<Timer, Instant>,
}

impl Timers {
    /// Sets the deadline of `timer`, whatever it was before.
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

    /// Forgets the deadline of `timer`.
    pub(crate) fn cancel(&mut self, timer: Timer) {
        if let Some(at) = self.set.remove(&timer) {
            self.queue.remove(&(at, timer));
        }
    }

    /// The next deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes the first deadline that is not after `now`.
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
