//! Tests that a file with a wrong expectation fails, both in pure code and with both modes of a
//! topology.

use serde_json::{Value, json};

use crate::{
    engine::tests::host,
    sdam::tests::{file, outcome},
    selection,
    suite::Suite,
};

/// Runs `test` with every runner of the suite `name` that drives a topology.
fn each_topology(name: &str, test: impl Fn(&dyn Fn(&Value) -> Result<(), String>)) {
    let suite = Suite::ALL.iter().find(|suite| suite.matches(name));
    let suite = suite.unwrap();
    let host = host();
    test(&|file| suite.engine.unwrap()(&host, file));
    test(&|file| suite.scan.unwrap()(file));
}

/// Runs `test` with every runner of the suite `name`.
fn each(name: &str, test: impl Fn(&dyn Fn(&Value) -> Result<(), String>)) {
    let suite = Suite::ALL.iter().find(|suite| suite.matches(name));
    let pure = suite.and_then(|suite| suite.pure).unwrap();
    test(&|file| pure(file));
    each_topology(name, test);
}

#[test]
fn a_topology_that_differs_from_the_file_fails() {
    each_topology("rs", |run| {
        let check = |pointer: &str, wrong: Value, message: &str| {
            let mut outcome = outcome();
            *outcome.pointer_mut(pointer).unwrap() = wrong;
            let error = run(&file(&outcome)).unwrap_err();
            assert_eq!(error, format!("phase 2 (both): {message}"));
        };
        assert_eq!(run(&file(&outcome())), Ok(()));
        check(
            "/topologyType",
            json!("Sharded"),
            "topologyType is \"ReplicaSetWithPrimary\", expected \"Sharded\"",
        );
        check(
            "/servers/a:27017/pool/generation",
            json!(1),
            "a:27017: pool.generation is 0, expected 1",
        );
    });
}

#[test]
fn a_topology_is_driven_to_the_description_and_selected_from() {
    each("server_selection", |run| {
        let check = |suitable: &[&str], window: &[&str], error: Option<&str>| {
            let verdict = run(&selection::tests::file(suitable, window));
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
    each_topology("server_selection", |run| {
        let check = |change: &dyn Fn(&mut Value), message: &str| {
            let mut file = selection::tests::file(&["b", "c"], &["b"]);
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
fn staleness_counts_from_the_updates_of_the_file() {
    each("max-staleness", |run| {
        let verdict = |update: u64, suitable: Value| {
            run(&json!({
                "topology_description": { "type": "ReplicaSetWithPrimary", "servers": [
                    { "address": "a:27017", "type": "RSPrimary", "avg_rtt_ms": 5,
                      "lastUpdateTime": 2_000,
                      "lastWrite": { "lastWriteDate": { "$numberLong": "2000" } } },
                    { "address": "b:27017", "type": "RSSecondary", "avg_rtt_ms": 50,
                      "lastUpdateTime": update,
                      "lastWrite": { "lastWriteDate": { "$numberLong": "1000" } } },
                ] },
                "heartbeatFrequencyMS": 20_000,
                "read_preference": { "mode": "Secondary", "maxStalenessSeconds": 100 },
                "suitable_servers": suitable,
                "in_latency_window": suitable,
            }))
        };
        let (none, b) = (json!([]), json!([{ "address": "b:27017", "type": "RSSecondary" }]));
        assert_eq!(verdict(81_000, b.clone()), Ok(()));
        assert_eq!(verdict(81_001, none.clone()), Ok(()));
        assert!(verdict(81_000, none).is_err());
        assert!(verdict(81_001, b).is_err());
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
