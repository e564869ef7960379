//! The description of a deployment to serve on TCP.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use sdam_core::{
    address::ServerAddress,
    rng::{Rng, mix},
    time::Instant,
};
use sdam_transport::{
    clock::Clock,
    system::{Epoch, ThreadClock},
};

use super::{ServeError, Server, driver};
use crate::{
    Deployment, config::SetConfig, deployment::Blueprint, timing::Timing, version::ServerVersion,
};

/// The description of a deployment to serve on TCP.
pub struct Builder {
    kind: Kind,
    processes: u16,
    spares: u16,
    version: ServerVersion,
    timing: Timing,
    port: Option<u16>,
    seed: Option<u64>,
    clock: Option<Arc<dyn Clock>>,
    /// The changes to the initial configuration.
    configure: Vec<Configure>,
    /// A function that returns the name of the server with a given index and port.
    name: Box<dyn Fn(u16, u16) -> ServerAddress + Send>,
    #[cfg(feature = "auth")]
    users: Vec<crate::users::User>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Standalone,
    ReplicaSet,
    Sharded,
    LoadBalanced,
}

type Configure = Box<dyn FnOnce(&mut SetConfig) + Send>;

sdam_core::opaque!(Builder, |this| kind: this.kind, processes: this.processes);

impl Builder {
    /// Describes a replica set `rs0` with this many members.
    pub fn replica_set(members: u16) -> Self {
        Self::new(Kind::ReplicaSet, members)
    }

    /// Describes a sharded cluster with this many mongoses.
    pub fn sharded(mongoses: u16) -> Self {
        Self::new(Kind::Sharded, mongoses)
    }

    /// Describes this many mongoses behind a load balancer. Only the load balancer listens on a
    /// port.
    pub fn load_balanced(mongoses: u16) -> Self {
        Self::new(Kind::LoadBalanced, mongoses)
    }

    /// Describes one mongod that is not in a replica set.
    pub fn standalone() -> Self {
        Self::new(Kind::Standalone, 1)
    }

    fn new(kind: Kind, processes: u16) -> Self {
        Self {
            kind,
            processes,
            spares: 0,
            version: ServerVersion::default(),
            timing: Timing::fast(),
            port: None,
            seed: None,
            clock: None,
            configure: Vec::new(),
            name: Box::new(|_, port| ServerAddress::new(&Ipv4Addr::LOCALHOST.to_string(), port)),
            #[cfg(feature = "auth")]
            users: Vec::new(),
        }
    }

    /// Sets the release of all servers. The default is 8.0.
    #[must_use]
    pub fn version(mut self, version: ServerVersion) -> Self {
        self.version = version;
        self
    }

    /// Sets the deployment's intervals. The default is [`Timing::fast`].
    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Sets the first of the consecutive ports to listen on. By default, free ports are used.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Sets the number of spare processes for a replica set. Other deployments have none.
    #[must_use]
    pub fn spares(mut self, spares: u16) -> Self {
        self.spares = spares;
        self
    }

    /// Sets the seed for all random choices. By default, it is derived from the wall clock time.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the clock of the deployment. The default is the system's clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Changes the initial configuration of the replica set.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut SetConfig) + Send + 'static) -> Self {
        self.configure.push(Box::new(change));
        self
    }

    /// Sets the function that returns a server's name from its index and its port. Servers use
    /// these names for themselves and for each other, for example because they are behind a tunnel
    /// or in containers with published ports. They still listen on loopback addresses; see
    /// [`Server::places`].
    #[must_use]
    pub fn name(mut self, name: impl Fn(u16, u16) -> ServerAddress + Send + 'static) -> Self {
        self.name = Box::new(name);
        self
    }

    /// Adds a user. A deployment with users requires authentication.
    #[cfg(feature = "auth")]
    #[must_use]
    pub fn user(mut self, user: crate::users::User) -> Self {
        self.users.push(user);
        self
    }

    /// Binds the ports and starts the deployment.
    ///
    /// # Errors
    ///
    /// If a port is taken or a thread cannot be started.
    pub fn start(self) -> Result<Server, ServeError> {
        let ports = match self.kind {
            Kind::LoadBalanced | Kind::Standalone => 1,
            Kind::Sharded => self.processes,
            Kind::ReplicaSet => self.processes.saturating_add(self.spares),
        };
        let listeners = (0..ports)
            .map(|index| bind(self.port, index))
            .collect::<io::Result<Vec<TcpListener>>>()?;
        let mut places = Vec::new();
        for (index, listener) in listeners.iter().enumerate() {
            let local = listener.local_addr()?;
            let name = (self.name)(index as u16, local.port());
            let place = ServerAddress::new(&local.ip().to_string(), local.port());
            places.push((name, place));
        }
        let addresses: Vec<_> = places.iter().map(|(name, _)| name.clone()).collect();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = self.seed.unwrap_or_else(|| mix(since_epoch.as_nanos() as u64));
        let balanced = self.kind == Kind::LoadBalanced;
        let clock = self.clock.clone();
        let clock = clock.unwrap_or_else(|| Arc::new(ThreadClock::new(Epoch::begin())));
        let blueprint = self.blueprint(&addresses).epoch_millis(since_epoch.as_millis() as i64);
        let deployment = Deployment::start(Instant::EPOCH, &blueprint, Rng::new(seed));
        driver::start(deployment, clock, listeners, places.into(), balanced)
    }

    fn blueprint(self, addresses: &[ServerAddress]) -> Blueprint {
        let blueprint = match (self.kind, addresses) {
            (Kind::LoadBalanced, [balancer, ..]) => {
                let mongoses = usize::from(self.processes);
                Blueprint::load_balanced(std::iter::repeat_n(balancer.clone(), mongoses))
            }
            (Kind::Standalone, [address, ..]) => Blueprint::standalone(address.clone()),
            (Kind::ReplicaSet, _) => {
                let members = usize::from(self.processes).min(addresses.len());
                let (own, spares) = addresses.split_at(members);
                let mut config = SetConfig::new("rs0", own.iter().cloned());
                for change in self.configure {
                    change(&mut config);
                }
                let set = Blueprint::replica_set(config);
                spares.iter().cloned().fold(set, Blueprint::spare)
            }
            (Kind::Sharded | Kind::LoadBalanced | Kind::Standalone, _) => {
                Blueprint::sharded(addresses.iter().cloned())
            }
        };
        #[cfg(feature = "auth")]
        let blueprint = self.users.into_iter().fold(blueprint, Blueprint::user);
        blueprint.version(self.version).timing(self.timing)
    }
}

/// Binds the port `first + index`, or a free port if `first` is `None`.
fn bind(first: Option<u16>, index: u16) -> io::Result<TcpListener> {
    let port = match first {
        None => 0,
        Some(first) => first.checked_add(index).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the ports end after 65535: choose a lower first port",
            )
        })?,
    };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address)
        .map_err(|error| io::Error::new(error.kind(), format!("port {port}: {error}")))
}
