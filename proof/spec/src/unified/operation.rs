//! Test operations and their expected results.

use std::sync::Arc;

use bson::Document;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    command::Method,
    entity::Entity,
    event::ExpectedEvent,
    matching::Expected,
    outcome::{ExpectedError, Failure},
};
use crate::fields::read;

#[derive(Debug, Deserialize)]
#[serde(try_from = "OperationFields")]
pub(super) struct Operation {
    pub(super) name: String,
    /// The entity that performs the operation.
    pub(super) object: String,
    pub(super) call: Call,
    /// The name of the entity that the operation creates.
    pub(super) save_result_as_entity: Option<String>,
    expectation: Expectation,
}

/// The expected result of an operation.
#[derive(Debug)]
enum Expectation {
    Anything,
    Error(ExpectedError),
    Success(Option<Expected>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct OperationFields {
    name: String,
    object: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    expect_error: Option<ExpectedError>,
    expect_result: Option<Expected>,
    #[serde(default)]
    ignore_result_and_error: bool,
    save_result_as_entity: Option<String>,
}

/// The name of an operation and its arguments.
#[derive(Debug)]
pub(super) enum Call {
    /// An operation that runs commands.
    Method(Method),
    /// An operation on an entity, other than a helper method.
    Entity(EntityCall),
    /// An operation that the test runner performs.
    Runner(RunnerCall),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum EntityCall {
    AppendMetadata {
        driver_info_options: DriverInfoOptions,
    },
    Close {
        #[serde(rename = "timeoutMS")]
        timeout_ms: Option<u64>,
    },
    CreateCommandCursor(Map<String, Value>),
    CreateFindCursor(Map<String, Value>),
    IterateUntilDocumentOrError {},
    StartTransaction {},
}

/// The library to add to a client's metadata.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DriverInfoOptions {
    pub(super) name: String,
    pub(super) version: Option<String>,
    pub(super) platform: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum RunnerCall {
    AssertDifferentLsidOnLastTwoCommands {
        client: String,
    },
    AssertEventCount {
        client: String,
        event: ExpectedEvent,
        count: usize,
    },
    AssertNumberConnectionsCheckedOut {
        client: String,
        connections: usize,
    },
    AssertSameLsidOnLastTwoCommands {
        client: String,
    },
    AssertTopologyType {
        topology_description: String,
        topology_type: String,
    },
    CreateEntities {
        entities: Vec<Entity>,
    },
    FailPoint {
        client: String,
        fail_point: Document,
    },
    RecordTopologyDescription {
        client: String,
        id: String,
    },
    RunOnThread {
        thread: String,
        operation: Arc<Operation>,
    },
    Wait {
        ms: u64,
    },
    WaitForEvent {
        client: String,
        event: ExpectedEvent,
        count: usize,
    },
    WaitForPrimaryChange {
        client: String,
        prior_topology_description: String,
        #[serde(rename = "timeoutMS")]
        timeout_ms: Option<u64>,
    },
    WaitForThread {
        thread: String,
    },
}

impl TryFrom<OperationFields> for Operation {
    type Error = String;

    fn try_from(fields: OperationFields) -> Result<Self, String> {
        let OperationFields { name, object, arguments, .. } = fields;
        let call = match &*name {
            _ if object == "testRunner" => Call::Runner(read(&json!({ &*name: arguments }))?),
            "appendMetadata"
            | "close"
            | "createCommandCursor"
            | "createFindCursor"
            | "iterateUntilDocumentOrError"
            | "startTransaction" => Call::Entity(read(&json!({ &*name: arguments }))?),
            _ => {
                let method = Method::read(&name, arguments);
                Call::Method(method.map_err(|error| format!("{name}: {error}"))?)
            }
        };
        let expectation = match (fields.expect_error, fields.expect_result) {
            (None, None) if fields.ignore_result_and_error => Expectation::Anything,
            _ if fields.ignore_result_and_error => {
                return Err("ignores what it expects".to_owned());
            }
            (Some(error), None) => Expectation::Error(error),
            (None, result) => Expectation::Success(result),
            (Some(_), Some(_)) => return Err("expects an error and a result".to_owned()),
        };
        Ok(Self {
            name,
            object,
            call,
            save_result_as_entity: fields.save_result_as_entity,
            expectation,
        })
    }
}

impl Operation {
    /// Compares the outcome with the expected one.
    pub(super) fn compare(&self, outcome: Result<Value, Failure>) -> Result<(), String> {
        match (&self.expectation, outcome) {
            (Expectation::Anything, _) | (Expectation::Success(None), Ok(_)) => Ok(()),
            (Expectation::Success(Some(expected)), Ok(result)) => {
                expected.compare(&result).map_err(|error| format!("the result{error}"))
            }
            (Expectation::Success(_), Err(failure)) => {
                Err(format!("failed with an unexpected error: {failure}"))
            }
            (Expectation::Error(_), Ok(result)) => Err(format!("should fail, but gave {result}")),
            (Expectation::Error(expected), Err(failure)) => {
                expected.compare(&failure).map_err(|error| format!("{error}: {failure}"))
            }
        }
    }
}
