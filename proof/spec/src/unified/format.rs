//! The unified test format: files and tests.
//!
//! Only features that the files use are defined. Any other field, operation, entity or event causes
//! an error that names it.

use bson::{Document, doc};
use sdam_core::options::ServerApi;
use sdam_events::log::{LogConfig, Severity};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};
use serde_json::{Map, Value};

use super::{
    event::{ExpectedEvents, ObservedEvent},
    log::ExpectedLog,
    operation::{Call, Operation, RunnerCall},
    stand_in::Options,
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
        // Use authentication only for tests that require it.
        let asks = requirements.into_iter().flatten().flatten();
        let asks = asks.filter(|requirement| requirement.asks_for_authentication());
        let mut requirements = requirements.into_iter();
        (asks.count() > 0) == environment.authentication
            && requirements.all(|requirements| environment.meets(requirements.as_deref()))
            && test.fail_points().all(|own| environment.applies(own))
            && (environment.knows_hello() || !self.balances_load())
            // Leave this test out behind a load balancer: there, a cursor whose `getMore` timed out
            // has lost its connection.
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) enum Entity {
    /// A GridFS bucket. None of the tests here use one.
    Bucket(IgnoredAny),
    Client(ClientEntity),
    Collection(CollectionEntity),
    Database(DatabaseEntity),
    Session {
        id: String,
        client: String,
    },
    /// A thread that runs operations sequentially.
    Thread {
        id: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ClientEntity {
    pub(super) id: String,
    #[serde(default)]
    pub(super) uri_options: Map<String, Value>,
    #[serde(default)]
    pub(super) use_multiple_mongoses: bool,
    #[serde(default)]
    pub(super) observe_events: Vec<ObservedEvent>,
    /// Commands whose events are not recorded.
    #[serde(default)]
    pub(super) ignore_command_monitoring_events: Vec<String>,
    #[serde(default)]
    pub(super) observe_log_messages: LogLevels,
    pub(super) server_api: Option<ApiEntity>,
    /// This setting has no effect: the events of sensitive commands are always published, but
    /// without their documents.
    #[serde(default, rename = "observeSensitiveCommands")]
    _observe_sensitive_commands: bool,
    /// The maximum time until the pools have their minimum number of connections.
    #[serde(default, rename = "awaitMinPoolSizeMS")]
    pub(super) await_min_pool_size_ms: Option<u64>,
}

/// The API version that the client declares.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ApiEntity {
    version: String,
    strict: Option<bool>,
    deprecation_errors: Option<bool>,
}

impl ApiEntity {
    pub(super) fn server_api(&self) -> ServerApi {
        let mut api = ServerApi::v1();
        api.version = self.version.as_str().into();
        api.strict = self.strict;
        api.deprecation_errors = self.deprecation_errors;
        api
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct DatabaseEntity {
    pub(super) id: String,
    pub(super) client: String,
    pub(super) database_name: String,
    #[serde(default)]
    pub(super) database_options: Options,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CollectionEntity {
    pub(super) id: String,
    pub(super) database: String,
    pub(super) collection_name: String,
    #[serde(default)]
    pub(super) collection_options: Options,
}

/// The minimum severity of observed log messages for each component.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LogLevels {
    #[serde(deserialize_with = "severity")]
    command: Severity,
    #[serde(deserialize_with = "severity")]
    connection: Severity,
    #[serde(deserialize_with = "severity")]
    server_selection: Severity,
    #[serde(deserialize_with = "severity")]
    topology: Severity,
}

/// The maximum length of logged documents. It is longer than any document, because truncated
/// documents could not be compared (unified test format: "observeLogMessages").
const MAX_DOCUMENT_LENGTH: usize = 10_000;

impl LogLevels {
    /// Returns the log configuration that enables exactly the observed messages.
    pub(super) fn config(&self) -> LogConfig {
        let mut config = LogConfig::default();
        config.command = self.command;
        config.connection = self.connection;
        config.server_selection = self.server_selection;
        config.topology = self.topology;
        config.max_document_length = MAX_DOCUMENT_LENGTH;
        config
    }
}

/// Reads the level of a log message.
pub(super) fn severity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Severity, D::Error> {
    let name = String::deserialize(deserializer)?;
    let unknown = |()| D::Error::custom(format!("{name} is not a level"));
    name.parse().map_err(unknown)
}

/// The complete contents of a collection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CollectionData {
    pub(super) collection_name: String,
    pub(super) database_name: String,
    pub(super) documents: Vec<Document>,
}

impl CollectionData {
    /// Returns the commands that replace the collection's contents with `documents`.
    pub(super) fn setup(&self) -> Vec<Document> {
        let concern = doc! { "w": "majority" };
        let name = &self.collection_name;
        let mut commands = vec![doc! { "drop": name, "writeConcern": concern.clone() }];
        commands.push(if self.documents.is_empty() {
            doc! { "create": name, "writeConcern": concern }
        } else {
            doc! { "insert": name, "documents": &self.documents, "writeConcern": concern }
        });
        commands
    }

    /// Returns the command that reads the collection's contents.
    pub(super) fn query(&self) -> Document {
        doc! { "find": &self.collection_name, "sort": { "_id": 1 } }
    }

    /// Compares the reply to [`query`](Self::query) with the expected contents.
    pub(super) fn compare(&self, reply: &Document) -> Result<(), String> {
        let cursor = reply.get_document("cursor");
        let batch = cursor.and_then(|cursor| cursor.get_array("firstBatch"));
        let batch = batch.map_err(|error| error.to_string())?;
        let documents = batch.iter().filter_map(|document| document.as_document());
        if documents.eq(&self.documents) {
            return Ok(());
        }
        let name = &self.collection_name;
        Err(format!("{name} has {batch:?}, expected {:?}", self.documents))
    }
}
