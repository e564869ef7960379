//! How fast a stream is read.

use core::time::Duration;

use crate::time::Instant;

/// How many replies may come without a pause. A failover or a reconfiguration makes a member push a
/// handful.
const BURST: u32 = 50;

/// The time after which one more reply may come.
const INTERVAL: Duration = Duration::from_millis(50);

/// Counts the replies that a server pushes.
///
/// Server Monitoring says that a client must not sleep after an awaited reply, and it does not, as
/// long as the server is one that pushes what has changed. One that pushes without a pause would
/// otherwise decide how much the client computes, publishes and keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// When a whole burst may come again.
    rested: Instant,
}

impl Pace {
    /// Counts a reply at `now`, and says whether the next one may be read at once.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        self.rested = self.rested.max(now) + INTERVAL;
        self.rested.since(now) <= BURST * INTERVAL
    }
}
