//! The limits of servers on new connections.

use std::time::Duration;

use sdam_core::time::Instant;

/// The limit of a server on new connections, as in MongoDB 8.2 and later
/// (`ingressConnectionEstablishmentRatePerSec`, `...BurstCapacitySecs`, `...MaxQueueDepth`).
///
/// A connection beyond the rate is accepted, but the server reads nothing from it until its turn
/// comes. If too many connections wait already, it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialLimit {
    /// The connections per second.
    pub rate: u32,
    /// The connections that are served at once after a quiet time.
    pub burst: u32,
    /// The maximum number of connections that wait.
    pub queue: u32,
}

/// A limited port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limiter {
    limit: DialLimit,
    /// The turn of the next connection, if the burst is used up.
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
