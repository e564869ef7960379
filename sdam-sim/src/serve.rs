//! Simulated deployments on loopback TCP, for clients that do not use this crate.
//!
//! ```no_run
//! # fn main() -> Result<(), sdam_sim::serve::ServeError> {
//! let set = sdam_sim::Blueprint::replica_set(3).serve()?;
//! println!("{}", set.uri());
//! set.step_down()?;
//! # Ok(())
//! # }
//! ```
//!
//! One thread owns the [`Cluster`] and writes to connections, one thread per listener accepts
//! connections, and one thread per connection reads. Dropping [`Served`] stops all threads.

mod driver;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
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

use self::driver::Event;
use crate::{
    Cluster, MemberId,
    action::{Action, ActionError, Target},
    config::SetConfig,
    deployment::{Blueprint, Status},
    timing::Timing,
};

/// A running deployment on loopback TCP. Dropping it stops the deployment.
#[derive(Debug)]
pub struct Served {
    uri: String,
    places: Box<[(ServerAddress, ServerAddress)]>,
    events: Sender<Event>,
    driver: Option<JoinHandle<()>>,
}

/// The error returned when a deployment cannot be started or an action cannot be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The deployment refused the action.
    #[error(transparent)]
    Action(#[from] ActionError),
    /// A port could not be bound, or a thread could not be started.
    #[error("cannot serve on loopback: {0}")]
    Io(io::Error),
    /// The deployment has stopped.
    #[error("the simulated deployment has stopped")]
    Stopped,
}

impl Served {
    /// Returns the connection string for the deployment's initial servers.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Returns each server's name and the address on which it listens. The two differ if servers
    /// were given [names](Listen::name).
    pub fn places(&self) -> &[(ServerAddress, ServerAddress)] {
        &self.places
    }

    /// Applies `action`. Returns once the action has taken effect.
    pub fn apply(&self, action: &Action) -> Result<(), ServeError> {
        self.request(|reply| Event::Apply(action.clone(), reply))?
    }

    /// Kills the process `member`, which does not announce a shutdown.
    pub fn kill(&self, member: impl Into<Target>) -> Result<(), ServeError> {
        self.apply(&Action::Kill(member.into()))
    }

    /// Shuts down the process `member` cleanly.
    pub fn shut_down(&self, member: impl Into<Target>) -> Result<(), ServeError> {
        self.apply(&Action::Shutdown(member.into()))
    }

    /// Restarts the process `member` on the same port.
    pub fn restart(&self, member: impl Into<Target>) -> Result<(), ServeError> {
        self.apply(&Action::Restart(member.into()))
    }

    /// Freezes the process `member`: it stops answering, but its connections stay open.
    pub fn freeze(&self, member: impl Into<Target>) -> Result<(), ServeError> {
        self.apply(&Action::Freeze(member.into()))
    }

    /// Resumes the frozen process `member`.
    pub fn thaw(&self, member: impl Into<Target>) -> Result<(), ServeError> {
        self.apply(&Action::Thaw(member.into()))
    }

    /// Makes the primary step down and hand over to another member.
    pub fn step_down(&self) -> Result<(), ServeError> {
        let period = Duration::from_secs(60);
        self.apply(&Action::StepDown { period })
    }

    /// Disconnects two members from each other.
    pub fn partition(&self, a: impl Into<Target>, b: impl Into<Target>) -> Result<(), ServeError> {
        self.apply(&Action::Partition(vec![a.into()], vec![b.into()]))
    }

    /// Ends all partitions.
    pub fn heal(&self) -> Result<(), ServeError> {
        self.apply(&Action::Heal)
    }

    /// Changes the configuration and increments its version.
    pub fn reconfig(&self, change: impl FnOnce(&mut SetConfig)) -> Result<(), ServeError> {
        let none = ServeError::Action(ActionError::NoReplicaSet);
        let mut config = self.config()?.ok_or(none)?;
        change(&mut config);
        self.apply(&Action::Reconfig(config))
    }

    /// Returns the primary, if there is one.
    pub fn primary(&self) -> Result<Option<MemberId>, ServeError> {
        Ok(self.status()?.primary().map(|primary| primary.id))
    }

    /// Returns the true state of the deployment.
    pub fn status(&self) -> Result<Status, ServeError> {
        self.request(Event::Status)
    }

    /// Returns the configuration of the replica set, or `None` for other deployments.
    pub fn config(&self) -> Result<Option<SetConfig>, ServeError> {
        self.request(Event::Config)
    }

    /// Returns the number of open client connections.
    pub fn connections(&self) -> Result<usize, ServeError> {
        self.request(Event::Connections)
    }

    fn request<T>(&self, event: impl FnOnce(Sender<T>) -> Event) -> Result<T, ServeError> {
        let (reply, answer) = mpsc::channel();
        self.events.send(event(reply)).map_err(|_| ServeError::Stopped)?;
        answer.recv().map_err(|_| ServeError::Stopped)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // An error means that the driver thread has already stopped.
        let _ = self.events.send(Event::Stop);
        if let Some(driver) = self.driver.take() {
            let _ = driver.join();
        }
    }
}

impl From<io::Error> for ServeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

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

impl Listen {
    /// Creates the default settings: free ports, the addresses on which the servers listen as their
    /// names, the system's clock, and a seed from the wall clock time.
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
        // All mongoses behind a load balancer have the name of the load balancer.
        let names = places.iter().map(|(name, _)| name.clone()).cycle();
        let mut blueprint = blueprint.at(names);
        blueprint.timing.get_or_insert_with(Timing::fast);
        blueprint.epoch_millis.get_or_insert(since_epoch.as_millis() as i64);
        let deployment = Cluster::start(Instant::EPOCH, &blueprint, Rng::new(seed));
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

sdam_core::opaque!(Listen, |this| port: this.port, seed: this.seed);
