//! A topology as a JSON document, for scripts.
//!
//! Names and types are spelled as in the specification, absent values are `null`, servers are
//! sorted by address, ids are hexadecimal, round-trip times are in milliseconds with a precision of
//! microseconds, and `lastWriteDate` is in milliseconds since the Unix epoch. Values that only a
//! server can provide, such as its wire versions, are `null` until the server has sent them.

use std::time::Duration;

use sdam_core::{
    server::{Rtt, ServerDescription, ServerType},
    topology::TopologyDescription,
};
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// The name of the format, and its version, which is incremented when a key is removed or changes
/// its meaning.
pub const SCHEMA: &str = "sdam.topology/1";

/// Converts a topology to one JSON object.
pub fn snapshot(topology: &TopologyDescription) -> Value {
    let servers = topology.servers().iter().map(|own| server(own));
    let departures = topology.departures().iter();
    let departures = departures.map(|it| json!({ "address": it.address, "reason": it.reason }));
    let election = topology.max_election();
    json!({
        "schema": SCHEMA,
        "topologyType": topology.topology_type().as_str(),
        "setName": topology.set_name(),
        "maxSetVersion": election.set_version,
        "maxElectionId": election.election_id,
        "compatible": topology.is_compatible(),
        "compatibilityError": topology.compatibility_error(),
        "logicalSessionTimeoutMinutes": topology.logical_session_timeout_minutes(),
        "servers": servers.collect::<Value>(),
        "departures": departures.collect::<Value>(),
    })
}

fn server(server: &ServerDescription) -> Value {
    let millis = |of: fn(Rtt) -> Duration| server.rtt.map(|rtt| of(rtt).as_micros() as f64 / 1e3);
    let has_replied =
        server.server_type.is_available() && server.server_type != ServerType::LoadBalancer;
    let versions = has_replied.then_some(server.wire_versions);
    json!({
        "address": server.address,
        "type": server.server_type,
        "rttMs": millis(|rtt| rtt.average),
        "minRttMs": millis(|rtt| rtt.minimum),
        "setName": server.set_name,
        "setVersion": server.election.set_version,
        "electionId": server.election.election_id,
        "primary": server.primary,
        "me": server.me,
        "hosts": server.hosts,
        "passives": server.passives,
        "arbiters": server.arbiters,
        "tags": server.tags,
        "minWireVersion": versions.map(|range| range.min),
        "maxWireVersion": versions.map(|range| range.max),
        "topologyVersion": server.topology_version,
        "lastWriteDate": server.last_write_date,
        "logicalSessionTimeoutMinutes": server.logical_session_timeout_minutes,
        "error": server.error.as_ref().map(|error| format!("{error:#}")),
    })
}
