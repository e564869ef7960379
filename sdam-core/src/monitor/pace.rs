//! The limit on checks that follow each other without a pause.

use core::time::Duration;

use crate::time::Instant;

/// The maximum number of checks that follow each other without a pause. In a failover or a
/// reconfiguration, a member pushes only a handful of replies.
const BURST: u32 = 50;

/// The time after which one more check may begin without a pause.
const INTERVAL: Duration = Duration::from_millis(50);

/// Counts the checks that begin without a pause: those after a streamed reply, and the retries
/// after a network error from a known server.
///
/// Server Monitoring requires that neither kind of check waits, and in normal operation none does.
/// The limit bounds the load that a server can cause by pushing replies incessantly, or a proxy by
/// breaking each connection after its first replies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// The time at which a full burst is available again.
    rested: Instant,
}

impl Pace {
    /// Counts a check that ended at `now`. Returns whether the next one may begin at once.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        self.rested = self.rested.max(now) + INTERVAL;
        self.rested.since(now) <= BURST * INTERVAL
    }
}
