//! The inputs of selections: servers, criteria and read preferences.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use sdam::{Criteria, Interest, ReadMode, ReadPreference, SelectionError, Topology};
use sdam_events::channel::unbounded;
use sdam_testkit::{Server, member};

use super::harness::{Harness, hosts};

fn read(preference: ReadPreference) -> Criteria {
    Criteria::read(preference).unwrap()
}

/// Returns the ports of the servers chosen by 30 selections.
fn selected(topology: &Topology, criteria: &Criteria) -> BTreeSet<u16> {
    let select = |_| topology.try_select(criteria).unwrap().unwrap();
    let ports = (0..30).map(select).map(|selected| selected.address().port());
    ports.map(Option::unwrap).collect()
}

/// L-1: checks select no server, and a server selected for a cursor stays the same while others are
/// selected. Using it for the cursor's later commands is the caller's responsibility.
#[test]
fn checks_select_no_server_and_a_selected_server_stays_the_same() {
    let hosts = hosts(3);
    let mut harness = Harness::with_replica_set(&hosts);
    let (sink, mut events) = unbounded();
    let topology =
        harness.start(&hosts, |builder| builder.sink(sink.interested_in(Interest::SELECTION)));
    harness.pass(Duration::from_secs(60));
    assert!(harness.servers.answered(&hosts[0]).len() > 5);
    assert!(events.try_next().is_none());

    let held = topology.select(&Criteria::write()).now_or_never().unwrap().unwrap();
    harness.servers.set(&hosts[0], Server::member(&hosts, false));
    harness.servers.set(&hosts[1], Server::member(&hosts, true));
    harness.pass(Duration::from_secs(10));
    assert_eq!(selected(&topology, &Criteria::write()), [20_001].into());
    assert_eq!(held.address(), &hosts[0]);
}

/// L-7: the client's default read preference affects only criteria that use it, and a selection
/// does not depend on the previous one. Choosing the criteria of an operation (L-3, L-4, L-5) is
/// the caller's responsibility, see `Criteria`.
#[test]
fn the_default_read_preference_applies_only_to_criteria_that_use_it() {
    let hosts = hosts(3);
    let mut harness = Harness::with_replica_set(&hosts);
    let topology = harness.start(&hosts, |builder| {
        builder
            .options(|options| options.read_preference = ReadPreference::new(ReadMode::Secondary))
    });
    let inherited = read(topology.options().read_preference.clone());
    let own = read(ReadPreference::new(ReadMode::Nearest));
    let primary = read(ReadPreference::default());
    assert_eq!(selected(&topology, &inherited), [20_001, 20_002].into());
    assert_eq!(selected(&topology, &own), [20_000, 20_001, 20_002].into());
    assert_eq!(selected(&topology, &primary), [20_000].into());
    assert_eq!(selected(&topology, &Criteria::write()), [20_000].into());
}

/// L-6: a selected server reports whether its read preference was overridden.
#[test]
fn a_server_selected_for_a_writing_pipeline_reports_an_overridden_read_preference() {
    let hosts = hosts(2);
    let mut harness = Harness::with_replica_set(&hosts);
    let topology = harness.start(&hosts, |builder| builder);
    let writing = read(ReadPreference::new(ReadMode::Secondary)).with_write_stage();
    let select = || topology.try_select(&writing).unwrap().unwrap();
    assert_eq!(select().address(), &hosts[1]);
    assert!(!select().overrides_read_preference());

    let mut old = member(&hosts, true);
    old.insert("maxWireVersion", 9);
    harness.servers.set(&hosts[0], Server::replying(&old));
    harness.pass(Duration::from_secs(10));
    assert_eq!(select().address(), &hosts[0]);
    assert!(select().overrides_read_preference());
}

/// L-60: a selection succeeds even if all other servers stay silent.
#[test]
fn a_selection_needs_only_one_suitable_server() {
    let hosts = hosts(3);
    let secondary = read(ReadPreference::new(ReadMode::PrimaryPreferred));
    for (server, criteria) in
        [(Server::mongos(), Criteria::write()), (Server::member(&hosts, false), secondary)]
    {
        let mut harness = Harness::new();
        harness.servers.set(&hosts[1], server);
        let topology = harness.start(&hosts, |builder| builder);
        let selected = topology.select(&criteria).now_or_never().unwrap();
        assert_eq!(selected.unwrap().address(), &hosts[1]);
    }
}

/// L-64: as many selections as allowed wait, the next one fails at once, and a place that becomes
/// free is reused.
#[test]
fn selections_beyond_max_waiters_fail_at_once() {
    let mut harness = Harness::new();
    let topology =
        harness.start(&hosts(1), |builder| builder.options(|options| options.max_waiters = 2));
    let criteria = Criteria::write();
    let begin = || {
        let mut selection = Box::pin(topology.select(&criteria));
        let outcome = selection.as_mut().now_or_never();
        outcome.map_or(Ok(selection), |outcome| Err(outcome.unwrap_err()))
    };
    let (first, _second) = (begin().unwrap(), begin().unwrap());
    let error = begin().err().unwrap();
    assert!(matches!(error, SelectionError::TooManyWaiters { limit: 2 }));
    assert!(error.to_string().contains("2 selections"), "{error}");
    assert_eq!(topology.waiters(), 2);
    drop(first);
    let _third = begin().unwrap();
    assert!(begin().is_err());
}
