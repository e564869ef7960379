//! A file for the tests of the runners that drive a topology.

use serde_json::{Value, json};

pub(crate) fn file(suitable: &[&str], window: &[&str]) -> Value {
    let list = |names: &[&str]| -> Vec<_> {
        names.iter().map(|name| json!({ "address": name, "type": "RSSecondary" })).collect()
    };
    json!({
        "topology_description": { "type": "ReplicaSetWithPrimary", "servers": [
            { "address": "a:27017", "type": "RSPrimary", "avg_rtt_ms": 5 },
            { "address": "b:27017", "type": "RSSecondary", "avg_rtt_ms": 6, "tags": { "dc": "ny" } },
            { "address": "c:27017", "type": "RSSecondary", "avg_rtt_ms": 50 },
        ] },
        "operation": "read",
        "read_preference": { "mode": "Secondary" },
        "suitable_servers": list(suitable),
        "in_latency_window": list(window),
    })
}
