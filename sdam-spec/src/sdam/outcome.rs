//! The description that a phase has to lead to.

use std::collections::BTreeSet;

use sdam_core::{
    address::ServerAddress,
    ids::{ObjectId, TopologyVersion},
    server::{ServerDescription, ServerType},
};
use serde_json::Value;

use super::{Observation, compare as compare_key, same};
use crate::json::{self, Object};

const SERVER_KEYS: &[&str] = &[
    "type",
    "setName",
    "setVersion",
    "electionId",
    "topologyVersion",
    "logicalSessionTimeoutMinutes",
    "minWireVersion",
    "maxWireVersion",
    "error",
    "pool",
];

/// Compares what is expected with what is known.
pub(super) fn compare(expected: &Object<'_>, observed: &Observation) -> Result<(), String> {
    let topology = &observed.description;
    let topology_type = topology.topology_type().as_str();
    same(
        "topologyType",
        &topology_type,
        &expected.read("topologyType", json::text)?,
    )?;
    compare_key(expected, "setName", topology.set_name(), json::text)?;
    let minutes = topology.logical_session_timeout_minutes();
    let minutes = minutes.map(i64::from);
    compare_key(
        expected,
        "logicalSessionTimeoutMinutes",
        minutes,
        json::integer,
    )?;
    let max = topology.max_election();
    compare_key(expected, "maxSetVersion", max.set_version, json::integer)?;
    compare_key(expected, "maxElectionId", max.election_id, object_id)?;
    compare_key(
        expected,
        "compatible",
        Some(topology.is_compatible()),
        json::boolean,
    )?;
    expected.read("servers", |servers| compare_servers(servers, observed))
}

fn compare_servers(expected: &Value, observed: &Observation) -> Result<(), String> {
    let expected = expected
        .as_object()
        .ok_or_else(|| format!("{expected} is no object"))?;
    let mut addresses = BTreeSet::new();
    for (name, server) in expected {
        let address = ServerAddress::parse(name).map_err(|error| error.to_string())?;
        if let Some(actual) = observed.description.server(&address) {
            compare_server(server, actual, observed)
                .map_err(|difference| format!("{address}: {difference}"))?;
        }
        addresses.insert(address);
    }
    let actual = observed.description.servers().iter();
    let actual: BTreeSet<_> = actual.map(|server| server.address.clone()).collect();
    same("the set of addresses", &actual, &addresses)
}

fn compare_server(
    expected: &Value,
    server: &ServerDescription,
    observed: &Observation,
) -> Result<(), String> {
    let expected = &Object::new(expected, "server", SERVER_KEYS)?;
    same(
        "type",
        &server.server_type.as_str(),
        &expected.read("type", json::text)?,
    )?;
    compare_key(expected, "setName", server.set_name.as_deref(), json::text)?;
    compare_key(expected, "setVersion", server.set_version(), json::integer)?;
    compare_key(expected, "electionId", server.election_id(), object_id)?;
    compare_key(
        expected,
        "topologyVersion",
        server.topology_version,
        topology_version,
    )?;
    let minutes = server.logical_session_timeout_minutes.map(i64::from);
    compare_key(
        expected,
        "logicalSessionTimeoutMinutes",
        minutes,
        json::integer,
    )?;
    // Nobody asked a load balancer which versions it speaks.
    let asked = server.server_type.is_available() && server.server_type != ServerType::LoadBalancer;
    let versions = server.wire_versions;
    for (key, version) in [
        ("minWireVersion", versions.min),
        ("maxWireVersion", versions.max),
    ] {
        compare_key(
            expected,
            key,
            asked.then_some(i64::from(version)),
            json::integer,
        )?;
    }
    compare_error(expected, server)?;
    expected
        .read_optional("pool", |pool| {
            let pool = Object::new(pool, "pool", &["generation"])?;
            let actual = observed.generations.get(&server.id);
            let actual = actual.map(|generation| generation.as_u64());
            compare_key(&pool, "generation", actual, json::natural)
        })
        .map(drop)
}

/// The text of an error only has to contain what is expected.
fn compare_error(expected: &Object<'_>, server: &ServerDescription) -> Result<(), String> {
    let actual = server.error.as_deref().map(|error| &*error.message);
    let Some(expected) = expected.present("error") else {
        return Ok(());
    };
    let expected = json::nullable(expected, json::text)?;
    let as_expected = match (actual, expected) {
        (None, None) => true,
        (Some(actual), Some(expected)) => actual.contains(expected),
        _ => false,
    };
    if as_expected {
        return Ok(());
    }
    Err(format!("error is {actual:?}, expected {expected:?}"))
}

fn object_id(value: &Value) -> Result<ObjectId, String> {
    json::object_id(value).map(ObjectId::from_bytes)
}

fn topology_version(value: &Value) -> Result<TopologyVersion, String> {
    let version = Object::new(value, "topologyVersion", &["processId", "counter"])?;
    Ok(TopologyVersion {
        process_id: version.read("processId", object_id)?,
        counter: version.read("counter", json::integer)?,
    })
}
