//! The format of the connection pool test files.

use bson::Document;
use sdam_core::event::EventName;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, json};

use super::event::{ExpectedEvent, PoolEventName};
use crate::{fields::read, requirement::Requirement};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct File {
    version: u32,
    #[serde(rename = "style")]
    _style: Style,
    #[serde(rename = "description")]
    _description: IgnoredAny,
    pub(super) run_on: Option<Vec<Requirement>>,
    pub(super) fail_point: Option<Document>,
    #[serde(default)]
    pub(super) pool_options: PoolOptions,
    pub(super) operations: Vec<Operation>,
    pub(super) error: Option<ExpectedError>,
    pub(super) events: Vec<ExpectedEvent>,
    #[serde(default)]
    ignore: Vec<PoolEventName>,
}

/// The style of a file: unit test or integration test. Here, both run against a deployment.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Style {
    Integration,
    Unit,
}

/// The connection string options that a file sets.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "Map<String, Value>")]
pub(super) struct PoolOptions(pub(super) Vec<(String, Value)>);

impl From<Map<String, Value>> for PoolOptions {
    fn from(options: Map<String, Value>) -> Self {
        // `backgroundThreadIntervalMS` is ignored, because the pool has no thread that runs at
        // intervals.
        let options = options.into_iter();
        Self(options.filter(|(name, _)| name != "backgroundThreadIntervalMS").collect())
    }
}

/// An operation on the main thread or another thread.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(super) struct Operation {
    pub(super) thread: Option<String>,
    pub(super) call: Call,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Call {
    CheckIn {
        connection: String,
    },
    CheckOut {
        label: Option<String>,
    },
    Clear {
        #[serde(default)]
        interrupt_in_use_connections: bool,
    },
    Close {},
    Ready {},
    Start {
        target: String,
    },
    Wait {
        ms: u64,
    },
    WaitForEvent {
        event: PoolEventName,
        count: usize,
        timeout: Option<u64>,
    },
    WaitForThread {
        target: String,
    },
}

/// The error that is expected on the main thread.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedError {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) message: String,
}

impl TryFrom<Map<String, Value>> for Operation {
    type Error = String;

    fn try_from(mut fields: Map<String, Value>) -> Result<Self, String> {
        let name = fields.remove("name").ok_or("an operation has no name")?;
        let name = name.as_str().ok_or("an operation's name is no text")?;
        let thread = fields.remove("thread").map(|thread| read(&thread));
        Ok(Self { thread: thread.transpose()?, call: read(&json!({ name: fields }))? })
    }
}

impl File {
    /// Reads a file. Errors name the field that is wrong.
    pub(super) fn read(file: &Value) -> Result<Self, String> {
        let file: Self = read(file)?;
        match file.version {
            1 => Ok(file),
            other => Err(format!("version is {other}, expected 1")),
        }
    }

    /// Returns whether events named `name` are excluded from the comparison.
    pub(super) fn ignores(&self, name: EventName) -> bool {
        self.ignore.contains(&PoolEventName(name))
    }
}
