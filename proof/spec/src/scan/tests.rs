//! Tests of the runner that apply only to single-threaded mode.

use std::{collections::BTreeSet, time::Duration};

use sdam_core::options::Options;
use sdam_select::criteria::Criteria;
use serde_json::json;

use super::{Harness, check_timeout, discovery_and_monitoring, drive_to, ready};
use crate::selection::{self, SelectionFile};

#[test]
fn a_response_of_an_unmonitored_server_fails() {
    let balanced = json!({
        "description": "load balancers are not checked",
        "uri": "mongodb://a/?loadBalanced=true",
        "phases": [{ "responses": [["a", { "ok": 1 }]], "outcome": { "events": [] } }],
    });
    let error = "phase 1: expected 1 checks of a:27017, got 0";
    assert_eq!(discovery_and_monitoring(&balanced), Err(error.to_owned()));
}

#[test]
fn a_pending_future_fails() {
    assert_eq!(ready(async { 1 }), Ok(1));
    assert!(ready(futures::future::pending::<()>()).is_err());
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
