//! Computes keys that identify the state of a server's round-trip measurements, for state-space
//! searches.

use core::hash::{Hash, Hasher};

use super::ping::{Ping, State};
use crate::time::Instant;

impl Ping {
    /// Writes all state that determines the behavior of the measurements from `now` on.
    pub(crate) fn write_key(&self, now: Instant, hasher: &mut impl Hasher) {
        match self.state {
            State::Stopped => 1_u8.hash(hasher),
            State::Idle { from, until } => {
                (2_u8, from.since(now), until.since(now)).hash(hasher);
            }
            State::Asked { answer, since } => {
                (3_u8, answer, left(now, self.limit(since))).hash(hasher);
            }
        }
        self.connection.hash(hasher);
    }
}

/// Returns the time until the deadline, and whether the deadline has passed.
fn left(now: Instant, deadline: Option<Instant>) -> Option<(core::time::Duration, bool)> {
    deadline.map(|deadline| (deadline.since(now), deadline < now))
}
