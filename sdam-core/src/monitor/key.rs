//! Writes keys that identify the states of a server's checks, for state-space searches.

use core::hash::{Hash, Hasher};

use super::{
    check::Check,
    state::{Idle, Running, State},
};
use crate::time::Instant;

impl Check {
    /// Writes all state that determines the behavior of the checks from `now` on.
    pub(crate) fn write_key(&self, now: Instant, hasher: &mut impl Hasher) {
        match &self.state {
            State::Idle(idle) => {
                1_u8.hash(hasher);
                self.write_idle(now, idle, hasher);
            }
            State::Running(check) => {
                2_u8.hash(hasher);
                self.write_running(now, check, hasher);
            }
            State::Done => 3_u8.hash(hasher),
        }
        let connection = self.connection.as_ref();
        connection
            .map(|own| (own.negotiation, own.topology_version, own.more_to_come, own.authenticated))
            .hash(hasher);
        let exhausted = !{ self.pace }.admits(now);
        (self.withheld, self.streaming, exhausted).hash(hasher);
    }

    fn write_idle(&self, now: Instant, idle: &Idle, hasher: &mut impl Hasher) {
        idle.until.since(now).hash(hasher);
        self.config.earliest(*idle).since(now).hash(hasher);
        // If the next check is due at once, a cancellation begins a wait, whose length is counted
        // from the end of the previous check.
        let ended = (idle.is_at_once() && self.connection.is_some()).then(|| now.since(idle.ended));
        ended.hash(hasher);
    }

    fn write_running(&self, now: Instant, check: &Running, hasher: &mut impl Hasher) {
        let wait = self.config.heartbeat_frequency;
        let late = |deadline: Instant| {
            // A deadline that was missed by more than a heartbeat is extended.
            let late = now.since(deadline).min(2 * wait);
            (deadline.since(now), late)
        };
        check.waiting.hash(hasher);
        check.deadline.map(late).hash(hasher);
        (check.heartbeat.awaited, check.extended, check.repeated).hash(hasher);
    }
}
