//! Starts a deployment on loopback TCP.

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

use super::{ServeError, Served, driver};
use crate::{Deployment, deployment::Blueprint, timing::Timing};

/// The ports, names, random seed and clock of a deployment on loopback TCP.
#[derive(Default)]
pub struct Listen {
    port: Option<u16>,
    seed: Option<u64>,
    clock: Option<Arc<dyn Clock>>,
    name: Option<Box<Name>>,
}

/// A function that returns the name of the server with a given index and port.
type Name = dyn Fn(u16, u16) -> ServerAddress + Send;

sdam_core::opaque!(Listen, |this| port: this.port, seed: this.seed);

impl Listen {
    /// Creates the default: free ports, which are the servers' names, the system's clock, and a seed
    /// from the wall clock time.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the first of the consecutive ports.
    #[must_use]
    pub fn port(mut self, first: u16) -> Self {
        self.port = Some(first);
        self
    }

    /// Sets the seed for all random choices.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the clock of the deployment.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the function that returns a server's name from its index and its port. Servers use
    /// these names for themselves and for each other, for example because they are behind a tunnel
    /// or in containers with published ports. They still listen on loopback addresses; see
    /// [`Served::places`].
    #[must_use]
    pub fn name(mut self, name: impl Fn(u16, u16) -> ServerAddress + Send + 'static) -> Self {
        self.name = Some(Box::new(name));
        self
    }

    /// Binds the ports and starts the deployment. Behind a load balancer, only the load balancer
    /// listens on a port.
    ///
    /// # Errors
    ///
    /// If a port cannot be bound or a thread cannot be started.
    pub fn serve(self, blueprint: Blueprint) -> Result<Served, ServeError> {
        let balanced = blueprint.balanced;
        let ports = if balanced { 1 } else { blueprint.len() as u16 };
        let listeners = (0..ports)
            .map(|index| bind(self.port, index))
            .collect::<io::Result<Vec<TcpListener>>>()?;
        let mut places = Vec::new();
        for (index, listener) in listeners.iter().enumerate() {
            let local = listener.local_addr()?;
            let place = ServerAddress::new(&local.ip().to_string(), local.port());
            let name = self.name.as_ref().map(|name| name(index as u16, local.port()));
            places.push((name.unwrap_or_else(|| place.clone()), place));
        }
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = self.seed.unwrap_or_else(|| mix(since_epoch.as_nanos() as u64));
        let clock = self.clock.unwrap_or_else(|| Arc::new(ThreadClock::new(Epoch::begin())));
        // All mongoses behind a load balancer have its name.
        let names = places.iter().map(|(name, _)| name.clone()).cycle();
        let mut blueprint = blueprint.at(names);
        blueprint.timing.get_or_insert_with(Timing::fast);
        blueprint.epoch_millis.get_or_insert(since_epoch.as_millis() as i64);
        let deployment = Deployment::start(Instant::EPOCH, &blueprint, Rng::new(seed));
        driver::start(deployment, clock, listeners, places.into(), balanced)
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
