//! Keys that distinguish the states of a topology.

use core::hash::{Hash, Hasher};

use super::TopologyMachine;
use crate::{ids::Generation, server::ServerDescription};

impl TopologyMachine {
    /// Writes all state that determines the behavior of the topology. For errors, that is only the
    /// kind, the stage and the code.
    pub(crate) fn write_key(&self, hasher: &mut impl Hasher) {
        let topology = &self.description;
        (self.phase as u8).hash(hasher);
        topology.topology_type.hash(hasher);
        topology.set_name.hash(hasher);
        topology.max_election.hash(hasher);
        topology.servers.len().hash(hasher);
        for server in &topology.servers {
            write(server, hasher);
            if let Some(pool) = self.pool(server.id) {
                pool.ready.hash(hasher);
                // Only the first generation is special: no connection can have an earlier one.
                (pool.generation > Generation::FIRST).hash(hasher);
                pool.services.write_key(hasher);
            }
        }
    }
}

fn write(server: &ServerDescription, hasher: &mut impl Hasher) {
    server.address.as_str().hash(hasher);
    server.server_type.hash(hasher);
    server.wire_versions.hash(hasher);
    server.me.hash(hasher);
    server.hosts.hash(hasher);
    server.passives.hash(hasher);
    server.arbiters.hash(hasher);
    server.set_name.hash(hasher);
    server.election.hash(hasher);
    server.primary.hash(hasher);
    server.topology_version.hash(hasher);
    let error = server.error.as_ref();
    error.map(|error| (error.kind(), error.stage(), error.code())).hash(hasher);
}
