//! Selection results and errors in single-threaded mode.

use std::time::Duration;

use sdam::{
    Criteria, Options, ReadMode, ReadPreference, SelectionError, ServerType, TopologyBuilder,
    TopologyType, select::LimitSource,
};
use sdam_events::history::{Cause, Change};

use super::harness::*;

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
    let harness = Harness::default();
    let (mut topology, _) = harness.replica_set(|_| ());
    select(&mut topology).unwrap();
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

#[test]
fn l_24_max_staleness_is_validated_with_the_frequency_of_scans() {
    let harness = Harness::default();
    let (mut topology, _) = harness.replica_set(|options| {
        options.heartbeat_frequency = Some(Duration::from_secs(120));
    });
    let mut preference = ReadPreference::new(ReadMode::Secondary);
    preference.max_staleness = Some(Duration::from_secs(129));
    let criteria = Criteria::read(preference.clone()).unwrap();
    let selected = ready(topology.select(&criteria));
    let Err(SelectionError::InvalidCriteria(error)) = selected else {
        panic!("{selected:?}");
    };
    assert!(error.reason().contains("at least 130 "), "{error}");
    preference.max_staleness = Some(Duration::from_secs(130));
    let criteria = Criteria::read(preference).unwrap();
    let selected = ready(topology.select(&criteria)).unwrap();
    assert_ne!(selected.address(), &address("a"));
}
