//! The format of the connection pool test files, and the conversion of pool events to this format.

use bson::Document;
use sdam_core::event::{EventKind, EventName};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, json};

use crate::{fields::read, requirement::Requirement};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct File {
    version: u32,
    #[serde(rename = "style")]
    _style: IgnoredAny,
    #[serde(rename = "description")]
    _description: IgnoredAny,
    pub(super) run_on: Option<Vec<Requirement>>,
    pub(super) fail_point: Option<Document>,
    #[serde(default)]
    pub(super) pool_options: Map<String, Value>,
    pub(super) operations: Vec<Operation>,
    pub(super) error: Option<ExpectedError>,
    pub(super) events: Vec<ExpectedEvent>,
    #[serde(default)]
    ignore: Vec<PoolEventName>,
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

/// The name of a pool event. The format writes `ConnectionPool` where this crate writes `Pool`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(super) struct PoolEventName(pub(super) EventName);

/// An event expected by a file.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(super) struct ExpectedEvent {
    name: EventName,
    fields: Map<String, Value>,
}

/// The values that are wildcards: they match any value.
const ANY: [&str; 2] = ["42", "\"42\""];

/// The fields that have different names in serialized events and in the format, with both names.
const RENAMED: [(&str, &str); 2] =
    [("driverConnectionId", "connectionId"), ("interruptInUse", "interruptInUseConnections")];

/// Returns whether events of this name are about a pool or one of its connections.
pub(super) fn is_of_pool(name: EventName) -> bool {
    ["Pool", "Connection"].iter().any(|prefix| name.as_str().starts_with(prefix))
}

impl TryFrom<String> for PoolEventName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_named = |event: &&EventName| {
            let name = event.as_str();
            is_of_pool(**event)
                && match name.strip_prefix("Pool") {
                    Some(rest) => text.strip_prefix("ConnectionPool") == Some(rest),
                    None => text == name,
                }
        };
        let event = EventName::ALL.iter().find(is_named);
        event.map(|event| Self(*event)).ok_or_else(|| format!("{text} is not an event of a pool"))
    }
}

impl TryFrom<Map<String, Value>> for ExpectedEvent {
    type Error = String;

    fn try_from(mut fields: Map<String, Value>) -> Result<Self, String> {
        let name = fields.remove("type");
        let name = name.as_ref().and_then(Value::as_str);
        let PoolEventName(name) = name.unwrap_or_default().to_owned().try_into()?;
        Ok(Self { name, fields })
    }
}

impl ExpectedEvent {
    /// Compares an event with the expected one.
    pub(super) fn compare(&self, event: &EventKind) -> Result<(), String> {
        if event.name() != self.name {
            let (actual, expected) = (event.name().as_str(), self.name.as_str());
            return Err(format!(" is {actual}, expected {expected}"));
        }
        let actual = describe(event);
        if matches(&Value::Object(self.fields.clone()), &actual) {
            return Ok(());
        }
        Err(format!(" is {actual}, expected {:?}", self.fields))
    }
}

/// Implements the "spec test match function" of the format: `actual` must contain everything in
/// `expected`.
fn matches(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (expected, actual) if ANY.contains(&&*expected.to_string()) => !actual.is_null(),
        (Value::Object(expected), Value::Object(actual)) => expected
            .iter()
            .all(|(key, value)| matches(value, actual.get(key).unwrap_or(&Value::Null))),
        (Value::Array(expected), Value::Array(actual)) => expected
            .iter()
            .enumerate()
            .all(|(index, value)| matches(value, actual.get(index).unwrap_or(&Value::Null))),
        _ => expected == actual,
    }
}

/// Returns the fields of an event, under the names that the format uses.
fn describe(event: &EventKind) -> Value {
    let mut fields = serde_json::to_value(event).unwrap_or_default();
    for (own, name) in RENAMED {
        fields[name] = fields[own].take();
    }
    if let EventKind::PoolCreated { options, .. } = event {
        let idle = options.max_idle_time.map(|time| time.as_millis());
        fields["options"]["maxIdleTimeMS"] = json!(idle);
    }
    fields
}

#[cfg(test)]
mod tests {
    use sdam_core::{
        address::ServerAddress,
        event::{ConnectionClosedReason, ConnectionId},
        ids::ServerId,
    };

    use super::*;

    fn closed() -> EventKind {
        EventKind::ConnectionClosed {
            server: ServerId::from_u64(1),
            address: ServerAddress::new("a", 1),
            connection: ConnectionId { driver: 2, server: None },
            reason: ConnectionClosedReason::Stale,
            error: None,
        }
    }

    #[test]
    fn the_fields_of_an_expected_event_are_a_part_of_the_actual_ones() {
        let check = |expected: Value, passes: bool| {
            let event = read::<ExpectedEvent>(&expected).unwrap();
            assert_eq!(event.compare(&closed()).is_ok(), passes, "{expected}");
        };
        let event = "ConnectionClosed";
        check(json!({ "type": event }), true);
        check(json!({ "type": "ConnectionReady" }), false);
        check(json!({ "type": event, "connectionId": 2, "reason": "stale" }), true);
        check(json!({ "type": event, "connectionId": 42, "address": 42 }), true);
        check(json!({ "type": event, "connectionId": 1 }), false);
        check(json!({ "type": event, "reason": "idle" }), false);
        check(json!({ "type": event, "duration": 42 }), false);
    }

    #[test]
    fn events_and_operations_that_no_pool_has_are_refused() {
        let event = read::<ExpectedEvent>(&json!({ "type": "PoolReady" }));
        assert_eq!(event.unwrap_err(), "PoolReady is not an event of a pool");
        let operation = |operation: Value| read::<Operation>(&operation).unwrap_err();
        let error = operation(json!({ "name": "resize" }));
        assert!(error.starts_with("unknown variant `resize`"), "{error}");
        let error = operation(json!({ "name": "checkOut", "connection": "a" }));
        assert!(error.contains("unknown field `connection`"), "{error}");
        let file = json!({
            "version": 2, "style": "unit", "description": "", "operations": [], "events": [],
        });
        assert_eq!(File::read(&file).unwrap_err(), "version is 2, expected 1");
    }
}
