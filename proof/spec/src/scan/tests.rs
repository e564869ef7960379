//! Tests of the runner that apply only to single-threaded mode.

use std::{collections::BTreeSet, time::Duration};

use sdam_core::options::Options;
use sdam_select::criteria::Criteria;
use serde_json::{Value, json};

use super::{Harness, check_timeout, covers_in_window, discovery_and_monitoring, drive_to, ready};
use crate::selection::{self, SelectionFile};

fn run(file: &Value) -> Result<(), String> {
    discovery_and_monitoring(file)
}

#[test]
fn a_response_of_an_unmonitored_server_fails() {
    let balanced = json!({
        "description": "load balancers are not checked",
        "uri": "mongodb://a/?loadBalanced=true",
        "phases": [{ "responses": [["a", { "ok": 1 }]], "outcome": { "events": [] } }],
    });
    let error = "phase 1: expected 1 checks of a:27017, got 0";
    assert_eq!(run(&balanced), Err(error.to_owned()));
}

#[test]
fn a_network_error_breaks_two_checks_of_a_known_server_and_one_of_an_unknown() {
    let reply = json!({ "ok": 1, "ismaster": true, "minWireVersion": 0, "maxWireVersion": 21 });
    let phase = |reply: &Value, server_type: &str, generation: u64| {
        json!({
            "responses": [["a:27017", reply]],
            "outcome": {
                "topologyType": "Single", "setName": null,
                "servers": {
                    "a:27017": { "type": server_type, "pool": { "generation": generation } },
                },
            },
        })
    };
    let broken = json!({});
    let file = json!({
        "description": "on and off",
        "uri": "mongodb://a/?directConnection=true",
        "phases": [
            phase(&broken, "Unknown", 1),
            phase(&reply, "Standalone", 1),
            phase(&broken, "Unknown", 3),
        ],
    });
    assert_eq!(run(&file), Ok(()));
}

#[test]
fn a_pending_future_fails() {
    assert_eq!(ready(async { 1 }), Ok(1));
    assert!(ready(futures::future::pending::<()>()).is_err());
}

#[test]
fn in_window_files_apply_only_if_all_operation_counts_are_equal() {
    let file = |counts: [u64; 2]| {
        json!({
            "description": "two", "iterations": 1,
            "topology_description": { "type": "Sharded", "servers": [
                { "address": "a:27017", "type": "Mongos" },
                { "address": "b:27017", "type": "Mongos" },
            ] },
            "mocked_topology_state": [
                { "address": "a:27017", "operation_count": counts[0] },
                { "address": "b:27017", "operation_count": counts[1] },
            ],
            "outcome": {
                "tolerance": 1, "expected_frequencies": { "a:27017": 0.5, "b:27017": 0.5 },
            },
        })
    };
    let covers = covers_in_window;
    assert!(covers(&file([5, 5])));
    assert!(!covers(&file([5, 6])));
    // Malformed files are accepted here, because the check itself reports them.
    assert!(covers(&json!({})));
}

#[test]
fn a_selection_that_times_out_too_early_or_too_late_fails() {
    let file = selection::tests::file(&["b", "c"], &["b"]);
    let file = SelectionFile::parse(&file).unwrap();
    let nowhere = Criteria::write().with_selector(std::sync::Arc::new(
        |suitable: &mut sdam_select::candidate::Candidates<'_>| suitable.retain(|_| false),
    ));
    let verdict = |try_once: bool, wrong: Duration| {
        let harness = Harness::new();
        let mut options = Options::new(Vec::new());
        options.server_selection_try_once = Some(try_once);
        let (mut topology, scan) = drive_to(&harness, &file.topology, options).unwrap();
        assert_eq!(scan, Duration::from_millis(61));
        check_timeout(&mut topology, scan + wrong, &nowhere, &BTreeSet::new())
    };
    assert_eq!(verdict(true, Duration::ZERO), Ok(()));
    assert_eq!(verdict(false, Duration::ZERO), Ok(()));
    let error = verdict(true, Duration::from_millis(1)).unwrap_err();
    assert!(error.starts_with("expected TryOnce after 562ms..=562ms, got: "), "{error}");
}
