//! The description of a deployment to start.

use std::sync::Arc;

use sdam_core::{address::ServerAddress, ids::ObjectId, rng::Rng};

use crate::{
    config::{SetConfig, addresses},
    member::{Kind, Member, Replica},
    serve::{Listen, ServeError, Served},
    timing::Timing,
    version::ServerVersion,
};

/// The description of a deployment to start, either in virtual time by [`Sim`](crate::Sim) or on
/// loopback TCP by [`serve`](Self::serve).
///
/// The processes are called `a:27017`, `b:27017` and so on, unless they are [given](Self::at)
/// addresses. On TCP, each process is called by the address at which it listens.
#[derive(Clone, Debug)]
pub struct Blueprint {
    pub(crate) timing: Option<Timing>,
    pub(crate) epoch_millis: Option<i64>,
    pub(crate) balanced: bool,
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
    /// Describes a replica set by its configuration, or by the number of its members: `3` stands
    /// for the set `rs0` of `a:27017`, `b:27017` and `c:27017`.
    pub fn replica_set(config: impl Into<SetConfig>) -> Self {
        Self::new(Processes::Replicas(config.into()))
    }

    /// Describes the mongoses of a sharded cluster. The shards themselves are not simulated.
    pub fn sharded(mongoses: u16) -> Self {
        Self::new(Processes::Mongoses(addresses(mongoses).collect()))
    }

    /// Describes the mongoses of a sharded cluster behind the load balancer `a:27017`. In virtual
    /// time, the caller acts as the load balancer, and chooses a mongos for each connection.
    pub fn load_balanced(mongoses: u16) -> Self {
        let balancer = addresses(1).cycle().take(mongoses.into());
        Self { balanced: true, ..Self::new(Processes::Mongoses(balancer.collect())) }
    }

    /// Describes one mongod that is not in a replica set.
    pub fn standalone() -> Self {
        Self::new(Processes::Standalone(ServerAddress::new("a", 27017)))
    }

    fn new(processes: Processes) -> Self {
        Self {
            timing: None,
            epoch_millis: None,
            balanced: false,
            version: ServerVersion::default(),
            processes,
            spares: Vec::new(),
            #[cfg(feature = "auth")]
            users: crate::users::Users::default(),
        }
    }

    /// Gives the processes these addresses, in order, spares last. If there are too few addresses,
    /// the remaining processes keep theirs; surplus addresses are unused. The address of a mongos
    /// behind a load balancer is the address of the load balancer.
    #[must_use]
    pub fn at(mut self, addresses: impl IntoIterator<Item = ServerAddress>) -> Self {
        for (own, address) in self.addresses_mut().into_iter().zip(addresses) {
            *own = address;
        }
        self
    }

    fn addresses_mut(&mut self) -> Vec<&mut ServerAddress> {
        let mut own: Vec<_> = match &mut self.processes {
            Processes::Standalone(address) => vec![address],
            Processes::Mongoses(addresses) => addresses.iter_mut().collect(),
            Processes::Replicas(config) => {
                config.members.iter_mut().map(|member| &mut member.address).collect()
            }
        };
        own.extend(&mut self.spares);
        own
    }

    /// Returns the number of processes, spares included.
    pub(crate) fn len(&self) -> usize {
        let processes = match &self.processes {
            Processes::Standalone(_) => 1,
            Processes::Mongoses(addresses) => addresses.len(),
            Processes::Replicas(config) => config.members.len(),
        };
        processes + self.spares.len()
    }

    /// Changes the initial configuration of a replica set. Other deployments have none.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut SetConfig)) -> Self {
        if let Processes::Replicas(config) = &mut self.processes {
            change(config);
        }
        self
    }

    /// Sets the release of all servers. The default is 8.0.
    #[must_use]
    pub fn version(mut self, version: ServerVersion) -> Self {
        self.version = version;
        self
    }

    /// Sets the deployment's intervals. The default intervals are the same as mongod's in virtual
    /// time, and [shorter](Timing::fast) on TCP.
    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = Some(timing);
        self
    }

    /// Sets the servers' wall clock time at the zero point of the caller's clock
    /// (`Instant::EPOCH`), in milliseconds since the Unix epoch. By default, it is the start of
    /// 2024 in virtual time, and the wall clock time of this host on TCP.
    #[must_use]
    pub fn epoch_millis(mut self, millis: i64) -> Self {
        self.epoch_millis = Some(millis);
        self
    }

    /// Sets the number of processes that are not yet members of the replica set. They have the
    /// first addresses that no member has. Other deployments have no spares.
    #[must_use]
    pub fn spares(mut self, number: u16) -> Self {
        if let Processes::Replicas(config) = &self.processes {
            let unused = addresses(u16::MAX).filter(|address| config.member(address).is_none());
            self.spares = unused.take(number.into()).collect();
        }
        self
    }

    /// Adds a user. A deployment with users requires authentication.
    #[cfg(feature = "auth")]
    #[must_use]
    pub fn user(mut self, user: crate::users::User) -> Self {
        self.users.add(user);
        self
    }

    /// Starts the deployment on loopback TCP, on free ports. To choose ports, names, seed or clock,
    /// use [`Listen`].
    ///
    /// # Errors
    ///
    /// If a port cannot be bound or a thread cannot be started.
    pub fn serve(self) -> Result<Served, ServeError> {
        Listen::new().serve(self)
    }

    pub(super) fn epoch(&self) -> i64 {
        self.epoch_millis.unwrap_or(EPOCH_MILLIS)
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
