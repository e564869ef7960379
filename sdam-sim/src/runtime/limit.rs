//! Limits how fast servers accept new connections.

use std::time::Duration;

use sdam_core::time::Instant;

/// A server's limit on new connections, as in MongoDB 8.2 and later
/// (`ingressConnectionEstablishmentRatePerSec`, `...BurstCapacitySecs`, `...MaxQueueDepth`).
///
/// If connections arrive faster than the rate, the server still accepts them, but reads nothing
/// from a connection until its turn comes. If too many connections are already waiting, a new one
/// is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialLimit {
    /// The number of connections that are served per second.
    pub rate: u32,
    /// The number of connections that are served at once after a quiet period.
    pub burst: u32,
    /// The maximum number of connections that wait.
    pub queue: u32,
}

/// The state of a server's limit on new connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limiter {
    limit: DialLimit,
    /// The time at which the next connection is served if the burst is used up.
    turn: Instant,
}

impl Limiter {
    pub(super) fn new(limit: DialLimit) -> Self {
        Self { limit, turn: Instant::EPOCH }
    }

    /// Returns the time at which the server begins to read from a connection that arrives now, or
    /// `None` if the server closes the connection.
    pub(super) fn admit(&mut self, now: Instant) -> Option<Instant> {
        let interval = Duration::from_secs(1) / self.limit.rate.max(1);
        let turn = self.turn.max(now - interval * self.limit.burst);
        if turn.since(now) > interval * self.limit.queue {
            return None;
        }
        self.turn = turn + interval;
        Some(turn.max(now))
    }
}
