//! Events that tests observe, wait for and expect.

use std::collections::BTreeMap;

use bson::{Bson, Document};
use sdam_core::event::{Event, EventKind, EventName};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{helper::to_json, matching::Expected};
use crate::running::compare_in_order;

/// The name of an event. In the format, it begins with a lowercase letter and has the suffix
/// `Event`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
pub(super) struct ObservedEvent(pub(super) EventName);

impl TryFrom<String> for ObservedEvent {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_named = |event: &&EventName| {
            let (first, rest) = event.as_str().split_at(1);
            text == format!("{}{rest}Event", first.to_lowercase())
        };
        let event = EventName::ALL.iter().find(is_named);
        event.map(|event| Self(*event)).ok_or_else(|| format!("{text} is not a supported event"))
    }
}

/// The events that a test expects from a client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ExpectedEvents {
    pub(super) client: String,
    #[serde(default)]
    event_type: EventType,
    events: Vec<ExpectedEvent>,
    #[serde(default)]
    ignore_extra_events: bool,
}

/// A category of events that are compared together.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum EventType {
    Cmap,
    #[default]
    Command,
    Sdam,
}

/// An event that is awaited or expected, with the fields that the file specifies.
#[derive(Debug, Deserialize)]
#[serde(try_from = "BTreeMap<ObservedEvent, BTreeMap<String, Expected>>")]
pub(super) struct ExpectedEvent {
    name: EventName,
    fields: BTreeMap<String, Expected>,
}

impl TryFrom<BTreeMap<ObservedEvent, BTreeMap<String, Expected>>> for ExpectedEvent {
    type Error = String;

    fn try_from(
        event: BTreeMap<ObservedEvent, BTreeMap<String, Expected>>,
    ) -> Result<Self, String> {
        let mut events = event.into_iter();
        let (Some((ObservedEvent(name), fields)), None) = (events.next(), events.next()) else {
            return Err("an event has exactly one name".to_owned());
        };
        // Refuse fields that the format does not define. Such an expectation never matches, so a
        // test that expects no event would always pass.
        match fields.keys().find(|key| !fields_of(name).contains(&&***key)) {
            Some(unknown) => Err(format!("{} has no field {unknown}", name.as_str())),
            None => Ok(Self { name, fields }),
        }
    }
}

impl ExpectedEvent {
    /// Returns whether `event` has the expected name and the specified fields.
    pub(super) fn matches(&self, event: &EventKind) -> bool {
        self.compare(event).is_ok()
    }

    fn compare(&self, event: &EventKind) -> Result<(), String> {
        if event.name() != self.name {
            let (actual, expected) = (event.name().as_str(), self.name.as_str());
            return Err(format!(" is {actual}, expected {expected}"));
        }
        let actual = describe(event);
        for (key, expected) in &self.fields {
            let value = actual.get(key).unwrap_or(&Value::Null);
            let result = expected.compare(value);
            result.map_err(|error| format!(" ({}).{key}{error}", self.name.as_str()))?;
        }
        Ok(())
    }
}

impl ExpectedEvents {
    /// Compares the recorded events with the expected ones.
    pub(super) fn compare(&self, events: &[Event]) -> Result<(), String> {
        let kinds = events.iter().map(|event| &event.kind);
        let own = kinds.filter(|event| EventType::of(event.name()) == Some(self.event_type));
        let admits_more = self.ignore_extra_events;
        let result =
            compare_in_order("event", &self.events, own, admits_more, ExpectedEvent::compare);
        result.map_err(|error| {
            let names: Vec<_> = events.iter().map(|event| event.kind.name().as_str()).collect();
            format!("{}: {error}, in {}", self.client, names.join(", "))
        })
    }
}

impl EventType {
    /// Returns the category of an event; `None` if the format does not define the event.
    fn of(name: EventName) -> Option<Self> {
        let text = name.as_str();
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
        if begins(&["Pool", "Connection"]) {
            Some(Self::Cmap)
        } else if begins(&["Command"]) {
            Some(Self::Command)
        } else if begins(&["ServerSelection"]) {
            None
        } else {
            begins(&["Server", "Topology"]).then_some(Self::Sdam)
        }
    }
}

/// Returns the fields that the format defines for an event.
fn fields_of(name: EventName) -> &'static [&'static str] {
    match name {
        EventName::ServerDescriptionChanged | EventName::TopologyDescriptionChanged => {
            &["newDescription", "previousDescription"]
        }
        EventName::ServerHeartbeatStarted
        | EventName::ServerHeartbeatSucceeded
        | EventName::ServerHeartbeatFailed => &["awaited"],
        EventName::PoolCleared => &["hasServiceId", "interruptInUseConnections"],
        EventName::ConnectionClosed | EventName::ConnectionCheckOutFailed => &["reason"],
        EventName::CommandStarted => {
            &["command", "commandName", "databaseName", "hasServerConnectionId", "hasServiceId"]
        }
        EventName::CommandSucceeded => {
            &["commandName", "databaseName", "hasServerConnectionId", "hasServiceId", "reply"]
        }
        EventName::CommandFailed => {
            &["commandName", "databaseName", "hasServerConnectionId", "hasServiceId"]
        }
        _ => &[],
    }
}

/// Returns the fields of an event, with the names that the format uses.
fn describe(event: &EventKind) -> Value {
    let mut fields = serde_json::to_value(event).unwrap_or_default();
    for (id, name) in
        [("serviceId", "hasServiceId"), ("serverConnectionId", "hasServerConnectionId")]
    {
        fields[name] = (!fields[id].is_null()).into();
    }
    fields["interruptInUseConnections"] = fields["interruptInUse"].take();
    let mut describe_change = |previous: &str, new: &str| {
        fields["previousDescription"] = json!({ "type": previous });
        fields["newDescription"] = json!({ "type": new });
    };
    match event {
        EventKind::ServerDescriptionChanged { previous, new } => {
            describe_change(previous.server_type.as_str(), new.server_type.as_str());
        }
        EventKind::TopologyDescriptionChanged { previous, new } => {
            describe_change(previous.topology_type().as_str(), new.topology_type().as_str());
        }
        EventKind::CommandStarted { document, .. } => fields["command"] = read_document(document),
        EventKind::CommandSucceeded { reply, .. } => fields["reply"] = read_document(reply),
        _ => {}
    }
    fields
}

fn read_document(bytes: &[u8]) -> Value {
    to_json(Document::from_reader(bytes).ok().map(Bson::Document).as_ref())
}
