//! Tests that a file with a wrong expectation fails in both modes of a topology. `cargo xtask
//! spec-test` tests the same for the pure code, with changed official files.

use serde_json::{Value, json};

use crate::{engine::tests::host, suite::Suite};

/// Runs `test` with every runner of the suite `name` that drives a topology.
fn each(name: &str, test: impl Fn(&dyn Fn(&Value) -> Result<(), String>)) {
    let suite = Suite::ALL.iter().find(|suite| suite.matches(name));
    let suite = suite.unwrap();
    let host = host();
    test(&|file| suite.engine.unwrap()(&host, file));
    test(&|file| suite.scan.unwrap()(file));
}

/// Returns a selection test, as in an official file, on a set of three members.
pub(crate) fn file(suitable: &[&str], window: &[&str]) -> Value {
    let list = |names: &[&str]| -> Vec<_> {
        names.iter().map(|name| json!({ "address": name, "type": "RSSecondary" })).collect()
    };
    json!({
        "topology_description": { "type": "ReplicaSetWithPrimary", "servers": [
            { "address": "a:27017", "type": "RSPrimary", "avg_rtt_ms": 5 },
            { "address": "b:27017", "type": "RSSecondary", "avg_rtt_ms": 6 },
            { "address": "c:27017", "type": "RSSecondary", "avg_rtt_ms": 50 },
        ] },
        "operation": "read",
        "read_preference": { "mode": "Secondary" },
        "suitable_servers": list(suitable),
        "in_latency_window": list(window),
    })
}

#[test]
fn a_topology_is_driven_to_the_description_and_selected_from() {
    each("server_selection", |run| {
        let check = |suitable: &[&str], window: &[&str], error: Option<&str>| {
            let verdict = run(&file(suitable, window));
            match error {
                None => assert_eq!(verdict, Ok(())),
                Some(key) => assert!(verdict.unwrap_err().starts_with(key), "{key}"),
            }
        };
        check(&["b", "c"], &["b"], None);
        check(&["b"], &["b"], Some("suitable_servers are"));
        check(&["a", "b", "c"], &["b"], Some("suitable_servers are"));
        check(&["b", "c"], &["b", "c"], Some("in_latency_window are"));
        check(&["b", "c"], &[], Some("in_latency_window are"));
    });
}

#[test]
fn an_unreachable_description_fails() {
    each("server_selection", |run| {
        let check = |change: &dyn Fn(&mut Value), message: &str| {
            let mut file = file(&["b", "c"], &["b"]);
            change(&mut file["topology_description"]);
            let error = run(&file).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        };
        check(
            &|topology| topology["servers"][1]["type"] = json!("RSPrimary"),
            "the topology was not reached: it is ",
        );
        check(
            &|topology| topology["type"] = json!("ReplicaSetNoPrimary"),
            "the topology was not reached: it is ",
        );
        check(
            &|topology| topology["servers"][1]["type"] = json!("RSArbiter"),
            "no reply makes a server RSArbiter",
        );
    });
}

#[test]
fn staleness_errors_must_match_the_expectation() {
    each("max-staleness", |run| {
        let verdict = |seconds: i64, error: bool| {
            run(&json!({
                "topology_description": { "type": "ReplicaSetNoPrimary", "servers": [
                    { "address": "a:27017", "type": "PossiblePrimary" },
                    { "address": "b:27017", "type": "RSSecondary", "avg_rtt_ms": 5,
                      "lastUpdateTime": 3,
                      "lastWrite": { "lastWriteDate": { "$numberLong": "7" } } },
                ] },
                "read_preference": { "mode": "Nearest", "maxStalenessSeconds": seconds },
                "suitable_servers": [{ "address": "b:27017", "type": "RSSecondary" }],
                "in_latency_window": [{ "address": "b:27017", "type": "RSSecondary" }],
                "error": error,
            }))
        };
        for (seconds, fails) in [(-1, false), (0, true), (89, true), (90, false)] {
            assert_eq!(verdict(seconds, fails), Ok(()), "{seconds}");
            assert!(verdict(seconds, !fails).is_err(), "{seconds}");
        }
    });
}

#[test]
fn averages_are_measured_from_reply_delays() {
    each("rtt", |run| {
        let verdict = |average: f64| {
            run(&json!({ "avg_rtt_ms": 10, "new_rtt_ms": 20.5, "new_avg_rtt": average }))
        };
        assert_eq!(verdict(12.1), Ok(()));
        assert!(verdict(12.100_002).is_err());
    });
}

#[test]
fn servers_chosen_too_rarely_fail() {
    each("in_window", |run| {
        let verdict = |frequencies: [f64; 2]| {
            let servers = |key: &str, value: Value| {
                json!([
                    { "address": "a:27017", key: value },
                    { "address": "b:27017", key: value },
                ])
            };
            let mut topology =
                json!({ "type": "Sharded", "servers": servers("type", json!("Mongos")) });
            for server in topology["servers"].as_array_mut().unwrap() {
                server["avg_rtt_ms"] = json!(35);
            }
            run(&json!({
                "description": "two", "iterations": 1_000,
                "topology_description": topology,
                "mocked_topology_state": servers("operation_count", json!(5)),
                "outcome": {
                    "tolerance": 0.1,
                    "expected_frequencies": { "a:27017": frequencies[0], "b:27017": frequencies[1] },
                },
            }))
        };
        assert_eq!(verdict([0.5, 0.5]), Ok(()));
        let error = verdict([0.7, 0.3]).unwrap_err();
        assert!(error.starts_with("a:27017 was chosen with frequency 0."), "{error}");
    });
}
