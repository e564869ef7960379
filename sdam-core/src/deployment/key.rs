//! Keys that distinguish the states of a deployment, for searches through them.

use core::hash::{Hash, Hasher};

use super::Deployment;
use crate::time::Instant;

impl Deployment {
    /// Writes everything that decides the future of the deployment from `now` on.
    ///
    /// Instants are written relative to `now`, so that equal states at other times have equal keys.
    /// Server ids, the numbers of connections, the values of generations and of round-trip times, and
    /// the texts of errors are left out: no rule depends on them. So is the random order in which a
    /// scan checks equal servers. Of the limit on checks without a pause, only its exhaustion counts.
    pub fn write_key(&self, now: Instant, hasher: &mut impl Hasher) {
        self.topology.write_key(hasher);
        // Sorted by address, which is the same on every way to a state.
        for described in self.description().servers() {
            let Some(server) = self.server(described.id) else {
                continue;
            };
            server.check.write_key(now, hasher);
            server.ping.write_key(now, hasher);
            server.rtt.rtt().is_some().hash(hasher);
        }
        if let Some(srv) = &self.srv {
            srv.write_key(now, hasher);
        }
        if let Some(inline) = &self.inline {
            inline.write_key(now, self.description(), hasher);
        }
    }
}
