//! Writes keys that identify the states of a deployment, for state-space searches.

use core::hash::{Hash, Hasher};

use super::Deployment;
use crate::time::Instant;

impl Deployment {
    /// Writes all state that determines the behavior of the deployment from `now` on.
    ///
    /// Instants are written relative to `now`, so that equal states at different times have equal
    /// keys. The key omits server ids, connection numbers, the values of generations and round-trip
    /// times, and error messages, because no rule depends on them. It also omits the random order
    /// in which a scan checks servers of equal rank. It does not contain the number of checks that
    /// followed each other without a pause, but only whether that number has reached its limit.
    pub fn write_key(&self, now: Instant, hasher: &mut impl Hasher) {
        self.topology.write_key(hasher);
        // Servers are sorted by address, so the key does not depend on the order in which they were
        // added.
        for described in self.description().servers() {
            let Some(server) = self.server(described.id) else {
                continue;
            };
            server.check.write_key(now, hasher);
            server.ping.write_key(now, hasher);
            server.rtt.rtt().is_some().hash(hasher);
            // Servers are never suspected in inline mode.
            if self.inline.is_none() {
                self.write_suspicion(now, server, hasher);
            }
            if self.detector().is_some() {
                server.probe.write_key(now, hasher);
            }
        }
        if let Some(srv) = &self.srv {
            srv.write_key(now, hasher);
        }
        if let Some(inline) = &self.inline {
            inline.write_key(now, self.description(), hasher);
        }
    }
}
