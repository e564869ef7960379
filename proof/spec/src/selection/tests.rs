//! Tests that a file with a wrong expectation fails.

use serde_json::json;

use super::*;

fn servers() -> Value {
    json!([
        { "address": "a:27017", "type": "RSPrimary", "avg_rtt_ms": 5 },
        { "address": "b:27017", "type": "RSSecondary", "avg_rtt_ms": 6, "tags": { "dc": "ny" } },
        { "address": "c:27017", "type": "RSSecondary", "avg_rtt_ms": 50 }
    ])
}

pub(crate) fn file(suitable: &[&str], window: &[&str]) -> Value {
    let list = |names: &[&str]| -> Vec<_> {
        names.iter().map(|name| json!({ "address": name, "type": "RSSecondary" })).collect()
    };
    json!({
        "topology_description": { "type": "ReplicaSetWithPrimary", "servers": servers() },
        "operation": "read",
        "read_preference": { "mode": "Secondary" },
        "suitable_servers": list(suitable),
        "in_latency_window": list(window),
    })
}

#[test]
fn deprioritized_servers_and_tags_are_read_from_the_file() {
    let mut avoiding = file(&["c"], &["c"]);
    avoiding["deprioritized_servers"] = json!([{ "address": "b:27017", "type": "Unknown" }]);
    assert_eq!(select(&avoiding), Ok(()));
    let mut tagged = file(&["b"], &["b"]);
    tagged["read_preference"]["tag_sets"] = json!([{ "dc": "ny" }]);
    assert_eq!(select(&tagged), Ok(()));
}

#[test]
fn files_with_unknown_keys_or_values_fail() {
    let check = |change: &dyn Fn(&mut Value)| {
        let mut file = file(&["b", "c"], &["b"]);
        change(&mut file);
        assert!(select(&file).is_err(), "{file}");
    };
    check(&|file| file["extra"] = json!(1));
    check(&|file| file["operation"] = json!("command"));
    check(&|file| file["read_preference"]["mode"] = json!("Closest"));
    check(&|file| file["topology_description"]["type"] = json!("Ring"));
    check(&|file| file["topology_description"]["servers"][0]["type"] = json!("Router"));
    check(&|file| file["topology_description"]["servers"][0]["weight"] = json!(3));
    check(&|file| file["suitable_servers"] = json!(null));
}

#[test]
fn servers_may_be_missing_only_if_an_error_is_expected() {
    let file = |seconds: i64, error: bool| {
        json!({
            "topology_description": { "type": "ReplicaSetNoPrimary", "servers": [] },
            "read_preference": { "mode": "Nearest", "maxStalenessSeconds": seconds },
            "suitable_servers": [],
            "in_latency_window": [],
            "error": error,
        })
    };
    let mut brief = file(0, true);
    brief.as_object_mut().unwrap().remove("suitable_servers");
    assert_eq!(select(&brief), Ok(()));
    let mut incomplete = file(90, false);
    incomplete.as_object_mut().unwrap().remove("suitable_servers");
    assert!(select(&incomplete).is_err());
}

#[test]
fn frequencies_must_be_within_the_tolerance() {
    let check = |frequencies: [f64; 2], passes: bool| {
        let file = json!({
            "description": "two",
            "topology_description": { "type": "Sharded", "servers": [
                { "address": "a:27017", "type": "Mongos", "avg_rtt_ms": 35 },
                { "address": "b:27017", "type": "Mongos", "avg_rtt_ms": 35 }
            ] },
            "mocked_topology_state": [
                { "address": "a:27017", "operation_count": 2 },
                { "address": "b:27017", "operation_count": 1 }
            ],
            "iterations": 100,
            "outcome": {
                "tolerance": 0.5,
                "expected_frequencies": { "a:27017": frequencies[0], "b:27017": frequencies[1] }
            }
        });
        assert_eq!(in_window(&file).is_ok(), passes, "{frequencies:?}");
    };
    check([0.0, 1.0], true);
    check([0.4, 0.6], true);
    check([0.6, 0.4], false);
    check([1.0, 0.0], false);
}
