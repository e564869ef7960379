//! Hosts of tests: executors of tasks, and the deployments that they start.

use std::{any::Any, sync::Arc};

use futures::future::BoxFuture;
use sdam_core::options::Options;
use sdam_transport::{
    runtime::{Backend, Runtime},
    spawn::Spawner,
};

use crate::requirement::Environment;

/// An executor of tasks.
pub struct Host {
    spawner: Arc<dyn Spawner>,
    block_on: BlockOn,
    environments: Vec<Environment>,
    deploy: Option<Deploy>,
    look_up: Option<LookUp>,
    is_partial: bool,
}

/// Runs a future to completion.
type BlockOn = Box<dyn Fn(BoxFuture<'_, ()>)>;
type LookUp = Box<dyn Fn() -> Result<Backend, String>>;
type Deploy = Box<dyn Fn(&Environment) -> Result<TestDeployment, String>>;

impl Host {
    /// Creates a host that starts tasks with `spawner`. `block_on` runs a future to completion on
    /// the calling thread, on which tasks may run in the meantime.
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

    /// Sets the function that starts a new deployment for an environment, reachable from this
    /// host's runtime.
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

    /// Sets the function that returns the parts of this host's runtime, with a resolver for the
    /// records of [`zone`](crate::srv::zone).
    #[must_use]
    pub fn with_lookups(mut self, backend: impl Fn() -> Result<Backend, String> + 'static) -> Self {
        self.look_up = Some(Box::new(backend));
        self
    }

    /// Resolves a connection string on this host.
    pub(crate) fn resolve(&self, uri: &str) -> Result<Options, String> {
        let backend = self.look_up.as_ref().ok_or("the host looks nothing up")?()?;
        let resolved = self.block_on(::sdam::resolve(uri, &backend));
        let resolved = resolved.ok_or("the host ran no look-up")?;
        resolved.map_err(|error| format!("{error:#}"))
    }

    /// Permits tests to be skipped that no environment supports, because other hosts run them.
    #[must_use]
    pub fn partial(mut self) -> Self {
        self.is_partial = true;
        self
    }

    /// Returns whether tests may be skipped.
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

    pub(crate) fn spawner(&self) -> Arc<dyn Spawner> {
        Arc::clone(&self.spawner)
    }

    /// Runs `future` and returns its result.
    pub(crate) fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> Option<T> {
        let mut result = None;
        (self.block_on)(Box::pin(async {
            result = Some(future.await);
        }));
        result
    }
}

sdam_core::opaque!(Host, |this| spawner: this.spawner);

/// A deployment of one test, and the runtime that reaches it.
pub struct TestDeployment {
    target: Target,
    block_on: BlockOn,
    /// Dropping this value ends the deployment.
    _deployment: Box<dyn Any>,
}

/// The deployment to which the clients of a test connect, and their runtime.
pub(crate) struct Target {
    uri: String,
    /// The connection string of a load balancer with a single mongos, if there is a load balancer.
    pub(crate) single_uri: Option<String>,
    runtime: Runtime,
}

impl TestDeployment {
    /// Creates the environment of the deployment at `uri`, which exists as long as `deployment`.
    /// `block_on` runs futures to completion.
    pub fn new(
        uri: impl Into<String>,
        runtime: Runtime,
        block_on: impl Fn(BoxFuture<'_, ()>) + 'static,
        deployment: impl Any,
    ) -> Self {
        Self {
            target: Target { uri: uri.into(), single_uri: None, runtime },
            block_on: Box::new(block_on),
            _deployment: Box::new(deployment),
        }
    }

    /// Sets the connection string for clients that may reach only one mongos of a load balancer.
    #[must_use]
    pub fn with_single_mongos(mut self, uri: impl Into<String>) -> Self {
        self.target.single_uri = Some(uri.into());
        self
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Runs `future` and returns its result.
    pub(crate) fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> Option<T> {
        let mut result = None;
        (self.block_on)(Box::pin(async {
            result = Some(future.await);
        }));
        result
    }
}

impl Target {
    /// Returns the connection string for a client of one mongos or several.
    pub(crate) fn uri(&self, multiple_mongoses: bool) -> &str {
        let single = self.single_uri.as_ref().filter(|_| !multiple_mongoses);
        single.unwrap_or(&self.uri)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

sdam_core::opaque!(TestDeployment, |this| uri: this.target.uri);
