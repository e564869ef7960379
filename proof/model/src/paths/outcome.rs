//! Descriptions in the format of the official SDAM tests.

use sdam_core::{
    ids::{Generation, ObjectId, TopologyVersion},
    machine::TopologyMachine,
    server::ServerDescription,
};
use serde_json::{Map, Value, json};

/// Returns the complete description of a topology. A pool generation above `most` counts as
/// `most`.
pub(super) fn of(machine: &TopologyMachine, most: u64) -> Value {
    let topology = machine.description();
    let servers: Map<_, _> = topology
        .servers()
        .iter()
        .map(|own| {
            let generation = machine.generation(own.id, None).map_or(0, Generation::as_u64);
            (own.address.to_string(), server(own, generation.min(most)))
        })
        .collect();
    let max = topology.max_election();
    json!({
        "topologyType": topology.topology_type().as_str(),
        "setName": topology.set_name(),
        "maxSetVersion": max.set_version,
        "maxElectionId": max.election_id.map(oid),
        "logicalSessionTimeoutMinutes": topology.logical_session_timeout_minutes(),
        "compatible": topology.is_compatible(),
        "servers": servers,
    })
}

fn server(own: &ServerDescription, generation: u64) -> Value {
    let wire_versions = own.server_type.is_available().then_some(own.wire_versions);
    json!({
        "type": own.server_type.as_str(),
        "setName": own.set_name,
        "setVersion": own.set_version(),
        "electionId": own.election_id().map(oid),
        "topologyVersion": own.topology_version.map(version),
        "logicalSessionTimeoutMinutes": own.logical_session_timeout_minutes,
        "minWireVersion": wire_versions.map(|own| own.min),
        "maxWireVersion": wire_versions.map(|own| own.max),
        "pool": { "generation": generation },
    })
}

fn version(own: TopologyVersion) -> Value {
    json!({ "processId": oid(own.process_id), "counter": own.counter })
}

fn oid(id: ObjectId) -> Value {
    json!({ "$oid": id.to_string() })
}
