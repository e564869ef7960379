//! The events that tests observe and wait for.

use sdam_core::event::{EventKind, EventName};
use serde::Deserialize;

/// The name of an event in the format: lowercase first letter, `Event` last.
#[derive(Clone, Copy, Debug, Deserialize)]
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
        event
            .map(|event| Self(*event))
            .ok_or_else(|| format!("{text} is not a supported event"))
    }
}

/// An event to wait for, with the fields that a file specifies.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
#[expect(
    clippy::enum_variant_names,
    reason = "the names are those of the format"
)]
pub(super) enum ExpectedEvent {
    ServerDescriptionChangedEvent {
        new_description: Option<ExpectedDescription>,
    },
    ServerHeartbeatFailedEvent {},
    ServerHeartbeatStartedEvent {},
    ServerHeartbeatSucceededEvent {},
    TopologyDescriptionChangedEvent {
        new_description: Option<ExpectedDescription>,
    },
}

/// A description of which only the type is compared.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedDescription {
    #[serde(rename = "type")]
    kind: String,
}

impl ExpectedEvent {
    /// Returns whether `event` is of this name and has the specified fields.
    pub(super) fn matches(&self, event: &EventKind) -> bool {
        let is_type = |expected: &Option<ExpectedDescription>, actual: &str| {
            expected
                .as_ref()
                .is_none_or(|expected| expected.kind == actual)
        };
        match (self, event) {
            (
                Self::ServerDescriptionChangedEvent { new_description },
                EventKind::ServerDescriptionChanged { new, .. },
            ) => is_type(new_description, new.server_type.as_str()),
            (
                Self::TopologyDescriptionChangedEvent { new_description },
                EventKind::TopologyDescriptionChanged { new, .. },
            ) => is_type(new_description, new.topology_type().as_str()),
            (Self::ServerHeartbeatFailedEvent {}, EventKind::ServerHeartbeatFailed { .. })
            | (Self::ServerHeartbeatStartedEvent {}, EventKind::ServerHeartbeatStarted(_))
            | (
                Self::ServerHeartbeatSucceededEvent {},
                EventKind::ServerHeartbeatSucceeded { .. },
            ) => true,
            _ => false,
        }
    }
}
