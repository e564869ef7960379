//! The unified test format: files and tests.
//!
//! Only features that the files use are defined. Any other field, operation, entity or event causes
//! an error that names it.

use bson::Document;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};
use serde_json::Value;

use super::{
    data::CollectionData,
    entity::Entity,
    event::ExpectedEvents,
    log::ExpectedLog,
    operation::{Call, Operation, RunnerCall},
};
use crate::{
    fields::read,
    requirement::{Environment, Kind, Requirement, Version},
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct File {
    #[serde(rename = "description")]
    _description: IgnoredAny,
    schema_version: Version,
    run_on_requirements: Option<Vec<Requirement>>,
    #[serde(default)]
    pub(super) create_entities: Vec<Entity>,
    #[serde(default)]
    pub(super) initial_data: Vec<CollectionData>,
    #[serde(rename = "_yamlAnchors")]
    _yaml_anchors: Option<IgnoredAny>,
    #[serde(deserialize_with = "tests")]
    pub(super) tests: Vec<Test>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Test {
    pub(super) description: String,
    run_on_requirements: Option<Vec<Requirement>>,
    pub(super) operations: Vec<Operation>,
    #[serde(default)]
    pub(super) expect_events: Vec<ExpectedEvents>,
    #[serde(default)]
    pub(super) expect_log_messages: Vec<ExpectedLog>,
    #[serde(default)]
    pub(super) outcome: Vec<CollectionData>,
}

impl File {
    /// Reads a file. Errors name the test and the field.
    pub(super) fn read(file: &Value) -> Result<Self, String> {
        let file: Self = read(file)?;
        match file.schema_version.0 {
            [1, ..] => Ok(file),
            other => Err(format!("schemaVersion is {other:?}, expected 1")),
        }
    }

    /// Returns whether a client connects to a load balancer, regardless of the deployment.
    fn balances_load(&self) -> bool {
        self.create_entities.iter().any(|entity| match entity {
            Entity::Client(client) => {
                client.uri_options.get("loadBalanced") == Some(&Value::Bool(true))
            }
            _ => false,
        })
    }

    /// Returns whether a client of `test` reaches several mongoses.
    pub(super) fn uses_several_mongoses(&self, test: &Test) -> bool {
        let calls = test.operations.iter().map(|operation| &operation.call);
        let created = calls.filter_map(|call| match call {
            Call::Runner(RunnerCall::CreateEntities { entities }) => Some(entities),
            _ => None,
        });
        let mut entities = self.create_entities.iter().chain(created.flatten());
        entities.any(|entity| matches!(entity, Entity::Client(it) if it.use_multiple_mongoses))
    }

    /// Returns whether `test` may run in `environment`.
    pub(super) fn admits(&self, test: &Test, environment: &Environment) -> bool {
        let requirements = [&self.run_on_requirements, &test.run_on_requirements];
        // Clients authenticate only in tests that require authentication.
        let asks = requirements.into_iter().flatten().flatten();
        let asks = asks.filter(|requirement| requirement.asks_for_authentication());
        let mut requirements = requirements.into_iter();
        (asks.count() > 0) == environment.authentication
            && requirements.all(|requirements| environment.meets(requirements.as_deref()))
            && test.fail_points().all(|own| environment.applies(own))
            && (environment.knows_hello() || !self.balances_load())
            // Behind a load balancer, a cursor whose `getMore` took too long has lost its
            // connection.
            && (environment.kind != Kind::LoadBalanced
                || test.description != "timeoutMS is refreshed for close")
    }
}

impl Test {
    fn fail_points(&self) -> impl Iterator<Item = &Document> {
        let calls = self.operations.iter().map(|operation| &operation.call);
        calls.filter_map(|call| match call {
            Call::Runner(RunnerCall::FailPoint { fail_point, .. }) => Some(fail_point),
            _ => None,
        })
    }
}

/// Reads the tests one by one, so that an error names the test.
fn tests<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Test>, D::Error> {
    let tests = Vec::<Value>::deserialize(deserializer)?;
    let tests = tests.iter().map(|test| {
        read(test).map_err(|error| D::Error::custom(format!("{}: {error}", test["description"])))
    });
    tests.collect()
}
