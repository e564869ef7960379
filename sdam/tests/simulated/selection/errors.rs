//! The errors and the events of selections.

use std::error::Error;

use sdam::select::{Diagnosis, SelectionTimeout};

use super::*;

/// Returns the error from a selection with a timeout of two seconds.
fn fail(
    harness: &mut Harness,
    hosts: &[ServerAddress],
    criteria: Criteria,
) -> Box<SelectionTimeout> {
    let topology = harness.start(hosts, |builder| builder);
    fail_on(harness, &topology, criteria)
}

fn fail_on(
    harness: &mut Harness,
    topology: &Topology,
    criteria: Criteria,
) -> Box<SelectionTimeout> {
    let topology = topology.clone();
    let selection = harness
        .begin(async move { topology.select_within(&criteria, Duration::from_secs(2)).await });
    harness.settle();
    harness.pass(Duration::from_secs(2));
    match selection.now_or_never().unwrap() {
        Err(SelectionError::Timeout(error)) => error,
        other => unreachable!("{other:?}"),
    }
}

/// L-81, L-82, L-83: the error message contains the errors of all servers, the source of the limit,
/// and the remedy.
#[test]
fn servers_that_are_down_are_named_with_a_remedy() {
    let (mut harness, hosts) = (Harness::new(), hosts(2));
    for host in &hosts {
        harness.servers.set(host, Server::refusing("closed"));
    }
    let error = fail(&mut harness, &hosts, Criteria::write());
    assert_eq!(
        error.to_string(),
        "network error at connect: closed; gave up after 2 s (the timeout of the call): no server \
         accepts connections: db.lan:20000, db.lan:20001; check that the servers run, that host \
         and port are right, and that the servers listen on addresses other than localhost \
         (net.bindIp)"
    );
    let table = "write operation on Unknown:
  no server has been identified yet
  db.lan:20000 (Unknown) is not available: network error at connect: closed
    first failed 2 s ago, last 0.5 s ago
  db.lan:20001 (Unknown) is not available: network error at connect: closed
    first failed 2 s ago, last 0.5 s ago
probably: no server accepts connections";
    let text = format!("{error:#}");
    assert!(text.contains(table), "{text}");
    assert_eq!(error.limit_source, LimitSource::Call);
    assert_eq!(error.timeout, Duration::from_secs(2));
    assert_eq!(error.description.servers().len(), 2);
    assert!(matches!(error.diagnoses[..], [Diagnosis::NothingReachable { timed_out: false, .. }]));
}

/// D-6: the loss of the last server is published, and the error explains it.
#[test]
fn the_error_for_an_empty_topology_gives_the_reason() {
    let (mut harness, hosts) = (Harness::new(), hosts(1));
    harness.servers.set(&hosts[0], Server::member(&hosts, true));
    let (sink, mut events) = unbounded();
    let sink = sink.interested_in(EventName::TopologyEmptied.into());
    let topology = harness.start(&hosts, |builder| {
        builder.sink(sink).options(|options| options.replica_set = Some("wrong".into()))
    });
    assert!(topology.snapshot().description().servers().is_empty());
    assert_eq!(drain(&mut events).len(), 1);
    let error = fail_on(&mut harness, &topology, Criteria::write());
    let reason = "db.lan:20000 belongs to the set `rs`, not `wrong`: use replicaSet=rs";
    assert_eq!(
        error.to_string(),
        format!(
            "No servers are suitable for write operation; gave up after 2 s (the timeout of the \
             call): {reason}; if replicaSet is right, address members of that set instead"
        )
    );
    assert!(format!("{error:#}").contains(&format!("\nprobably: {reason}\n  remedy: if ")));
    assert!(error.description.to_string().contains(reason));
}

/// The first and the last error of an outage are kept until the server is back.
#[test]
fn the_error_contains_the_first_and_the_last_error_of_each_server() {
    let hosts = hosts(3);
    let mut harness = Harness::with_replica_set(&hosts);
    let topology = harness.start(&hosts, |builder| builder);
    assert!(topology.try_select(&Criteria::write()).unwrap().is_some());
    let set = |harness: &Harness, host: usize, words: &str| {
        let answer = Server::refusing(words);
        harness.servers.set(&hosts[host], answer);
    };
    set(&harness, 0, "out of memory");
    set(&harness, 1, "shut down");
    // The next checks detect the outage on the open connections, and reconnect at once.
    harness.pass(Duration::from_secs(10));
    set(&harness, 0, "no route");
    let error = fail_on(&mut harness, &topology, Criteria::write());
    assert_eq!(
        format!("{error:#}"),
        "No servers are suitable for write operation; gave up after 2 s (the timeout of the call)
write operation on ReplicaSetNoPrimary:
  db.lan:20000 (Unknown) is not available: network error at connect: no route
    first error, 2 s ago: network error at hello: out of memory
    last error, 0.5 s ago: network error at connect: no route
  db.lan:20001 (Unknown) is not available: network error at connect: shut down
    first error, 2 s ago: network error at hello: shut down
    last error, 0.5 s ago: network error at connect: shut down
  db.lan:20002 (RSSecondary) is not a primary
probably: named as members by the replica set: db.lan:20000, db.lan:20001 cannot be reached from \
         here
  remedy: check that these members run, and that the addresses in the replica set's \
         configuration can be reached from here and not only from one member to another; if they \
         cannot, use address translation
probably: the replica set has no primary; 1 of 3 members can be reached
  remedy: wait for the election, which needs a majority of the voting members: check that enough \
         of them run and reach each other; reads can go to secondaries meanwhile \
         (readPreference=primaryPreferred)"
    );
    let at = |millis: u64| Some(Instant::from_millis(1000 + millis));
    let times = |index: usize| {
        let failures = topology.snapshot().servers().nth(index).unwrap().failures();
        [failures.first, failures.last].map(|failure| failure.map(|failure| failure.at))
    };
    assert_eq!(times(0), [at(10_000), at(11_500)]);
    assert_eq!(times(2), [None, None]);

    harness.servers.set(&hosts[0], Server::member(&hosts, true));
    harness.pass(Duration::from_secs(10));
    assert!(topology.try_select(&Criteria::write()).unwrap().is_some());
    assert_eq!(times(0), [None, at(11_500)], "the server is available again");
}

/// A failed selection is rare, so its error must not enlarge every selection result.
#[test]
fn selection_errors_take_at_most_64_bytes() {
    assert!(size_of::<SelectionError>() <= 64);
}

#[test]
fn errors_that_are_returned_from_main_print_their_text() {
    let check = |error: &dyn Error, part: &str| {
        let text = error.to_string();
        assert!(text.contains(part), "{text}");
        assert_eq!(format!("{error:?}"), text);
        assert_eq!(format!("{error:#?}"), format!("{error:#}"));
    };
    let (mut harness, hosts) = (Harness::new(), hosts(2));
    let timeout = fail(&mut harness, &hosts, Criteria::write());
    check(&SelectionError::Timeout(timeout), "raise the time limit of the selection");
    check(&SelectionError::Closed, "start a new one");
    check(&SelectionError::RuntimeShutDown, "keep the runtime");
    let full = SelectionError::TooManyWaiters { limit: 2 };
    check(&full, "raise `Options::max_waiters`");
    let tagged = ReadPreference::default().with_tag_sets(vec![TagSet::from_iter([("a", "b")])]);
    let contradiction = Criteria::read(tagged).unwrap_err();
    check(&contradiction, "choose another `readPreference`");
    check(&SelectionError::InvalidCriteria(contradiction), "choose another `readPreference`");
    let library = sdam::options::DriverInfo::new("a|b");
    let topology = harness.start(&hosts, |builder| builder);
    let metadata = topology.append_metadata(library).unwrap_err();
    check(&metadata, "use another character");
}

/// Returns the events of `interest` that are published while `select` runs on a replica set.
fn events_during(interest: Interest, select: impl FnOnce(&Topology)) -> Vec<EventKind> {
    let hosts = hosts(3);
    let mut harness = Harness::with_replica_set(&hosts);
    let (sink, mut events) = unbounded();
    let sink = sink.interested_in(interest);
    let topology = harness.start(&hosts, |builder| builder.sink(sink));
    select(&topology);
    harness.settle();
    let events = drain(&mut events).into_iter();
    events.map(|event| event.kind).collect()
}

#[test]
fn a_sink_receives_only_the_selection_events_of_its_interest() {
    // Every started selection succeeds or fails exactly once (K-7).
    use EventName::{
        ServerSelectionFailed as Failed, ServerSelectionStarted as Started,
        ServerSelectionSucceeded as Succeeded, ServerSelectionWaiting as Waiting,
    };
    let write = Criteria::write();
    // These criteria are invalid, because their limit is below the minimum staleness limit.
    let limited = ReadPreference::new(ReadMode::Secondary);
    let limited = limited.with_max_staleness(Duration::from_secs(1));
    let invalid = Criteria::read(limited).unwrap();
    for (interest, criteria, expected) in [
        (&[Started, Waiting, Succeeded][..], &write, &[Started, Succeeded][..]),
        (&[Succeeded], &write, &[Succeeded]),
        (&[Waiting, Failed], &write, &[]),
        (&[Failed], &invalid, &[Failed]),
        (&[Started, Failed], &invalid, &[Started, Failed]),
    ] {
        let events = events_during(Interest::of(interest), |topology| {
            let _ = topology.select(criteria).now_or_never().unwrap();
        });
        let names: Vec<EventName> = events.iter().map(EventKind::name).collect();
        assert_eq!(names, expected, "{events:#?}");
    }
}

#[test]
fn a_dropped_selection_publishes_a_failure() {
    let tagged = ReadPreference::new(ReadMode::Secondary);
    let tagged = tagged.with_tag_sets(vec![[("tag", "of no member")].into_iter().collect()]);
    let unmatched = Criteria::read(tagged).unwrap();
    let events = events_during(Interest::SELECTION, |topology| {
        assert!(topology.select(&unmatched).now_or_never().is_none());
    });
    let Some(EventKind::ServerSelectionFailed { reason, .. }) = events.last() else {
        unreachable!("{events:?}");
    };
    assert_eq!(*reason, SelectionFailure::Cancelled);
}
