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
//! One thread owns the [`Deployment`](crate::Deployment) and writes to connections, one thread per
//! listener accepts connections, and one thread per connection reads. Dropping [`Served`] stops
//! all threads.

mod driver;
mod listen;
mod listener;
#[cfg(test)]
mod tests;

use std::{
    io,
    sync::mpsc::{self, Sender},
    thread::JoinHandle,
    time::Duration,
};

use sdam_core::address::ServerAddress;

use self::driver::Event;
pub use self::listen::Listen;
use crate::{
    MemberId,
    action::{Action, ActionError, Target},
    config::SetConfig,
    deployment::Status,
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
