//! Test operations, and their expected results and errors.

use std::{fmt, sync::Arc};

use bson::Document;
use sdam::{Error, ErrorKind};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{event::ExpectedEvent, format::Entity, helper::Method, matching::Expected};
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

/// An error from an operation.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    /// The result of the commands that ran before the failed one.
    pub(super) result: Value,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, result: Value::Null }
    }
}

/// An expected error. The actual error must match all fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ExpectedError {
    is_error: Option<bool>,
    /// True if the error must come from the client instead of a server's reply.
    is_client_error: Option<bool>,
    error_contains: Option<String>,
    error_code: Option<i32>,
    error_code_name: Option<String>,
    #[serde(default)]
    error_labels_contain: Vec<String>,
    #[serde(default)]
    error_labels_omit: Vec<String>,
    is_timeout_error: Option<bool>,
    #[serde(default)]
    write_concern_errors: Vec<WriteConcernError>,
    expect_result: Option<Expected>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteConcernError {
    code: i32,
    message: String,
}

impl ExpectedError {
    /// Compares an error with the expected one.
    pub(super) fn compare(&self, failure: &Failure) -> Result<(), String> {
        let error = &failure.error;
        let message = format!("{error:#}").to_lowercase();
        let has_text = |text: &String| message.contains(&text.to_lowercase());
        let has_label = |label: &String| error.labels().any(|own| own == label);
        let concern = error.write_concern_error().filter(|_| error.kind() == ErrorKind::Write);
        let has_concern = |expected: &WriteConcernError| {
            let concern = concern.as_ref().map(|own| (own.code(), own.message()));
            concern == Some((Some(expected.code), &*expected.message))
        };
        let checks = [
            ("isError", self.is_error != Some(false)),
            ("isClientError", self.is_client_error.is_none_or(|it| it == error.reply().is_none())),
            ("errorContains", self.error_contains.as_ref().is_none_or(has_text)),
            ("errorCode", self.error_code.is_none() || self.error_code == error.code()),
            (
                "errorCodeName",
                self.error_code_name.is_none()
                    || self.error_code_name.as_deref() == error.code_name(),
            ),
            ("errorLabelsContain", self.error_labels_contain.iter().all(has_label)),
            ("errorLabelsOmit", !self.error_labels_omit.iter().any(has_label)),
            ("isTimeoutError", self.is_timeout_error.is_none_or(|it| it == error.is_timeout())),
            ("writeConcernErrors", self.write_concern_errors.iter().all(has_concern)),
        ];
        match checks.iter().find(|(_, holds)| !holds) {
            None => match &self.expect_result {
                Some(expected) => expected.compare(&failure.result),
                None => Ok(()),
            },
            Some((field, _)) => Err(format!("{field} does not hold of the error")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<_> = self.error.labels().collect();
        write!(f, "{:#} {labels:?}", self.error)
    }
}
