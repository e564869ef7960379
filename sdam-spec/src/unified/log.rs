//! Log messages in the terms of the format.

use std::collections::BTreeMap;

use sdam_core::event::Event;
use sdam_events::log::{LogConfig, LogMessage, Severity, Value as Field};
use serde_json::{Map, Value, json};

use super::matching;
use crate::json::{self as read, Object};

/// Larger than any document, because truncated ones cannot be compared (unified test format:
/// "observeLogMessages").
const MAX_DOCUMENT_LENGTH: usize = 10_000;

/// The messages of each client, by its id.
pub(super) type Logs = BTreeMap<String, Vec<Value>>;

/// Reads which messages of a client are observed.
pub(super) fn config(observed: &Value) -> Result<LogConfig, String> {
    let components = ["topology", "serverSelection", "connection", "command"];
    let observed = Object::new(observed, "observeLogMessages", &components)?;
    let severity = |component| {
        let severity = observed.read_optional(component, |value| {
            let name = read::text(value)?;
            let severity = name.parse::<Severity>();
            severity.map_err(|()| format!("{name} is not a severity"))
        });
        severity.map(Option::unwrap_or_default)
    };
    let mut config = LogConfig::default();
    config.topology = severity("topology")?;
    config.server_selection = severity("serverSelection")?;
    config.connection = severity("connection")?;
    config.command = severity("command")?;
    Ok(config)
}

/// Returns the messages that `config` lets through.
pub(super) fn messages(config: &LogConfig, events: &[Event]) -> Vec<Value> {
    let messages = events
        .iter()
        .filter_map(|event| LogMessage::of(event, MAX_DOCUMENT_LENGTH));
    messages
        .filter(|message| config.enables(message.component(), message.severity()))
        .map(|message| show(&message))
        .collect()
}

fn show(message: &LogMessage<'_>) -> Value {
    let mut data = Map::new();
    data.insert("message".to_owned(), message.text().into());
    message.fields().for_each(|name, value| {
        let value = match value {
            Field::Integer(number) => number.into(),
            Field::Number(number) => number.into(),
            Field::Bool(truth) => truth.into(),
            text => text.to_string().into(),
        };
        data.insert(name.to_owned(), value);
    });
    let level = format!("{:?}", message.severity()).to_lowercase();
    json!({ "level": level, "component": message.component().as_str(), "data": data })
}

/// Compares the messages of each client with those that a test expects.
pub(super) fn check(expected: &Value, logs: &Logs) -> Result<(), String> {
    read::list(expected, |expected| {
        let keys = [
            "client",
            "messages",
            "ignoreMessages",
            "ignoreExtraMessages",
        ];
        let expected = Object::new(expected, "expected", &keys)?;
        let client = expected.read("client", read::text)?;
        let log = logs
            .get(client)
            .ok_or_else(|| format!("there is no client {client}"))?;
        compare(&expected, log).map_err(|error| format!("{client}: {error}, in {log:#?}"))
    })
    .map(drop)
}

fn compare(expected: &Object<'_>, log: &[Value]) -> Result<(), String> {
    let messages = |key| expected.read_optional(key, |value| read::list(value, Message::parse));
    let ignored = messages("ignoreMessages")?.unwrap_or_default();
    let messages = messages("messages")?.ok_or("nothing is expected")?;
    let is_ignored = |actual: &&Value| ignored.iter().any(|it| it.check(actual).is_ok());
    let mut log = log.iter().filter(|actual| !is_ignored(actual));
    for (number, message) in (1..).zip(&messages) {
        let actual = log
            .next()
            .ok_or_else(|| format!("message {number} is missing"))?;
        let result = message.check(actual);
        result.map_err(|error| format!("message {number}{error}"))?;
    }
    let extra = expected.read_optional("ignoreExtraMessages", read::boolean)?;
    match log.next() {
        Some(actual) if extra != Some(true) => Err(format!("unexpected message: {actual}")),
        _ => Ok(()),
    }
}

/// An expected message.
struct Message<'v> {
    level: &'v str,
    component: &'v str,
    data: &'v Value,
}

impl<'v> Message<'v> {
    fn parse(value: &'v Value) -> Result<Self, String> {
        let message = Object::new(value, "message", &["level", "component", "data"])?;
        Ok(Self {
            level: message.read("level", read::text)?,
            component: message.read("component", read::text)?,
            data: message.required("data")?,
        })
    }

    fn check(&self, actual: &Value) -> Result<(), String> {
        let (level, component) = (&actual["level"], &actual["component"]);
        if level != self.level || component != self.component {
            return Err(format!(
                " is from {component} and of level {level}, expected {} and {}",
                self.component, self.level
            ));
        }
        matching::check(self.data, &actual["data"])
    }
}
