//! The order and times of checks, the connections that they use, and the results of selections.

use sdam::{SelectionError, select::LimitSource};
use sdam_events::history::{Cause, Change};

use super::*;

/// Returns the log of one selection, and whether it found the primary.
fn log(harness: &Harness, topology: &mut ScanTopology) -> (String, bool) {
    harness.log();
    let found = select(topology).is_ok();
    (harness.log(), found)
}

#[test]
fn h_1_b_1_b_2_no_io_happens_before_the_first_operation() {
    // A new topology is stale, so the first selection scans first.
    let harness = Harness::default();
    let (mut topology, _) = harness.replica_set(|_| ());
    assert_eq!(harness.log(), "");
    assert_eq!((topology.is_stale(), topology.last_scan()), (true, None));
    assert_eq!(select(&mut topology), Ok("a".into()));
    assert_eq!((topology.is_stale(), topology.last_scan()), (false, Some(harness.clock.now())));
    assert_eq!(harness.open(), 3, "one connection to each server");
    harness.advance(1_000_000);
    assert_eq!(harness.log().matches("connect").count(), 3);
    assert_eq!(harness.log(), "", "no request without a call");
}

#[test]
fn h_1_a_selection_scans_inline_after_60_seconds() {
    let (harness, mut topology, _) = scanned();
    harness.advance(60_000);
    assert_eq!(log(&harness, &mut topology), ("a ping".into(), true), "H-12");
    harness.advance(1);
    let (second, found) = log(&harness, &mut topology);
    assert!(found);
    // The primary is checked first, and all checks use the open connections.
    assert!(
        second == "a hello, b hello, c hello" || second == "a hello, c hello, b hello",
        "{second}"
    );
}

#[test]
fn h_4_h_5_a_scan_checks_the_named_primary_next_and_then_the_other_members() {
    let harness = Harness::default();
    let mut hint = member(false, "a b c");
    hint.insert("primary", "c:27017");
    harness.serve("a", hint.clone());
    harness.serve("b", hint);
    harness.serve("c", member(true, "a b c"));
    let (mut topology, _) = harness.topology("a", |_| ());
    assert_eq!(select(&mut topology), Ok("c".into()));
    assert_eq!(
        harness.log(),
        "a connect, a isMaster, c connect, c isMaster, b connect, b isMaster"
    );
}

#[test]
fn h_5_a_server_that_left_is_not_checked_and_its_connection_is_closed() {
    let (harness, mut topology, _) = scanned();
    harness.serve("a", member(true, "a b"));
    harness.advance(70_000);
    assert_eq!(log(&harness, &mut topology), ("a hello, b hello".into(), true));
    assert_eq!(harness.open(), 2);
}

#[test]
fn h_6_a_server_that_failed_a_check_is_skipped_for_5_seconds() {
    // `cooldownMS` is 5000 and cannot be configured.
    let harness = Harness::default();
    let (mut topology, _) = harness.topology("a", |_| ());
    harness.serve("a", mongos());
    harness.kill("a");
    assert_eq!(log(&harness, &mut topology), ("a connect".into(), false));
    harness.advance(4_999);
    assert_eq!(log(&harness, &mut topology), (String::new(), false));
    harness.advance(500);
    harness.revive("a");
    assert_eq!(log(&harness, &mut topology), ("a connect, a isMaster".into(), true));
}

#[test]
fn h_10_a_lost_connection_of_a_known_server_is_replaced_at_once() {
    let (harness, mut topology, mut events) = scanned();
    harness.restart("a");
    harness.advance(70_000);
    let (log, found) = log(&harness, &mut topology);
    assert!(found);
    assert!(log.starts_with("a hello, a connect, a isMaster, "), "{log}");
    let summaries = summaries(&mut events);
    let expected = [
        "SelectionStarted",
        "HeartbeatStarted a",
        "HeartbeatFailed a",
        "Unknown a",
        "TopologyReplicaSetNoPrimary",
        "PoolCleared a",
        "HeartbeatStarted a",
        "HeartbeatSucceeded a",
        "PoolReady a",
        "RSPrimary a",
        "TopologyReplicaSetWithPrimary",
    ];
    assert_eq!(summaries[..expected.len()], expected);
}

#[test]
fn h_10_h_15_a_silent_server_is_retried_once_and_then_skipped() {
    // A selection exceeds its time limit by at most one scan (L-67).
    let harness = Harness::default();
    let (mut topology, _) = harness.replica_set(|options| {
        options.connect_timeout = Some(std::time::Duration::from_secs(2));
    });
    select(&mut topology).unwrap();
    harness.change("a", |server| server.silent = true);
    harness.advance(70_000);
    let before = harness.millis();
    assert!(select(&mut topology).is_err());
    // The scan makes two attempts of 2 s each to check `a`, and takes 1 ms for each of the other
    // servers.
    assert_eq!(harness.millis() - before, 4_002);
    let before = harness.millis();
    assert!(select(&mut topology).is_err());
    assert_eq!(harness.millis() - before, 502, "the pause and two replies");
    let description = topology.description();
    let error = description.server(&address("a")).unwrap();
    assert_eq!(error.error.as_ref().unwrap().kind(), ErrorKind::Timeout);
}

#[test]
fn h_10_with_the_legacy_retry_the_server_stays_known_until_the_retry() {
    let harness = Harness::default();
    let (mut topology, mut events) = harness.replica_set(|options| {
        options.deviations.retry_before_unknown = true;
    });
    select(&mut topology).unwrap();
    harness.restart("a");
    harness.advance(70_000);
    summaries(&mut events);
    assert!(select(&mut topology).is_ok());
    let summaries = summaries(&mut events);
    assert!(!summaries.contains(&"Unknown a".to_string()), "{summaries:?}");
}

#[test]
fn h_2_a_selection_without_a_primary_scans_every_500_ms_until_its_timeout() {
    let harness = Harness::default();
    let (mut topology, _) = harness.topology("a", |options| {
        options.replica_set = Some("rs".into());
        options.server_selection_try_once = Some(false);
        options.server_selection_timeout = std::time::Duration::from_secs(3);
    });
    harness.serve("a", member(false, "a"));
    assert!(select(&mut topology).is_err());
    // Scans begin at 0 ms, 501 ms and so on: each scan takes 1 ms, and the next scan begins 500 ms
    // after the previous one has ended.
    assert_eq!(harness.log().matches("hello").count(), 5);
    assert_eq!(harness.millis(), 2_506, "3 s less 500 ms, L-67");
}

#[test]
fn h_8_a_server_is_checked_on_demand_but_no_sooner_than_500_ms_after_its_last_check() {
    let (harness, mut topology, _) = scanned();
    let last = topology.last_scan();
    harness.advance(1_000);
    let server = id(&topology, "b");
    let before = harness.millis();
    ready(topology.check(server));
    assert_eq!(harness.log(), "b hello");
    assert_eq!(harness.millis(), before + 1);
    ready(topology.check(server));
    assert_eq!(harness.log(), "b hello");
    assert_eq!(harness.millis(), before + 502);
    assert_eq!(topology.last_scan(), last, "a check is not a scan");
}

#[test]
fn l_65_l_66_try_once_is_the_default_and_scans_once() {
    let harness = Harness::default();
    let (mut topology, _) = harness.topology("a", |options| {
        options.replica_set = Some("rs".into());
    });
    harness.serve("a", member(false, "a"));
    for _ in 0..3 {
        let selected = ready(topology.select(&Criteria::write()));
        let Err(SelectionError::Timeout(timeout)) = selected else {
            panic!("{selected:?}");
        };
        assert_eq!(timeout.limit_source, LimitSource::TryOnce);
        assert_eq!(timeout.description.servers().len(), 1);
        let text = timeout.to_string();
        assert!(text.contains("after one scan"), "{text}");
        let log = harness.log();
        assert!(log == "a connect, a isMaster" || log == "a hello", "{log}");
    }
    // The selection makes three scans of 1 ms each, with pauses of 500 ms between them.
    assert_eq!(harness.millis(), 1_003);
}

#[test]
fn the_error_of_a_failed_selection_contains_the_history_if_it_is_enabled() {
    let summaries = |build: fn(TopologyBuilder) -> TopologyBuilder| {
        let harness = Harness::default();
        harness.serve("a", member(false, "a"));
        let options = Options::parse("mongodb://a/?replicaSet=rs").unwrap();
        let topology = build(TopologyBuilder::new(options)).scan(harness.backend(SEED));
        match ready(topology.unwrap().select(&Criteria::write())) {
            Err(SelectionError::Timeout(timeout)) => timeout.history,
            selected => panic!("{selected:?}"),
        }
    };
    assert!(summaries(|builder| builder).is_empty());
    // The history includes the scan of this selection.
    let last: Vec<_> = summaries(|builder| builder.history(2))
        .into_iter()
        .map(|transition| (transition.change, transition.cause))
        .collect();
    let server = Change::Server {
        address: address("a"),
        old: ServerType::Unknown,
        new: ServerType::RsSecondary,
    };
    let topology = Change::Topology {
        old: TopologyType::ReplicaSetNoPrimary,
        new: TopologyType::ReplicaSetNoPrimary,
        primary: None,
    };
    let cause = Cause::Reply(address("a"));
    assert_eq!(last, [(server, cause.clone()), (topology, cause)]);
}

#[test]
fn l_68_the_first_selection_is_not_delayed() {
    let (harness, ..) = scanned();
    assert_eq!(harness.millis(), 3, "three replies");
}

#[test]
fn l_65_e_1_an_incompatible_server_fails_selections_until_it_is_replaced() {
    let harness = Harness::default();
    let (mut topology, _) = harness.replica_set(|_| ());
    let mut ancient = member(false, "a b c");
    ancient.insert("maxWireVersion", 2);
    harness.serve("c", ancient);
    let selected = ready(topology.select(&Criteria::write()));
    let Err(SelectionError::Incompatible { description }) = selected else {
        panic!("{selected:?}");
    };
    assert!(description.compatibility_error().unwrap().contains("c:27017"));
    harness.serve("c", member(false, "a b c"));
    harness.advance(500);
    assert_eq!(select(&mut topology), Ok("a".into()));
}
