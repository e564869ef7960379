//! The expected events of a phase (SDAM Logging and Monitoring: "Tests").

use std::{collections::BTreeMap, fmt};

use sdam_core::{
    address::ServerAddress,
    event::{EventKind, EventName},
};
use serde::{Deserialize, de::IgnoredAny};

use super::{
    outcome::{Fields, compare_server, compare_topology},
    same,
};

/// The events whose order and descriptions are specified by a file.
const COMPARED: [EventName; 6] = [
    EventName::TopologyOpening,
    EventName::TopologyDescriptionChanged,
    EventName::TopologyClosed,
    EventName::ServerOpening,
    EventName::ServerDescriptionChanged,
    EventName::ServerClosed,
];

/// An expected event, with the fields that a file specifies.
#[derive(Debug, Deserialize)]
#[serde(try_from = "BTreeMap<String, EventFields>")]
pub(super) struct ExpectedEvent {
    name: EventName,
    fields: EventFields,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct EventFields {
    #[serde(rename = "topologyId")]
    _topology_id: IgnoredAny,
    address: Option<ServerAddress>,
    previous_description: Option<Fields>,
    new_description: Option<Fields>,
}

impl TryFrom<BTreeMap<String, EventFields>> for ExpectedEvent {
    type Error = String;

    /// Reads an event whose key is its name, such as `server_opening_event`.
    fn try_from(event: BTreeMap<String, EventFields>) -> Result<Self, String> {
        let (key, fields) = event.into_iter().next().ok_or("an event has no name")?;
        let text = key.replace('_', "");
        let is_named =
            |name: &&EventName| text.eq_ignore_ascii_case(&format!("{}Event", name.as_str()));
        let name = COMPARED.iter().find(is_named);
        let name = *name.ok_or_else(|| format!("unknown event {key}"))?;
        Ok(Self { name, fields })
    }
}

impl ExpectedEvent {
    fn compare(&self, actual: &EventKind) -> Result<(), String> {
        same("the name", &actual.name().as_str(), &self.name.as_str())?;
        same("the address", &actual.address(), &self.fields.address.as_ref())?;
        let previously = |difference| format!("previously {difference}");
        let EventFields { previous_description, new_description, .. } = &self.fields;
        match (actual, previous_description, new_description) {
            (
                EventKind::TopologyDescriptionChanged { previous, new },
                Some(before),
                Some(after),
            ) => {
                compare_topology(before, previous, &BTreeMap::new()).map_err(previously)?;
                compare_topology(after, new, &BTreeMap::new())
            }
            (EventKind::ServerDescriptionChanged { previous, new }, Some(before), Some(after)) => {
                compare_server(before, previous, None).map_err(previously)?;
                compare_server(after, new, None)
            }
            (_, None, None) if !self.name.as_str().ends_with("DescriptionChanged") => Ok(()),
            _ => Err("descriptions are missing or unexpected".to_owned()),
        }
    }
}

impl fmt::Display for ExpectedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, self.name, self.fields.address.as_ref())
    }
}

fn describe(
    f: &mut impl fmt::Write,
    name: EventName,
    address: Option<&ServerAddress>,
) -> fmt::Result {
    f.write_str(name.as_str())?;
    address.map_or(Ok(()), |address| write!(f, " of {address}"))
}

/// Compares the monitoring events in `actual` with `expected`: their number, their order, and the
/// fields that the file specifies. The order of adjacent opening events does not matter, nor does
/// the order of adjacent closing events.
pub(super) fn compare(expected: &[ExpectedEvent], actual: &[EventKind]) -> Result<(), String> {
    let mut expected: Vec<_> = expected.iter().collect();
    let mut actual: Vec<_> =
        actual.iter().filter(|event| COMPARED.contains(&event.name())).collect();
    sort_unordered_runs(&mut expected, |event| (event.name, event.fields.address.as_ref()));
    sort_unordered_runs(&mut actual, |event| (event.name(), event.address()));
    for (index, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
        expected
            .compare(actual)
            .map_err(|difference| format!("event {} ({expected}): {difference}", index + 1))?;
    }
    if expected.len() == actual.len() {
        return Ok(());
    }
    let mut extra = String::new();
    for event in actual.iter().skip(expected.len()) {
        extra.push_str(if extra.is_empty() { ", the unexpected ones are " } else { ", " });
        describe(&mut extra, event.name(), event.address()).map_err(|error| error.to_string())?;
    }
    Err(format!("there are {} events, expected {}{extra}", actual.len(), expected.len()))
}

/// Sorts each sequence of adjacent events whose order does not matter.
fn sort_unordered_runs<'e, T>(
    events: &mut [&'e T],
    key: impl Fn(&'e T) -> (EventName, Option<&'e ServerAddress>),
) {
    for run in events.chunk_by_mut(|one, next| key(one).0 == key(next).0) {
        let unordered = [EventName::ServerOpening, EventName::ServerClosed];
        if run.first().is_some_and(|event| unordered.contains(&key(event).0)) {
            run.sort_by_key(|event| key(event).1);
        }
    }
}
