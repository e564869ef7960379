//! Errors of operations, in the format of the specification's tests.

use std::borrow::Cow;

use bson::Document;
use sdam_core::{
    address::ServerAddress,
    app_error::{AppError, Cause},
    error::Stage,
    ids::Generation,
};
use serde::Deserialize;

/// The error of an operation on a pooled connection.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Format")]
pub(super) struct ApplicationError {
    pub(super) address: ServerAddress,
    /// The connection's generation; `None` for the pool's current one.
    generation: Option<Generation>,
    max_wire_version: i32,
    stage: Stage,
    cause: Cause<'static>,
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
        let message = Cow::Borrowed("replayed");
        let cause = match (error.kind, error.response) {
            (Kind::Network, None) => Cause::Network(message),
            (Kind::Timeout, None) => Cause::Timeout(message),
            (Kind::Command, Some(response)) => {
                let reply = response.to_vec().map_err(|error| error.to_string())?;
                Cause::Reply(reply.into())
            }
            (Kind::Command, None) => return Err("an error of type command has no response".into()),
            (_, Some(_)) => return Err("only an error of type command has a response".into()),
        };
        Ok(Self {
            address: error.address,
            generation: error.generation,
            max_wire_version: error.max_wire_version,
            stage: match error.when {
                When::BeforeHandshakeCompletes => Stage::Hello,
                When::AfterHandshakeCompletes => Stage::Operation,
            },
            cause,
        })
    }
}

impl ApplicationError {
    /// Returns the error as reported by a pool with the generation `current`.
    pub(super) fn report(&self, current: Generation) -> AppError<'_> {
        let generation = self.generation.unwrap_or(current);
        AppError::new(generation, self.stage, self.cause.clone())
            .with_max_wire_version(self.max_wire_version)
    }
}
