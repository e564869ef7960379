//! The operations of tests, and their expected errors.

use bson::Document;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{client::Failure, entity::Entity, event::ExpectedEvent};
use crate::fields::read;

#[derive(Debug, Deserialize)]
#[serde(try_from = "OperationFields")]
pub(super) struct Operation {
    pub(super) name: String,
    /// The entity that performs the operation.
    pub(super) object: String,
    pub(super) call: Call,
    expect_error: Option<ExpectedError>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct OperationFields {
    name: String,
    object: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    expect_error: Option<ExpectedError>,
}

/// The name of an operation and its arguments.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub(super) enum Call {
    BulkWrite {
        requests: Vec<WriteModel>,
    },
    ClientBulkWrite {
        models: Vec<ClientWriteModel>,
    },
    Close {},
    CreateEntities {
        entities: Vec<Entity>,
    },
    FailPoint {
        client: String,
        fail_point: Document,
    },
    Find {
        filter: Document,
    },
    InsertOne {
        document: Document,
    },
    WaitForEvent {
        client: String,
        event: ExpectedEvent,
        count: usize,
    },
}

/// A write to the collection that performs it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) enum WriteModel {
    InsertOne { document: Document },
}

/// A write to the collection that it names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) enum ClientWriteModel {
    InsertOne {
        namespace: String,
        document: Document,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExpectedError {
    /// Whether the client failed without a server's reply.
    is_client_error: bool,
}

impl TryFrom<OperationFields> for Operation {
    type Error = String;

    fn try_from(fields: OperationFields) -> Result<Self, String> {
        let OperationFields {
            name,
            object,
            arguments,
            expect_error,
        } = fields;
        let call = read(&json!({ name.as_str(): arguments }))?;
        let is_runners = matches!(
            call,
            Call::CreateEntities { .. } | Call::FailPoint { .. } | Call::WaitForEvent { .. }
        );
        if is_runners != (object == "testRunner") {
            return Err(format!("{name} is not an operation of {object}"));
        }
        Ok(Self {
            name,
            object,
            call,
            expect_error,
        })
    }
}

impl Operation {
    /// Compares the outcome with the expected one.
    pub(super) fn compare(&self, outcome: Result<(), Failure>) -> Result<(), String> {
        match (&self.expect_error, outcome) {
            (None, Ok(())) => Ok(()),
            (Some(_), Ok(())) => Err("should fail".to_owned()),
            (Some(error), Err(Failure::Client(_))) if error.is_client_error => Ok(()),
            (Some(error), Err(Failure::Server(_))) if !error.is_client_error => Ok(()),
            (_, Err(Failure::Client(error) | Failure::Server(error))) => {
                Err(format!("failed with an unexpected error: {error}"))
            }
        }
    }
}
