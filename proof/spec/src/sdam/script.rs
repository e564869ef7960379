//! The format of the discovery and monitoring test files.

use bson::Document;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    ids::Generation,
    reply,
    report::ErrorReport,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use super::{events::ExpectedEvent, outcome::Fields};
use crate::{fields::read, running::deployment::encode};

/// A file. Unknown keys are rejected, so everything in the file is checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Script {
    #[serde(rename = "description")]
    _description: Option<IgnoredAny>,
    /// The connection string of the topology.
    pub(super) uri: String,
    pub(super) phases: Vec<Phase>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Phase {
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) responses: Vec<Response>,
    #[serde(default)]
    pub(super) application_errors: Vec<ApplicationError>,
    #[serde(rename = "outcome")]
    pub(super) expectation: Expectation,
}

/// The expected result of a phase.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) enum Expectation {
    /// A description of the topology.
    Outcome(Fields),
    /// Exactly the listed events.
    Events(Vec<ExpectedEvent>),
}

impl TryFrom<Value> for Expectation {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Events {
            events: Vec<ExpectedEvent>,
        }
        if value.get("events").is_some() {
            let Events { events } = read(&value)?;
            return Ok(Self::Events(events));
        }
        read(&value).map(Self::Outcome)
    }
}

/// A server's reply to a check.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "(ServerAddress, Document)")]
pub(super) struct Response {
    /// The server that replies.
    pub(super) address: ServerAddress,
    /// The BSON document of the reply; `None` for a network error.
    pub(super) reply: Option<Vec<u8>>,
}

impl TryFrom<(ServerAddress, Document)> for Response {
    type Error = String;

    fn try_from((address, reply): (ServerAddress, Document)) -> Result<Self, String> {
        let reply = (!reply.is_empty()).then(|| encode(&reply)).transpose()?;
        Ok(Self { address, reply })
    }
}

/// An application error on a pooled connection.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "ApplicationErrorFormat")]
pub(super) struct ApplicationError {
    /// The server at the other end of the connection.
    pub(super) address: ServerAddress,
    /// The connection's generation, or `None` for the current generation of the pool.
    generation: Option<Generation>,
    max_wire_version: i32,
    /// The error, or `None` if the reply contains no error that concerns the server.
    error: Option<Error>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ApplicationErrorFormat {
    address: ServerAddress,
    generation: Option<Generation>,
    max_wire_version: i32,
    when: When,
    #[serde(rename = "type")]
    kind: Kind,
    response: Option<Document>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum When {
    BeforeHandshakeCompletes,
    AfterHandshakeCompletes,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Command,
    Network,
    Timeout,
}

impl TryFrom<ApplicationErrorFormat> for ApplicationError {
    type Error = String;

    fn try_from(error: ApplicationErrorFormat) -> Result<Self, String> {
        let stage = match error.when {
            When::BeforeHandshakeCompletes => Stage::Hello,
            When::AfterHandshakeCompletes => Stage::Operation,
        };
        let reported = match (error.kind, error.response) {
            (Kind::Network, None) => Some(Error::network(stage, MESSAGE)),
            (Kind::Timeout, None) => Some(Error::timeout(stage, MESSAGE)),
            (Kind::Command, Some(response)) => reply::error(&encode(&response)?, stage),
            (Kind::Command, None) => return Err("an error of type command has no response".into()),
            (kind, Some(_)) => return Err(format!("an error of type {kind:?} has a response")),
        };
        Ok(Self {
            address: error.address,
            generation: error.generation,
            max_wire_version: error.max_wire_version,
            error: reported,
        })
    }
}

/// The error message used when the file does not specify one.
const MESSAGE: &str = "simulated error";

impl Script {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If the file does not have this format, or has no phases.
    pub(super) fn parse(file: &Value) -> Result<Self, String> {
        let script: Self = read(file)?;
        if script.phases.is_empty() {
            return Err("the file has no phases".into());
        }
        Ok(script)
    }
}

/// Returns the report of a pool whose connection broke before the reply to hello.
pub(super) fn broken_before_hello() -> ErrorReport {
    ErrorReport::new(Generation::FIRST, Error::network(Stage::Hello, MESSAGE))
}

impl ApplicationError {
    /// Returns the report of a pool whose generation is `current`, or `None` if the reply contains
    /// no error that concerns the server.
    pub(super) fn report(&self, current: Generation) -> Option<ErrorReport> {
        let generation = self.generation.unwrap_or(current);
        let report = ErrorReport::new(generation, self.error.clone()?);
        Some(report.with_max_wire_version(self.max_wire_version))
    }
}
