//! Errors of operations, in the format of the specification's tests.

use bson::Document;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    ids::Generation,
    reply,
    report::ErrorReport,
};
use serde::Deserialize;

/// An error from an operation on a pooled connection.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Format")]
pub(super) struct ApplicationError {
    pub(super) address: ServerAddress,
    /// The connection's generation; `None` for the pool's current one.
    generation: Option<Generation>,
    max_wire_version: i32,
    /// The error; `None` if the reply contains no error that concerns the server.
    error: Option<Error>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Format {
    address: ServerAddress,
    generation: Option<Generation>,
    max_wire_version: i32,
    when: When,
    #[serde(rename = "type")]
    kind: Kind,
    response: Option<Document>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum When {
    BeforeHandshakeCompletes,
    AfterHandshakeCompletes,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Command,
    Network,
    Timeout,
}

impl TryFrom<Format> for ApplicationError {
    type Error = String;

    fn try_from(error: Format) -> Result<Self, String> {
        let stage = match error.when {
            When::BeforeHandshakeCompletes => Stage::Hello,
            When::AfterHandshakeCompletes => Stage::Operation,
        };
        let reported = match (error.kind, error.response) {
            (Kind::Network, None) => Some(Error::network(stage, "replayed")),
            (Kind::Timeout, None) => Some(Error::timeout(stage, "replayed")),
            (Kind::Command, Some(response)) => {
                let reply = response.to_vec().map_err(|error| error.to_string())?;
                reply::error(&reply, stage)
            }
            (Kind::Command, None) => return Err("an error of type command has no response".into()),
            (_, Some(_)) => return Err("only an error of type command has a response".into()),
        };
        Ok(Self {
            address: error.address,
            generation: error.generation,
            max_wire_version: error.max_wire_version,
            error: reported,
        })
    }
}

impl ApplicationError {
    /// Returns the error as reported by a pool with the generation `current`, or `None` if the
    /// reply contains no error that concerns the server.
    pub(super) fn report(&self, current: Generation) -> Option<ErrorReport> {
        let generation = self.generation.unwrap_or(current);
        let report = ErrorReport::new(generation, self.error.clone()?);
        Some(report.with_max_wire_version(self.max_wire_version))
    }
}
