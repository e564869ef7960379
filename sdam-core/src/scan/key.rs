//! Computes keys that identify the state of scans, for state-space searches.

use core::{
    hash::{Hash, Hasher},
    time::Duration,
};

use super::{Scans, State};
use crate::{ids::ServerId, options::COOLDOWN, time::Instant, topology::TopologyDescription};

impl Scans {
    /// Writes all state that determines the behavior of the scans from `now` on, except for the
    /// random order of servers of equal rank. All ages at which a scan is no longer valid are
    /// treated as equal.
    pub(crate) fn write_key(
        &self,
        now: Instant,
        topology: &TopologyDescription,
        hasher: &mut impl Hasher,
    ) {
        let valid = self.setup.frequency.max(COOLDOWN) + Duration::from_secs(1);
        let age = |instant: Instant| now.since(instant).min(valid);
        let address = |server: ServerId| {
            let server = topology.server_by_id(server);
            server.map(|server| server.address.clone())
        };
        for server in topology.servers() {
            server.last_update_time.map(age).hash(hasher);
        }
        self.stale.hash(hasher);
        self.last_scan.map(age).hash(hasher);
        self.urgent.and_then(address).hash(hasher);
        let selection = self.selection.as_ref();
        selection.map(|own| own.key(now)).hash(hasher);
        match &self.state {
            State::Resting => 1_u8.hash(hasher),
            State::Sleeping { until } => (2_u8, until.since(now)).hash(hasher),
            State::Checking { scan, server, known } => {
                (3_u8, scan.key(age), address(*server), known).hash(hasher);
            }
            State::LookingUp => 4_u8.hash(hasher),
            State::Choosing => 5_u8.hash(hasher),
            State::Probing { server, superseded } => {
                (6_u8, address(*server), superseded).hash(hasher);
            }
        }
    }
}
