//! The expected description of a phase.

use std::collections::{BTreeMap, BTreeSet};

use bson::oid::ObjectId;
use sdam_core::{
    address::ServerAddress,
    error::Error,
    ids::{self, Generation, ServerId, TopologyVersion},
    server::{ServerDescription, ServerType},
    topology::TopologyDescription,
};
use serde::Deserialize;

use super::{compare as compare_key, same};
use crate::fields::{Integer, Stated};

/// A description of the topology with the fields that a file specifies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Outcome {
    topology_type: String,
    #[serde(default)]
    set_name: Stated<String>,
    servers: BTreeMap<ServerAddress, ServerFields>,
    #[serde(default)]
    logical_session_timeout_minutes: Stated<i32>,
    #[serde(default)]
    max_set_version: Stated<Integer>,
    #[serde(default)]
    max_election_id: Stated<ObjectId>,
    #[serde(default)]
    compatible: Stated<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ServerFields {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    set_name: Stated<String>,
    #[serde(default)]
    set_version: Stated<Integer>,
    #[serde(default)]
    election_id: Stated<ObjectId>,
    #[serde(default)]
    topology_version: Stated<Version>,
    #[serde(default)]
    logical_session_timeout_minutes: Stated<i32>,
    #[serde(default)]
    min_wire_version: Stated<i32>,
    #[serde(default)]
    max_wire_version: Stated<i32>,
    #[serde(default)]
    error: Stated<String>,
    pool: Option<Pool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pool {
    generation: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Version {
    process_id: ObjectId,
    counter: Integer,
}

/// Compares the expected description with the observed one.
pub(super) fn compare(
    expected: &Outcome,
    topology: &TopologyDescription,
    generations: &BTreeMap<ServerId, Generation>,
) -> Result<(), String> {
    let topology_type = topology.topology_type().as_str();
    same("topologyType", &topology_type, &&*expected.topology_type)?;
    let set_name = topology.set_name().map(str::to_owned);
    compare_key("setName", set_name.as_ref(), &expected.set_name)?;
    compare_key(
        "logicalSessionTimeoutMinutes",
        topology.logical_session_timeout_minutes().as_ref(),
        &expected.logical_session_timeout_minutes,
    )?;
    let max = topology.max_election();
    let set_version = max.set_version.map(Integer);
    compare_key("maxSetVersion", set_version.as_ref(), &expected.max_set_version)?;
    let election_id = max.election_id.map(id);
    compare_key("maxElectionId", election_id.as_ref(), &expected.max_election_id)?;
    let compatible = Some(topology.is_compatible());
    compare_key("compatible", compatible.as_ref(), &expected.compatible)?;
    for (address, server) in &expected.servers {
        if let Some(actual) = topology.server(address) {
            compare_server(server, actual, generations)
                .map_err(|difference| format!("{address}: {difference}"))?;
        }
    }
    let actual: BTreeSet<_> = topology.servers().iter().map(|it| &it.address).collect();
    let expected: BTreeSet<_> = expected.servers.keys().collect();
    same("the set of addresses", &actual, &expected)
}

fn compare_server(
    expected: &ServerFields,
    server: &ServerDescription,
    generations: &BTreeMap<ServerId, Generation>,
) -> Result<(), String> {
    let server_type = server.server_type.as_str();
    same("type", &server_type, &&*expected.kind)?;
    let set_name = server.set_name.as_deref().map(str::to_owned);
    compare_key("setName", set_name.as_ref(), &expected.set_name)?;
    let set_version = server.set_version().map(Integer);
    compare_key("setVersion", set_version.as_ref(), &expected.set_version)?;
    let election_id = server.election_id().map(id);
    compare_key("electionId", election_id.as_ref(), &expected.election_id)?;
    let version = |version: Version| TopologyVersion {
        process_id: ids::ObjectId::from_bytes(version.process_id.bytes()),
        counter: version.counter.0,
    };
    compare_key(
        "topologyVersion",
        server.topology_version.as_ref(),
        &match expected.topology_version {
            Stated::Nothing => Stated::Nothing,
            Stated::Value(value) => Stated::Value(value.map(version)),
        },
    )?;
    compare_key(
        "logicalSessionTimeoutMinutes",
        server.logical_session_timeout_minutes.as_ref(),
        &expected.logical_session_timeout_minutes,
    )?;
    // A load balancer is never checked, so its wire versions are unknown.
    let checked =
        server.server_type.is_available() && server.server_type != ServerType::LoadBalancer;
    let (min, max) = (server.wire_versions.min, server.wire_versions.max);
    let (min, max) = (checked.then_some(min), checked.then_some(max));
    compare_key("minWireVersion", min.as_ref(), &expected.min_wire_version)?;
    compare_key("maxWireVersion", max.as_ref(), &expected.max_wire_version)?;
    compare_error(&expected.error, server)?;
    if let Some(pool) = &expected.pool {
        let actual = generations.get(&server.id);
        let actual = actual.map(|generation| generation.as_u64());
        same("pool.generation", &actual, &Some(pool.generation))?;
    }
    Ok(())
}

fn id(id: ids::ObjectId) -> ObjectId {
    ObjectId::from_bytes(id.bytes())
}

/// Compares an error. Its text only needs to contain the expected text.
fn compare_error(expected: &Stated<String>, server: &ServerDescription) -> Result<(), String> {
    let actual = server.error.as_ref().map(Error::message);
    let Stated::Value(expected) = expected else {
        return Ok(());
    };
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
