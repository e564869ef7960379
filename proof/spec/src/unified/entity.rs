//! Entities that files and tests create.

use sdam_core::options::ServerApi;
use sdam_events::log::{LogConfig, Severity};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};
use serde_json::{Map, Value};

use super::{event::ObservedEvent, stand_in::Options};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Entity {
    /// A GridFS bucket. None of the tests here use one.
    Bucket(IgnoredAny),
    Client(ClientEntity),
    Collection(CollectionEntity),
    Database(DatabaseEntity),
    Session(SessionEntity),
    Thread(ThreadEntity),
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionEntity {
    pub(super) id: String,
    pub(super) client: String,
}

/// A thread that runs operations sequentially.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ThreadEntity {
    pub(super) id: String,
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
