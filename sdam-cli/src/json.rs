//! A topology as a JSON document, for scripts.
//!
//! Names and types are spelled as in the specification, absent values are `null`, servers are
//! sorted by address, ids are hexadecimal, round-trip times are in milliseconds with a precision
//! of microseconds, and `lastWriteDate` is in milliseconds since the Unix epoch.
//! Values that only a server can provide, such as its wire versions, are `null` until it has sent
//! them.

use sdam_core::{
    address::ServerAddress,
    ids::{ObjectId, TopologyVersion},
    read_preference::TagSet,
    server::{Rtt, ServerDescription, ServerType},
    topology::{Departure, TopologyDescription},
};
use serde_json::{Map, Value, json};

#[cfg(test)]
mod tests;

/// The version of the format; incremented when a key changes its meaning or is removed.
pub const VERSION: u32 = 1;

/// Specifies whether the document includes round-trip times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundTrips {
    /// The document has `rttMs` and `minRttMs`.
    Shown,
    /// The round-trip times are left out, because they were not measured.
    LeftOut,
}

/// Converts a topology to one JSON object.
pub fn snapshot(topology: &TopologyDescription, round_trips: RoundTrips) -> Value {
    let servers = topology.servers().iter();
    let servers: Vec<Value> = servers.map(|of| server(of, round_trips)).collect();
    let election = topology.max_election();
    json!({
        "v": VERSION,
        "topologyType": topology.topology_type().as_str(),
        "setName": topology.set_name(),
        "maxSetVersion": election.set_version,
        "maxElectionId": election.election_id.map(hex),
        "compatible": topology.is_compatible(),
        "compatibilityError": topology.compatibility_error(),
        "logicalSessionTimeoutMinutes": topology.logical_session_timeout_minutes(),
        "servers": servers,
        "departures": topology.departures().iter().map(departure).collect::<Value>(),
    })
}

fn server(server: &ServerDescription, round_trips: RoundTrips) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("address", json!(server.address.as_str()));
    put("type", json!(server.server_type.as_str()));
    if round_trips == RoundTrips::Shown {
        let millis = |of: fn(Rtt) -> std::time::Duration| {
            json!(server.rtt.map(|rtt| of(rtt).as_micros() as f64 / 1e3))
        };
        put("rttMs", millis(|rtt| rtt.average));
        put("minRttMs", millis(|rtt| rtt.minimum));
    }
    let has_replied =
        server.server_type.is_available() && server.server_type != ServerType::LoadBalancer;
    let versions = has_replied.then_some(server.wire_versions);
    put("setName", json!(server.set_name));
    put("setVersion", json!(server.set_version()));
    put("electionId", json!(server.election_id().map(hex)));
    put("primary", json!(server.primary.as_ref().map(text)));
    put("me", json!(server.me.as_ref().map(text)));
    put("hosts", addresses(&server.hosts));
    put("passives", addresses(&server.passives));
    put("arbiters", addresses(&server.arbiters));
    put("tags", tags(&server.tags));
    put("minWireVersion", json!(versions.map(|range| range.min)));
    put("maxWireVersion", json!(versions.map(|range| range.max)));
    put("topologyVersion", version(server.topology_version));
    put("lastWriteDate", json!(server.last_write_date));
    let minutes = server.logical_session_timeout_minutes;
    put("logicalSessionTimeoutMinutes", json!(minutes));
    let error = server.error.as_ref().map(|error| format!("{error:#}"));
    put("error", json!(error));
    Value::Object(object)
}

/// Converts a removed server.
fn departure(departure: &Departure) -> Value {
    json!({
        "address": departure.address.as_str(),
        "reason": departure.reason.to_string(),
    })
}

fn hex(id: ObjectId) -> String {
    id.to_string()
}

fn text(address: &ServerAddress) -> &str {
    address.as_str()
}

fn addresses(list: &[ServerAddress]) -> Value {
    list.iter().map(text).collect()
}

fn tags(tags: &TagSet) -> Value {
    let pairs = tags.iter();
    Value::Object(pairs.map(|(name, value)| (name.to_owned(), value.into())).collect())
}

fn version(version: Option<TopologyVersion>) -> Value {
    version.map_or(
        Value::Null,
        |version| json!({ "processId": hex(version.process_id), "counter": version.counter }),
    )
}
