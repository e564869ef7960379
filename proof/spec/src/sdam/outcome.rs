//! Expected descriptions. If a key is absent, its field is not checked; if its value is `null`, the
//! field must be absent.

use std::collections::{BTreeMap, BTreeSet};

use bson::Bson;
use sdam_core::{
    address::ServerAddress,
    error::Error,
    ids::{Generation, ServerId},
    server::{ServerDescription, WireVersions},
    topology::TopologyDescription,
};
use serde_json::{Map, Value, json};

use super::same;
use crate::fields::read;

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
    compare(&expected, "topologyType", &own)?;
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
pub(super) fn compare_server(
    expected: &Fields,
    server: &ServerDescription,
    generation: Option<&Generation>,
) -> Result<(), String> {
    let mut own = serde_json::to_value(server).map_err(|error| error.to_string())?;
    own["error"] = json!(server.error.as_ref().map(Error::message));
    own["pool"] = json!({ "generation": generation });
    // A server whose hello is not known has wire versions 0 to 0; the files write `null`.
    if server.wire_versions == WireVersions::default() {
        own["minWireVersion"] = Value::Null;
        own["maxWireVersion"] = Value::Null;
    }
    compare(expected, "type", &own)
}

fn compare(expected: &Fields, mandatory: &str, actual: &Value) -> Result<(), String> {
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
