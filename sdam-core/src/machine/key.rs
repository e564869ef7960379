//! Keys that distinguish the states of a topology.

use core::hash::{Hash, Hasher};

use super::TopologyMachine;
use crate::{ids::Generation, server::ServerDescription};

impl TopologyMachine {
    /// Writes all state that determines the behavior of the topology. For an error, the key
    /// contains only the kind, the stage and the code.
    pub(crate) fn write_key(&self, hasher: &mut impl Hasher) {
        let topology = &self.description;
        (self.phase as u8, topology.topology_type, &topology.set_name).hash(hasher);
        (topology.max_election, topology.servers.len()).hash(hasher);
        for server in &topology.servers {
            write(server, hasher);
            if let Some(pool) = self.pool(server.id) {
                // Only the first generation is special: no connection can have an earlier one.
                (pool.ready, pool.generation > Generation::FIRST).hash(hasher);
                pool.services.write_key(hasher);
            }
        }
    }
}

fn write(server: &ServerDescription, hasher: &mut impl Hasher) {
    (&server.address, server.server_type, server.wire_versions, &server.me).hash(hasher);
    (&server.hosts, &server.passives, &server.arbiters, &server.set_name).hash(hasher);
    (server.election, &server.primary, server.topology_version).hash(hasher);
    let error = server.error.as_ref();
    error.map(|error| (error.kind(), error.stage(), error.code())).hash(hasher);
}
