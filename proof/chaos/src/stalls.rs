//! Stalls of the client's host, during which none of its tasks run.

use std::{ops::Range, time::Duration};

use sdam_core::time::Instant;

/// The stalls so far, in order.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Vec<Range<Instant>>);

impl Stalls {
    /// Adds a stall that is later than all others.
    pub(crate) fn add(&mut self, stall: Range<Instant>) {
        self.0.push(stall);
    }

    /// Returns the time at which a timer that is due at `due` fires.
    pub(crate) fn fires(&self, due: Instant) -> Instant {
        let during = self.0.iter().find(|stall| stall.contains(&due));
        during.map_or(due, |stall| stall.end)
    }

    /// Returns for how long the host stalled between `from` and `to`.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Duration {
        self.0.iter().map(|stall| stall.end.min(to).since(stall.start.max(from))).sum()
    }

    /// Returns the stall that ended at this time.
    pub(crate) fn ended(&self, at: Instant) -> Option<&Range<Instant>> {
        self.0.iter().find(|stall| stall.end == at)
    }

    /// Returns the end of the last stall.
    pub(crate) fn end(&self) -> Instant {
        self.0.last().map_or(Instant::EPOCH, |stall| stall.end)
    }
}
