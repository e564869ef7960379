//! The unified test format, to the extent that tests of log messages need it.
//!
//! A file runs against a deployment with the complete stack: a [`TestDeployment`] consists of a
//! deployment, a runtime that reaches it, and an executor. Clients are topologies. Operations
//! select a server under the name of their command, and send it that command on a separate
//! connection, as there are no pools.

mod client;
mod entity;
mod event;
mod format;
mod log;
mod matching;
mod operation;
mod runner;
#[cfg(test)]
mod tests;

use std::{any::Any, fmt};

use futures::future::BoxFuture;
use sdam_transport::Runtime;
use serde::Deserialize;
use serde_json::Value;

use self::{
    entity::Entity,
    format::{File, Test},
    runner::Runner,
};
use crate::engine::{BlockOn, Host};

/// The kinds of deployments, by their names in `runOnRequirements`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `single`: one server without a replica set.
    Single,
    /// `replicaset`: three members.
    ReplicaSet,
    /// `sharded`: two mongoses.
    Sharded,
    /// `load-balanced`: mongoses behind a load balancer.
    #[serde(rename = "load-balanced")]
    LoadBalanced,
}

/// A deployment of one test, and the runtime that reaches it.
pub struct TestDeployment {
    uri: String,
    /// The release of its servers.
    version: (u32, u32),
    runtime: Runtime,
    block_on: BlockOn,
    /// Ends the deployment when it is dropped.
    _deployment: Box<dyn Any>,
}

impl TestDeployment {
    /// Creates the environment of the deployment at `uri`, of release `version`, which lives as
    /// long as `deployment`. `block_on` runs futures to their end.
    pub fn new(
        uri: impl Into<String>,
        version: (u32, u32),
        runtime: Runtime,
        block_on: impl Fn(BoxFuture<'_, ()>) + 'static,
        deployment: impl Any,
    ) -> Self {
        Self {
            uri: uri.into(),
            version,
            runtime,
            block_on: Box::new(block_on),
            _deployment: Box::new(deployment),
        }
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

impl fmt::Debug for TestDeployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDeployment")
            .field("uri", &self.uri)
            .finish_non_exhaustive()
    }
}

/// Runs every test of a file, each against its own deployment.
///
/// # Errors
///
/// The first difference, or anything in the file that is not supported: nothing is skipped.
pub fn logging(host: &Host, file: &Value) -> Result<(), String> {
    let file = File::read(file)?;
    let kind = file.kind();
    for test in &file.tests {
        let deployment = host.deployment(kind)?;
        let requirements = [&file.run_on_requirements, &test.run_on_requirements];
        for requirements in requirements.into_iter().flatten() {
            format::check(requirements, kind, deployment.version)?;
        }
        let runner = Runner::new(&deployment.uri, &deployment.runtime);
        let outcome = deployment.block_on(run_test(runner, &file.create_entities, test));
        outcome
            .unwrap_or_else(|| Err("the host has not run the test".to_owned()))
            .map_err(|error| format!("{}: {error}", test.description))?;
    }
    Ok(())
}

async fn run_test(mut runner: Runner<'_>, entities: &[Entity], test: &Test) -> Result<(), String> {
    runner.create(entities)?;
    let mut outcome = Ok(());
    for operation in &test.operations {
        outcome = runner.run(operation).await;
        if outcome.is_err() {
            break;
        }
    }
    // Also after a difference, so that nothing affects the next test.
    let logs = runner.end().await;
    outcome?;
    let mut expected = test.expect_log_messages.iter();
    expected.try_for_each(|expected| expected.compare(&logs))
}
