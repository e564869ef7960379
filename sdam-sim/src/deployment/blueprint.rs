//! The description of a deployment to start.

use std::sync::Arc;

use sdam_core::{address::ServerAddress, ids::ObjectId, rng::Rng};

use crate::{
    config::SetConfig,
    member::{Kind, Member, Replica},
    timing::Timing,
    version::ServerVersion,
};

/// The description of a deployment to start.
#[derive(Clone, Debug)]
pub struct Blueprint {
    pub(super) timing: Timing,
    pub(super) epoch_millis: i64,
    pub(super) balanced: bool,
    version: ServerVersion,
    processes: Processes,
    /// Processes that were started with `--replSet` but are not in a configuration.
    spares: Vec<ServerAddress>,
    #[cfg(feature = "auth")]
    pub(super) users: crate::users::Users,
}

#[derive(Clone, Debug)]
enum Processes {
    Standalone(ServerAddress),
    Mongoses(Vec<ServerAddress>),
    Replicas(SetConfig),
}

/// The start of 2024 in UTC. This date makes it easy to recognize simulated runs.
const EPOCH_MILLIS: i64 = 1_704_067_200_000;

impl Blueprint {
    /// Describes a replica set by its configuration, or by the number of its members: `3` stands for
    /// the set `rs` of `a:27017`, `b:27017` and `c:27017`.
    pub fn replica_set(config: impl Into<SetConfig>) -> Self {
        Self::new(Processes::Replicas(config.into()))
    }

    /// Describes the mongoses of a sharded cluster. The shards themselves are not simulated.
    pub fn sharded(mongoses: impl IntoIterator<Item = ServerAddress>) -> Self {
        Self::new(Processes::Mongoses(mongoses.into_iter().collect()))
    }

    /// Describes the mongoses of a sharded cluster behind a load balancer. The caller acts as the
    /// load balancer, and chooses a mongos for each connection.
    pub fn load_balanced(mongoses: impl IntoIterator<Item = ServerAddress>) -> Self {
        Self { balanced: true, ..Self::sharded(mongoses) }
    }

    /// Describes one mongod that is not in a replica set.
    pub fn standalone(address: ServerAddress) -> Self {
        Self::new(Processes::Standalone(address))
    }

    fn new(processes: Processes) -> Self {
        Self {
            timing: Timing::default(),
            epoch_millis: EPOCH_MILLIS,
            balanced: false,
            version: ServerVersion::default(),
            processes,
            spares: Vec::new(),
            #[cfg(feature = "auth")]
            users: crate::users::Users::default(),
        }
    }

    /// Sets the release of all servers. The default is 8.0.
    #[must_use]
    pub fn version(mut self, version: ServerVersion) -> Self {
        self.version = version;
        self
    }

    /// Sets the deployment's intervals. By default, they are the same as mongod's.
    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Sets the servers' wall clock time at the zero point of the caller's clock
    /// (`Instant::EPOCH`), in milliseconds since the Unix epoch.
    #[must_use]
    pub fn epoch_millis(mut self, millis: i64) -> Self {
        self.epoch_millis = millis;
        self
    }

    /// Adds a process that is not yet a member of the replica set.
    #[must_use]
    pub fn spare(mut self, address: ServerAddress) -> Self {
        self.spares.push(address);
        self
    }

    /// Adds a user. A deployment with users requires authentication.
    #[cfg(feature = "auth")]
    #[must_use]
    pub fn user(mut self, user: crate::users::User) -> Self {
        self.users.add(user);
        self
    }

    pub(super) fn members(&self, rng: &mut Rng) -> Vec<Member> {
        let mut members = Vec::new();
        let mut add = |address: &ServerAddress, kind| {
            members.push(Member::new(address.clone(), self.version, kind, rng));
        };
        match &self.processes {
            Processes::Standalone(address) => add(address, Kind::Standalone),
            Processes::Mongoses(addresses) => {
                for address in addresses {
                    add(address, Kind::Mongos);
                }
            }
            Processes::Replicas(config) => {
                let shared = Arc::new(config.clone());
                for member in &config.members {
                    let replica = Replica { config: Some(shared.clone()), ..Replica::default() };
                    add(&member.address, Kind::Replica(Box::new(replica)));
                }
            }
        }
        for address in &self.spares {
            add(address, Kind::Replica(Box::default()));
        }
        members
    }
}

/// Returns the election id for a term. A later term has a greater id, as in mongod.
pub(crate) fn election_id(term: i64) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[0] = 0x7f;
    bytes[1..4].fill(0xff);
    bytes[4..].copy_from_slice(&term.to_be_bytes());
    ObjectId::from_bytes(bytes)
}
