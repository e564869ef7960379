//! The unified test format, to the extent that tests of log messages need it.
//!
//! A file runs against a deployment with the complete stack: a [`TestDeployment`] consists of a
//! deployment, a runtime that reaches it, and an executor. Clients are topologies. Operations
//! select a server under the name of their command, and send it that command on a separate
//! connection, as there are no pools.

mod client;
mod log;
mod matching;
mod requirement;
mod script;
#[cfg(test)]
mod tests;

use std::{any::Any, fmt};

use futures::future::BoxFuture;
use sdam_transport::Runtime;
use serde_json::Value;

use crate::{
    engine::{BlockOn, Host},
    json::{self, Object},
};

use self::script::Script;

/// The kinds of deployments, by their names in `runOnRequirements`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `single`: one server without a replica set.
    Single,
    /// `replicaset`: three members.
    ReplicaSet,
    /// `sharded`: two mongoses.
    Sharded,
    /// `load-balanced`: mongoses behind a load balancer.
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
/// The first difference, or anything in the file that is not understood: nothing is skipped.
pub fn logging(host: &Host, file: &Value) -> Result<(), String> {
    let keys = [
        "description",
        "schemaVersion",
        "runOnRequirements",
        "createEntities",
        "_yamlAnchors",
        "tests",
    ];
    let file = Object::new(file, "file", &keys)?;
    let requirements = file.optional("runOnRequirements");
    let kind = requirement::kind(requirements)?;
    let entities = file.optional("createEntities");
    for test in file.read("tests", |tests| json::list(tests, Ok))? {
        let keys = [
            "description",
            "runOnRequirements",
            "operations",
            "expectLogMessages",
        ];
        let test = Object::new(test, "test", &keys)?;
        let deployment = host.deployment(kind)?;
        let demands = [requirements, test.optional("runOnRequirements")];
        for demand in demands.into_iter().flatten() {
            requirement::check(demand, kind, deployment.version)?;
        }
        let outcome =
            deployment.block_on(play(&deployment.uri, &deployment.runtime, entities, test));
        outcome
            .unwrap_or_else(|| Err("the host has not run the test".to_owned()))
            .map_err(|error| match test.read("description", json::text) {
                Ok(description) => format!("{description}: {error}"),
                Err(missing) => missing,
            })?;
    }
    Ok(())
}

async fn play(
    uri: &str,
    runtime: &Runtime,
    entities: Option<&Value>,
    test: Object<'_>,
) -> Result<(), String> {
    let mut script = Script::new(uri, runtime);
    if let Some(entities) = entities {
        script.create(entities)?;
    }
    let mut outcome = Ok(());
    for operation in test.read("operations", |operations| json::list(operations, Ok))? {
        outcome = script.run(operation).await;
        if outcome.is_err() {
            break;
        }
    }
    // Also after a difference, so that nothing affects the next test.
    let logs = script.end().await;
    outcome?;
    test.read("expectLogMessages", |expected| log::check(expected, &logs))
}
