//! Test files against a running topology, on any runtime.
//!
//! The engine is the one that users run; only its environment differs. Tasks run on the [`Host`].
//! Connections are those of [`Servers`](sdam_testkit::Servers), which reply as the file says. The
//! time advances only when a file needs it. So nothing waits for real time: the tasks'
//! [`activity`] tells when the engine has processed its input.

pub mod activity;
mod drive;
mod harness;
mod sdam;
mod selection;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use sdam_core::options::Options;
use sdam_transport::{Io, Spawner};
use serde_json::Value;

use crate::unified::{Environment, TestDeployment};

pub use self::selection::{in_window, max_staleness, rtt, server_selection};

/// An executor of tasks.
pub struct Host {
    spawner: Arc<dyn Spawner>,
    block_on: BlockOn,
    environments: Vec<Environment>,
    deploy: Option<Deploy>,
    look_up: Option<LookUp>,
    is_partial: bool,
}

/// Runs a future to its end.
pub(crate) type BlockOn = Box<dyn Fn(BoxFuture<'_, ()>)>;
type LookUp = Box<dyn Fn() -> Result<Io, String>>;
type Deploy = Box<dyn Fn(&Environment) -> Result<TestDeployment, String>>;

impl Host {
    /// Creates a host that starts tasks with `spawner`. `block_on` runs a future to its end on the
    /// calling thread, on which tasks may run meanwhile.
    pub fn new(spawner: Arc<dyn Spawner>, block_on: impl Fn(BoxFuture<'_, ()>) + 'static) -> Self {
        Self {
            spawner,
            block_on: Box::new(block_on),
            environments: Vec::new(),
            deploy: None,
            look_up: None,
            is_partial: false,
        }
    }

    /// Sets the function that starts a new deployment of one of the environments, reachable from
    /// this host's runtime.
    #[must_use]
    pub fn with_deployments(
        mut self,
        environments: Vec<Environment>,
        deploy: impl Fn(&Environment) -> Result<TestDeployment, String> + 'static,
    ) -> Self {
        self.environments = environments;
        self.deploy = Some(Box::new(deploy));
        self
    }

    /// Sets the function that returns the parts of this host's runtime, with a resolver that has the
    /// records of [`zone`](crate::srv::zone).
    #[must_use]
    pub fn with_lookups(mut self, io: impl Fn() -> Result<Io, String> + 'static) -> Self {
        self.look_up = Some(Box::new(io));
        self
    }

    /// Resolves a connection string on this host.
    pub(crate) fn resolve(&self, uri: &str) -> Result<Options, String> {
        let io = self.look_up.as_ref().ok_or("the host looks nothing up")?()?;
        let resolved = self.block_on(::sdam::resolve(uri, &io));
        let resolved = resolved.ok_or("the host ran no look-up")?;
        resolved.map_err(|error| error.to_string())
    }

    /// Lets tests be left out that none of the environments admits: other hosts run them.
    #[must_use]
    pub fn partial(mut self) -> Self {
        self.is_partial = true;
        self
    }

    /// Returns whether tests may be left out.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Starts a new deployment.
    pub(crate) fn deployment(&self, environment: &Environment) -> Result<TestDeployment, String> {
        let deploy = self.deploy.as_ref();
        deploy.ok_or("the host has no deployments")?(environment)
    }

    /// Returns the environments that the host can start.
    pub(crate) fn environments(&self) -> &[Environment] {
        &self.environments
    }

    fn spawner(&self) -> Arc<dyn Spawner> {
        Arc::clone(&self.spawner)
    }

    /// Runs `future` and returns its result.
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

/// Runs a file of `server-discovery-and-monitoring/tests` against a running topology.
///
/// Also checks that it processes one check of a server at a time, that events are numbered without
/// gaps, that every heartbeat ends, and that closing leaves neither tasks nor connections.
pub fn discovery_and_monitoring(host: &Host, file: &Value) -> Result<(), String> {
    crate::sdam::check(file, |options| sdam::Engine::start(host, options))
}
