//! Random delays of background connections, so that many clients do not connect at the same time.

use core::time::Duration;

use super::Deployment;
use crate::time::Instant;

impl Deployment {
    /// Returns a random delay for a background connection, shorter than `Options::spread`.
    pub(super) fn random_delay(&mut self) -> Duration {
        let spread = self.config.spread.as_nanos().try_into().unwrap_or(u64::MAX);
        if spread == 0 || self.inline.is_some() {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.rng.below(spread))
    }

    /// Spreads the first checks of the seeds over time.
    pub(super) fn spread(&mut self, now: Instant) {
        for index in 0..self.servers.len() {
            let delay = self.random_delay();
            if let Some(server) = self.servers.get_mut(index).filter(|_| !delay.is_zero()) {
                server.check.postpone(now + delay);
            }
        }
    }
}
