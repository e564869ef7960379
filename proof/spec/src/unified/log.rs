//! Log messages as the test format describes them.

use sdam_core::event::Event;
use sdam_events::log::{LogConfig, LogMessage, Severity, Value as Field};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{entity::severity, matching::Expected};

/// A log message from a client.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) level: Severity,
    pub(super) component: &'static str,
    pub(super) data: Value,
}

/// The log messages that a test expects from a client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ExpectedLog {
    pub(super) client: String,
    messages: Vec<ExpectedMessage>,
    #[serde(default)]
    ignore_messages: Vec<ExpectedMessage>,
    #[serde(default)]
    ignore_extra_messages: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedMessage {
    #[serde(deserialize_with = "severity")]
    level: Severity,
    component: String,
    /// True if the field `failure` must be redacted, false if it must not.
    #[serde(rename = "failureIsRedacted")]
    failure_is_redacted: Option<bool>,
    data: Expected,
}

/// Returns the log messages about `events` that `config` enables.
pub(super) fn messages(config: &LogConfig, events: &[Event]) -> Vec<Message> {
    let messages =
        events.iter().filter_map(|event| LogMessage::of(event, config.max_document_length));
    messages
        .filter(|message| config.enables(message.component(), message.severity()))
        .map(|message| Message::from(&message))
        .collect()
}

impl From<&LogMessage<'_>> for Message {
    fn from(message: &LogMessage<'_>) -> Self {
        let mut data = Map::new();
        data.insert("message".to_owned(), message.text().into());
        for (name, value) in message.fields().iter() {
            let value = match value {
                Field::Integer(number) => number.into(),
                Field::Number(number) => number.into(),
                Field::Bool(truth) => truth.into(),
                text => text.to_string().into(),
            };
            data.insert(name.to_owned(), value);
        }
        Self {
            level: message.severity(),
            component: message.component().as_str(),
            data: data.into(),
        }
    }
}

impl ExpectedLog {
    /// Compares the client's log messages with the expected ones.
    pub(super) fn compare(&self, log: &[Message]) -> Result<(), String> {
        let result = self.compare_messages(log);
        result.map_err(|error| format!("{}: {error}, in {log:#?}", self.client))
    }

    fn compare_messages(&self, log: &[Message]) -> Result<(), String> {
        let is_ignored = |actual: &&Message| {
            let mut ignored = self.ignore_messages.iter();
            ignored.any(|message| message.compare(actual).is_ok())
        };
        let mut log = log.iter().filter(|actual| !is_ignored(actual));
        for (number, message) in (1..).zip(&self.messages) {
            let actual = log.next().ok_or_else(|| format!("message {number} is missing"))?;
            let result = message.compare(actual);
            result.map_err(|error| format!("message {number}{error}"))?;
        }
        match log.next() {
            Some(actual) if !self.ignore_extra_messages => {
                Err(format!("unexpected message: {actual:?}"))
            }
            _ => Ok(()),
        }
    }
}

impl ExpectedMessage {
    fn compare(&self, actual: &Message) -> Result<(), String> {
        if actual.level != self.level || actual.component != self.component {
            return Err(format!(
                " is from {} and of level {:?}, expected {} and {:?}",
                actual.component, actual.level, self.component, self.level
            ));
        }
        if let Some(redacted) = self.failure_is_redacted {
            let failure = actual.data["failure"].as_str().unwrap_or_default();
            if failure.contains("REDACTED") != redacted {
                return Err(format!(".failure is {failure}, expected redacted: {redacted}"));
            }
        }
        self.data.compare(&actual.data)
    }
}
