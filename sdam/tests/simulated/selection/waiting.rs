//! Tests waiting selections: the duration of their wait, and the checks that they request.

use std::{cell::Cell, future::poll_fn, pin::pin, rc::Rc, time::Duration};

use bson::doc;
use futures::{FutureExt, future::RemoteHandle};
use sdam::{Clock, Criteria, SelectionError, ServerAddress, Topology, select::LimitSource};
use sdam_core::options::MIN_HEARTBEAT_FREQUENCY;
use sdam_testkit::Server;

use super::harness::{Harness, hosts};

type Outcome = Result<ServerAddress, SelectionError>;

/// Selects a server for writing in a task, and counts how often the selection is polled.
fn select(
    harness: &mut Harness,
    topology: &Topology,
    timeout: Duration,
    turns: &Rc<Cell<usize>>,
) -> RemoteHandle<Outcome> {
    let (topology, turns) = (topology.clone(), Rc::clone(turns));
    harness.begin(async move {
        let criteria = Criteria::write();
        let mut selection = pin!(topology.select_within(&criteria, timeout));
        let selected = poll_fn(|cx| {
            turns.set(turns.get() + 1);
            selection.as_mut().poll(cx)
        });
        Ok(selected.await?.address().clone())
    })
}

fn refuse(harness: &Harness, hosts: &[ServerAddress]) {
    for host in hosts {
        harness.servers.set(host, Server::refusing("closed"));
    }
}

/// Returns the number of checks of each server.
fn checks(harness: &Harness, hosts: &[ServerAddress]) -> Vec<usize> {
    let of = |host| harness.servers.answered(host).len();
    hosts.iter().map(of).collect()
}

/// F-44, L-62: however many selections are waiting, each server is checked only once per 500 ms,
/// and the first suitable change ends all of the selections.
#[test]
fn a_thousand_waiting_selections_cause_one_check_of_each_server_per_500_ms() {
    const WAITERS: usize = 1000;
    let (mut harness, hosts) = (Harness::new(), hosts(3));
    refuse(&harness, &hosts);
    let topology = harness.start(&hosts, |builder| builder);
    // No selection is waiting yet, so the next check is due in ten seconds.
    harness.pass(Duration::from_secs(3));
    assert_eq!(checks(&harness, &hosts), [1, 1, 1]);

    let turns = Rc::default();
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| select(&mut harness, &topology, Duration::from_secs(30), &turns))
        .collect();
    harness.settle();
    assert_eq!(topology.waiters(), WAITERS);
    assert_eq!(checks(&harness, &hosts), [2, 2, 2], "the wait began with a check");
    harness.pass(Duration::from_secs(5));
    for host in &hosts {
        let checks = harness.servers.answered(host);
        assert_eq!(checks.len(), 2 + 10, "one per 500 ms in 5 s");
        for pair in checks[1..].windows(2) {
            assert_eq!(pair[1].since(pair[0]), MIN_HEARTBEAT_FREQUENCY);
        }
    }

    let changes = topology.snapshot().version();
    let turns_before = turns.get();
    assert!(
        turns_before <= WAITERS * usize::try_from(changes + 1).unwrap(),
        "{turns_before} turns for {changes} changes"
    );
    for host in &hosts {
        let answer = Server::member(&hosts, Some(host) == hosts.first());
        harness.servers.set(host, answer);
    }
    harness.pass(MIN_HEARTBEAT_FREQUENCY);
    assert_eq!(topology.waiters(), 0);
    for selection in waiting {
        assert_eq!(&selection.now_or_never().unwrap().unwrap(), &hosts[0]);
    }
    let served = turns.get() - turns_before;
    let changes = usize::try_from(topology.snapshot().version() - changes).unwrap();
    assert!(served <= WAITERS * changes, "{served} turns, {changes} changes");
    // No selection is waiting any more, so none causes a check.
    harness.pass(MIN_HEARTBEAT_FREQUENCY);
    let settled = checks(&harness, &hosts);
    assert_eq!(settled, [13, 13, 13]);
    harness.pass(Duration::from_secs(9));
    assert_eq!(checks(&harness, &hosts), settled);
}

/// L-63: a change that arrives exactly at the deadline is not lost.
#[test]
fn a_change_that_arrives_with_the_deadline_is_used() {
    let timeout = Duration::from_secs(2);
    let check = |arrives: bool| {
        let (mut harness, hosts) = (Harness::new(), hosts(1));
        let topology = harness.start(&hosts, |builder| builder);
        let criteria = Criteria::write();
        let mut selection = pin!(topology.select_within(&criteria, timeout));
        assert!(selection.as_mut().now_or_never().is_none());
        // Only this test polls the selection, so one poll sees both the change and the deadline.
        harness.clock.advance_to(harness.clock.now() + timeout);
        if arrives {
            harness.servers.set(&hosts[0], Server::member(&hosts, true));
        }
        harness.settle();
        selection.as_mut().now_or_never().unwrap().map(drop)
    };
    assert!(check(true).is_ok());
    let Err(SelectionError::Timeout(error)) = check(false) else {
        unreachable!();
    };
    assert_eq!((error.waited, error.limit_source), (timeout, LimitSource::Call));
}

/// L-62: with a timeout of zero, selections do not wait, but servers are checked.
#[test]
fn a_timeout_of_zero_means_not_to_wait() {
    let (mut harness, hosts) = (Harness::new(), hosts(1));
    refuse(&harness, &hosts);
    let topology = harness.start(&hosts, |builder| {
        builder.options(|options| options.server_selection_timeout = Duration::ZERO)
    });
    harness.pass(MIN_HEARTBEAT_FREQUENCY);
    assert_eq!(harness.servers.answered(&hosts[0]).len(), 1);
    let outcome = topology.select(&Criteria::write()).now_or_never().unwrap();
    let Err(SelectionError::Timeout(error)) = outcome else {
        unreachable!("{outcome:?}");
    };
    assert_eq!(error.waited, Duration::ZERO);
    assert_eq!(error.limit_source, LimitSource::ServerSelectionTimeout);
    harness.settle();
    assert_eq!(harness.servers.answered(&hosts[0]).len(), 2);
    harness.servers.set(&hosts[0], Server::member(&hosts, true));
    harness.pass(Duration::from_secs(10));
    let outcome = topology.select(&Criteria::write()).now_or_never().unwrap();
    assert_eq!(outcome.unwrap().address(), &hosts[0]);
}

/// L-62, E-1, E-6: no selection waits on an incompatible topology, not even one that began earlier.
#[test]
fn an_incompatible_topology_fails_at_once() {
    let (mut harness, hosts) = (Harness::new(), hosts(2));
    let topology = harness.start(&hosts, |builder| builder);
    let selection = select(&mut harness, &topology, Duration::from_secs(30), &Rc::default());
    harness.settle();
    assert_eq!(topology.waiters(), 1);
    let future = doc! {
        "ok": 1, "ismaster": true, "msg": "isdbgrid", "minWireVersion": 998, "maxWireVersion": 999,
    };
    let answer = Server::replying(&future);
    harness.servers.set(&hosts[0], answer);
    harness.servers.set(&hosts[1], Server::mongos());
    harness.settle();
    let check = |error: SelectionError| {
        let text = error.to_string();
        assert!(matches!(error, SelectionError::Incompatible { .. }), "{text}");
        assert!(text.contains("998"), "{text}");
    };
    check(selection.now_or_never().unwrap().unwrap_err());
    check(topology.try_select(&Criteria::write()).unwrap_err());
    let late = topology.select(&Criteria::write()).now_or_never().unwrap();
    check(late.unwrap_err());
}

/// Closing fails all waiting and later selections.
#[test]
fn closing_fails_every_waiting_selection() {
    let (mut harness, hosts) = (Harness::new(), hosts(3));
    refuse(&harness, &hosts);
    let topology = harness.start(&hosts, |builder| builder);
    let turns = Rc::default();
    let waiting: Vec<_> = (0..100)
        .map(|_| select(&mut harness, &topology, Duration::from_secs(30), &turns))
        .collect();
    harness.settle();
    assert_eq!(topology.waiters(), 100);
    let closing = topology.clone();
    let closed = harness.begin(async move { closing.close().await });
    harness.settle();
    closed.now_or_never().unwrap();
    for selection in waiting {
        let error = selection.now_or_never().unwrap().unwrap_err();
        assert!(matches!(error, SelectionError::Closed), "{error}");
        assert!(error.is_closed() && !error.is_timeout());
        assert!(error.to_string().starts_with("the topology is closed"), "{error}");
    }
    let late = topology.try_select(&Criteria::write());
    assert!(matches!(late, Err(SelectionError::Closed)));
    assert_eq!(topology.waiters(), 0);
}

/// L-44: a dropped selection is no longer counted as waiting, and causes no further checks.
#[test]
fn a_dropped_selection_causes_no_further_checks() {
    let (mut harness, hosts) = (Harness::new(), hosts(3));
    refuse(&harness, &hosts);
    let topology = harness.start(&hosts, |builder| builder);
    let criteria = Criteria::write();
    {
        let mut selection = pin!(topology.select(&criteria));
        assert!(selection.as_mut().now_or_never().is_none());
        harness.pass(Duration::from_secs(2));
        assert_eq!(checks(&harness, &hosts), [5, 5, 5]);
        assert_eq!(topology.waiters(), 1);
    }
    assert_eq!(topology.waiters(), 0);
    harness.pass(Duration::from_millis(9_999));
    assert_eq!(checks(&harness, &hosts), [5, 5, 5], "no selection waits any more");
    harness.pass(Duration::from_millis(1));
    assert_eq!(checks(&harness, &hosts), [6, 6, 6]);
}
