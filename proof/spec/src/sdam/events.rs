//! The expected events of a phase (SDAM Logging and Monitoring: "Tests"), and expected descriptions.
//! If a key of a description is absent, its field is not checked; if its value is `null`, the field
//! must be absent.

use std::collections::{BTreeMap, BTreeSet};

use bson::Bson;
use sdam_core::{
    address::ServerAddress,
    error::Error,
    event::{EventKind, EventName},
    ids::{Generation, ServerId},
    server::{ServerDescription, WireVersions},
    topology::TopologyDescription,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, json};

use super::same;
use crate::fields::read;

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

fn describe(name: EventName, address: Option<&ServerAddress>) -> String {
    let of = address.map(|address| format!(" of {address}"));
    name.as_str().to_owned() + &of.unwrap_or_default()
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
        expected.compare(actual).map_err(|difference| {
            let expected = describe(expected.name, expected.fields.address.as_ref());
            format!("event {} ({expected}): {difference}", index + 1)
        })?;
    }
    if expected.len() == actual.len() {
        return Ok(());
    }
    let extra = actual.iter().skip(expected.len());
    let extra: Vec<_> = extra.map(|event| describe(event.name(), event.address())).collect();
    let (actual, expected) = (actual.len(), expected.len());
    Err(format!("there are {actual} events, expected {expected}; unexpected are {extra:?}"))
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

/// The fields of a description, as written in a file.
pub(super) type Fields = Map<String, Value>;

/// Compares a topology with its expected description, which contains the servers as a map or a
/// list.
pub(super) fn compare_topology(
    expected: &Fields,
    topology: &TopologyDescription,
    generations: &BTreeMap<ServerId, Generation>,
) -> Result<(), String> {
    let mut expected = expected.clone();
    let servers = match expected.remove("servers") {
        Some(Value::Array(list)) => list
            .iter()
            .map(|server| {
                let mut fields: Fields = read(server)?;
                Ok((read(&fields.remove("address").unwrap_or_default())?, fields))
            })
            .collect::<Result<_, String>>()?,
        servers => read::<BTreeMap<ServerAddress, Fields>>(&servers.unwrap_or_default())?,
    };
    let max = topology.max_election();
    let own = json!({
        "topologyType": topology.topology_type().as_str(),
        "setName": topology.set_name(),
        "logicalSessionTimeoutMinutes": topology.logical_session_timeout_minutes(),
        "maxSetVersion": max.set_version,
        "maxElectionId": max.election_id,
        "compatible": topology.is_compatible(),
    });
    compare_description(&expected, "topologyType", &own)?;
    for (address, expected) in &servers {
        if let Some(server) = topology.server(address) {
            compare_server(expected, server, generations.get(&server.id))
                .map_err(|difference| format!("{address}: {difference}"))?;
        }
    }
    let actual: BTreeSet<_> = topology.servers().iter().map(|it| &it.address).collect();
    same("the set of addresses", &actual, &servers.keys().collect())
}

/// Compares a server with its expected description.
fn compare_server(
    expected: &Fields,
    server: &ServerDescription,
    generation: Option<&Generation>,
) -> Result<(), String> {
    let mut own = serde_json::to_value(server).map_err(|error| error.to_string())?;
    own["error"] = json!(server.error.as_ref().map(Error::message));
    own["pool"] = json!({ "generation": generation });
    // A server that has not sent a hello reply has wire versions 0 to 0, for which the files
    // contain `null`.
    if server.wire_versions == WireVersions::default() {
        own["minWireVersion"] = Value::Null;
        own["maxWireVersion"] = Value::Null;
    }
    compare_description(expected, "type", &own)
}

fn compare_description(expected: &Fields, mandatory: &str, actual: &Value) -> Result<(), String> {
    if !expected.contains_key(mandatory) {
        return Err(format!("missing field `{mandatory}`"));
    }
    compare_fields("", expected, actual)
}

fn compare_fields(prefix: &str, expected: &Fields, actual: &Value) -> Result<(), String> {
    for (key, expected) in expected {
        let path = format!("{prefix}{key}");
        let actual = actual.get(key).ok_or_else(|| format!("unknown field `{path}`"))?;
        match (expected, actual) {
            (Value::Object(fields), Value::Object(_)) => {
                compare_fields(&format!("{path}."), fields, actual)?;
            }
            // It is enough if the error message contains the expected string.
            (Value::String(part), Value::String(text)) if key == "error" && text.contains(part) => {
            }
            _ => {
                let expected = plain(expected)?;
                if *actual != expected {
                    return Err(format!("{path} is {actual}, expected {expected}"));
                }
            }
        }
    }
    Ok(())
}

/// Converts a value from a file to the form that serialized descriptions have: ids are strings, and
/// sets are sorted.
fn plain(value: &Value) -> Result<Value, String> {
    Ok(match read(value)? {
        Bson::ObjectId(id) => id.to_hex().into(),
        Bson::Array(mut items) => {
            items.sort_by_cached_key(Bson::to_string);
            Bson::Array(items).into_relaxed_extjson()
        }
        other => other.into_relaxed_extjson(),
    })
}
