//! Keys that distinguish the states of a checked machine.

use std::hash::{Hash, Hasher};

use sdam_core::server::ServerDescription;

use crate::checked::CheckedMachine;

impl CheckedMachine {
    /// Returns a hash of everything that determines the future of the machine.
    ///
    /// It leaves out the time, server ids and the values of generations, on which no rule depends.
    /// Of errors, only kind, stage and code are included. Two states collide by chance once in
    /// 2^128 pairs.
    pub(crate) fn key(&self) -> u128 {
        let mut hasher = Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        self.write(&mut hasher);
        hasher.0
    }

    fn write(&self, hasher: &mut impl Hasher) {
        let topology = self.machine.description();
        topology.topology_type().hash(hasher);
        topology.set_name().hash(hasher);
        topology.max_election().hash(hasher);
        for server in topology.servers() {
            write(server, hasher);
            let pool = self.pools.get(&server.id).copied().unwrap_or_default();
            (pool.ready, pool.measured).hash(hasher);
            // There are no late connections before the first clear.
            (pool.generation.as_u64() > 0).hash(hasher);
        }
    }
}

fn write(server: &ServerDescription, hasher: &mut impl Hasher) {
    server.address.as_str().hash(hasher);
    server.server_type.hash(hasher);
    server.rtt.is_some().hash(hasher);
    server.wire_versions.hash(hasher);
    server.me.hash(hasher);
    server.hosts.hash(hasher);
    server.set_name.hash(hasher);
    server.election.hash(hasher);
    server.primary.hash(hasher);
    server.topology_version.hash(hasher);
    if let Some(error) = &server.error {
        error.kind.hash(hasher);
        error.stage.hash(hasher);
        error.code.hash(hasher);
    }
}

/// FNV-1a with 128 bits.
struct Fnv(u128);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013B);
        }
    }

    fn finish(&self) -> u64 {
        self.0 as u64
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        checked::{CheckedMachine, Start},
        step::{Failure, OperationError, Reply, Role, Step},
    };

    #[test]
    fn equal_states_have_equal_keys_on_every_path() {
        let found = Step::Reply {
            on: 0,
            reply: Reply::member(Role::Primary),
        };
        let lost = Step::Failure {
            on: 0,
            failure: Failure::Network,
        };
        let broken = Step::Error {
            on: 0,
            error: OperationError::Broken,
            late: false,
        };
        let key = |history: &[Step]| {
            let mut machine = CheckedMachine::new(Start::DISCOVERY).unwrap();
            for step in history {
                machine.apply(*step).unwrap();
            }
            machine.key()
        };
        assert_eq!(key(&[found, lost]), key(&[found, lost, lost]));
        assert_eq!(
            key(&[found, lost, found]),
            key(&[found, lost, found, lost, found])
        );
        assert_ne!(key(&[found]), key(&[found, lost]));
        assert_ne!(
            key(&[found, lost]),
            key(&[found, broken]),
            "the errors have different stages"
        );
        assert_ne!(
            key(&[found]),
            key(&[found, lost, found]),
            "there may be connections of an earlier generation"
        );
    }
}
