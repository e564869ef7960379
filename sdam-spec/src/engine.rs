//! Files against a whole running topology, on any runtime.
//!
//! The engine is what users run; only what it is given differs. Tasks run where the [`Host`] runs
//! them. Connections are [`transport`]'s, whose servers say what the file says. Time is
//! [`clock`]'s and stands still until a file needs it to pass. So nothing waits for real time:
//! whether the engine has digested what it was given is known from its tasks ([`activity`]).

pub mod activity;
pub mod canned;
pub mod clock;
mod lead;
mod sdam;
mod selection;
mod stage;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod transport;

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use sdam_transport::spawn::Spawner;
use serde_json::Value;

use crate::unified::{Kind, World};

pub use self::selection::{in_window, max_staleness, rtt, server_selection};

/// Where tasks are run.
pub struct Host {
    spawner: Arc<dyn Spawner>,
    block_on: BlockOn,
    deploy: Option<Deploy>,
}

/// Runs a future to its end.
pub(crate) type BlockOn = Box<dyn Fn(BoxFuture<'_, ()>)>;
type Deploy = Box<dyn Fn(Kind) -> Result<World, String>>;

impl Host {
    /// The host that starts tasks with `spawner`, and with `block_on` runs a future to its end on
    /// the calling thread, on which tasks may run meanwhile.
    pub fn new(spawner: Arc<dyn Spawner>, block_on: impl Fn(BoxFuture<'_, ()>) + 'static) -> Self {
        Self {
            spawner,
            block_on: Box::new(block_on),
            deploy: None,
        }
    }

    /// Adds deployments that this host's runtime reaches: a new one each time.
    #[must_use]
    pub fn with_deployments(
        mut self,
        deploy: impl Fn(Kind) -> Result<World, String> + 'static,
    ) -> Self {
        self.deploy = Some(Box::new(deploy));
        self
    }

    /// A new deployment.
    pub(crate) fn world(&self, kind: Kind) -> Result<World, String> {
        let deploy = self.deploy.as_ref();
        deploy.ok_or("the host has no deployments")?(kind)
    }

    fn spawner(&self) -> Arc<dyn Spawner> {
        Arc::clone(&self.spawner)
    }

    /// What `future` yields.
    fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> Option<T> {
        let mut result = None;
        (self.block_on)(Box::pin(async {
            result = Some(future.await);
        }));
        result
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("spawner", &self.spawner)
            .finish_non_exhaustive()
    }
}

/// Plays a file of `server-discovery-and-monitoring/tests` to a running topology.
///
/// Checks besides that it takes in one check of a server at a time, that events are numbered
/// without gaps, that every heartbeat ends, and that closing leaves neither task nor connection.
pub fn discovery_and_monitoring(host: &Host, file: &Value) -> Result<(), String> {
    crate::sdam::check(file, |options| sdam::Engine::start(host, options))
}
