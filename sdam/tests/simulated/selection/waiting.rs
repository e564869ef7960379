//! The servers that selections choose and wait for, and the checks that they request.

use std::{cell::Cell, collections::BTreeSet, future::poll_fn, rc::Rc};

use sdam_testkit::member;

use super::*;

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

/// F-44, F-45, L-62: however many selections are waiting, each server is checked only once per
/// 500 ms, and the first suitable change ends all of the selections.
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

/// Starts a topology with the connection string options `query`.
fn start(harness: &mut Harness, number: u16, query: &str) -> Topology {
    let hosts = hosts(number);
    let mut options = Options::parse(&format!("mongodb://a/?{query}")).unwrap();
    options.seeds.clone_from(&hosts);
    harness.start(&hosts, |builder| builder.options(|own| *own = options))
}

/// L-61, B-32: the shorter of the two timeouts limits a selection, and the error names this
/// timeout. The remaining time of an operation replaces the client's `timeoutMS`.
#[test]
fn selections_wait_for_the_shortest_timeout() {
    let own = (LimitSource::ServerSelectionTimeout, "(serverSelectionTimeoutMS)");
    let call = (LimitSource::Call, "(the timeout of the call)");
    let both = "timeoutMS=50&serverSelectionTimeoutMS=80";
    for (query, limit, millis, (source, text)) in [
        ("timeoutMS=50", None, 50, (LimitSource::Timeout, "(timeoutMS)")),
        ("timeoutMS=50&serverSelectionTimeoutMS=40", None, 40, own),
        ("timeoutMS=40&serverSelectionTimeoutMS=40", None, 40, own),
        ("timeoutMS=0&serverSelectionTimeoutMS=40", None, 40, own),
        ("timeoutMS=x&serverSelectionTimeoutMS=40", None, 40, own),
        (both, Some(70), 70, call),
        (both, Some(30), 30, call),
        (both, Some(90), 80, own),
    ] {
        let mut harness = Harness::new();
        let topology = start(&mut harness, 1, query);
        let selection = harness.begin(async move {
            let criteria = Criteria::write();
            match limit.map(Duration::from_millis) {
                Some(limit) => topology.select_within(&criteria, limit).await,
                None => topology.select(&criteria).await,
            }
        });
        let time = Duration::from_millis(millis);
        harness.pass(time);
        let Err(SelectionError::Timeout(error)) = selection.now_or_never().unwrap() else {
            unreachable!("{query}: a server was found");
        };
        assert_eq!((error.limit_source, error.timeout), (source, time), "{query}");
        assert_eq!(error.waited, time, "{query}");
        let text = format!("gave up after 0.0{} s {text}", millis / 10);
        assert!(error.to_string().contains(&text), "{error}");
    }
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

/// L-6: a selected server reports whether its read preference was overridden.
#[test]
fn a_server_selected_for_a_writing_pipeline_reports_an_overridden_read_preference() {
    let hosts = hosts(2);
    let mut harness = Harness::with_replica_set(&hosts);
    let topology = harness.start(&hosts, |builder| builder);
    let writing = Criteria::read(ReadMode::Secondary).unwrap().with_write_stage();
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
    let secondary = Criteria::read(ReadMode::PrimaryPreferred).unwrap();
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

/// L-45, "Application-Provided Server Selector": ten selections all choose the server with the
/// highest port.
#[test]
fn the_selector_of_the_application_chooses_among_suitable_servers() {
    let hosts = hosts(3);
    let highest = |suitable: &mut Candidates<'_>| {
        let ports = suitable.iter().map(|candidate| candidate.address.port());
        let highest = ports.max().flatten();
        suitable.retain(|candidate| candidate.address.port() == highest);
    };
    let mut harness = Harness::with_replica_set(&hosts);
    let topology = harness.start(&hosts, |builder| builder.selector(highest));
    let criteria = Criteria::read(ReadMode::Nearest).unwrap();
    for _ in 0..10 {
        let selected = topology.try_select(&criteria).unwrap().unwrap();
        assert_eq!(selected.address(), &hosts[2]);
    }
}
