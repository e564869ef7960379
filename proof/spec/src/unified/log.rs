//! Log messages as the test format describes them.

use std::{
    fmt, mem,
    sync::{Arc, Mutex},
};

use sdam_core::event::Event;
use sdam_events::{
    log::{LogConfig, Severity},
    sink::EventSink,
    trace::TracingSink,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::{
    Metadata, Subscriber,
    field::{Field, Visit},
    span, subscriber,
};

use super::{format::severity, matching::Expected};
use crate::running::{compare_in_order, lock};

/// A log message from a client.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) level: Severity,
    pub(super) component: String,
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

/// Returns the log messages about `events` that the client's own sink writes with `config`.
pub(super) fn messages(config: &LogConfig, events: &[Event]) -> Vec<Message> {
    let (log, sink) = (Log::default(), TracingSink::new(config.clone()));
    subscriber::with_default(log.clone(), || events.iter().for_each(|event| sink.emit(event)));
    mem::take(&mut *lock(&log.0))
}

/// Collects the messages that are logged through `tracing`.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<Message>>>);

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        let component = match metadata.target().strip_prefix("mongodb::") {
            Some("server_selection") => "serverSelection",
            Some(component) => component,
            None => metadata.target(),
        };
        let level = metadata.level().as_str().to_lowercase().parse().unwrap_or_default();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let data = fields.0.into();
        lock(&self.0).push(Message { level, component: component.to_owned(), data });
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The fields of a message, with its text.
#[derive(Debug, Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }
}

impl ExpectedLog {
    /// Compares the client's log messages with the expected ones.
    pub(super) fn compare(&self, log: &[Message]) -> Result<(), String> {
        let is_ignored = |actual: &&Message| {
            let mut ignored = self.ignore_messages.iter();
            ignored.any(|message| message.compare(actual).is_ok())
        };
        let own = log.iter().filter(|actual| !is_ignored(actual));
        let (messages, admits_more) = (&self.messages, self.ignore_extra_messages);
        compare_in_order("message", messages, own, admits_more, ExpectedMessage::compare)
            .map_err(|error| format!("{}: {error}, in {log:#?}", self.client))
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
