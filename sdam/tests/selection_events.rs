//! The events of server selections, and the absence of cost and events without a sink.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{sync::Arc, task::Context, time::Duration};

use futures::{
    executor::{block_on, block_on_stream},
    task::noop_waker_ref,
};
use sdam::{
    Candidates, Criteria, EventKind, EventName, Interest, ReadMode, ReadPreference, SelectionError,
    Snapshot, Topology,
};
use sdam_core::{event::SelectionFailure, read_preference::TagSet};
use sdam_events::channel::unbounded;
use sdam_sim::serve::ReplicaSet;

/// A nonexistent deployment.
const UNREACHABLE: &str = "mongodb://127.0.0.1:1";

/// Returns the events of `interest` published during `select`.
fn events_during(uri: &str, interest: Interest, select: impl FnOnce(&Topology)) -> Vec<EventKind> {
    let host = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (sink, events) = unbounded();
    let topology = Topology::builder(uri)
        .unwrap()
        .sink(sink.interested_in(interest))
        .start(sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap())
        .unwrap();
    select(&topology);
    block_on(topology.close());
    block_on_stream(events).map(|event| event.kind).collect()
}

fn check(events: &[EventKind], expected: &[EventName]) {
    let names: Vec<EventName> = events.iter().map(EventKind::name).collect();
    assert_eq!(names, expected, "{events:#?}");
}

fn secondary(max_staleness: u64) -> Criteria {
    let preference = ReadPreference::new(ReadMode::Secondary)
        .with_max_staleness(Duration::from_secs(max_staleness));
    Criteria::read(preference).unwrap()
}

#[test]
fn a_sink_receives_only_the_selection_events_of_its_interest() {
    // K-7
    let set = ReplicaSet::start(3).unwrap();
    let check = |interest: &[EventName], criteria: Criteria, expected: &[EventName]| {
        let events = events_during(set.uri(), Interest::of(interest), |topology| {
            let primary = |snapshot: &Snapshot| snapshot.description().primary().cloned();
            block_on(topology.wait_for(primary, Duration::from_secs(30))).unwrap();
            let _ = block_on(topology.select(&criteria));
        });
        check(&events, expected);
    };
    let [started, waiting, succeeded, failed] = [
        EventName::ServerSelectionStarted,
        EventName::ServerSelectionWaiting,
        EventName::ServerSelectionSucceeded,
        EventName::ServerSelectionFailed,
    ];
    check(
        &[started, waiting, succeeded],
        Criteria::write(),
        &[started, succeeded],
    );
    check(&[succeeded], Criteria::write(), &[succeeded]);
    check(&[waiting], Criteria::write(), &[]);
    check(&[failed], Criteria::write(), &[]);
    // Replica sets refuse limits below the minimum staleness limit.
    check(&[failed], secondary(1), &[failed]);
    check(&[started, failed], secondary(1), &[started, failed]);
}

#[test]
fn a_selection_without_a_suitable_server_publishes_waiting_and_failed_once() {
    // K-8
    let uri = format!("{UNREACHABLE}/?serverSelectionTimeoutMS=1");
    let events = events_during(&uri, Interest::SELECTION, |topology| {
        let criteria = Criteria::write()
            .with_operation_name("insert")
            .with_operation_id(7);
        assert!(block_on(topology.select(&criteria)).is_err());
    });
    check(
        &events,
        &[
            EventName::ServerSelectionStarted,
            EventName::ServerSelectionWaiting,
            EventName::ServerSelectionFailed,
        ],
    );
    let EventKind::ServerSelectionFailed {
        selection,
        description,
        reason,
        failure,
        ..
    } = &events[2]
    else {
        unreachable!();
    };
    assert_eq!(*reason, SelectionFailure::Timeout);
    assert_eq!(selection.operation.as_deref(), Some("insert"));
    assert_eq!(selection.operation_id, Some(7));
    // The event contains the selector and the servers separately.
    assert_eq!(&*selection.selector, "write operation");
    assert!(
        failure.starts_with("no server was suitable; gave up after "),
        "{failure}"
    );
    assert!(!failure.contains(&*selection.selector), "{failure}");
    for server in description.servers() {
        let address = server.address.as_str();
        assert!(!failure.contains(address), "{failure}");
    }
    assert!(!description.servers().is_empty());
}

#[test]
#[expect(deprecated, reason = "servers before 8.0 accept hedged reads")]
fn selection_events_contain_the_complete_selector() {
    // K-7: the text also mentions criteria without restrictions and the custom selector. K-8: a
    // selection with zero time also reports that it is waiting.
    let uri = format!("{UNREACHABLE}/?serverSelectionTimeoutMS=0");
    let events = events_during(&uri, Interest::SELECTION, |topology| {
        let tags = vec![TagSet::default(), TagSet::from_iter([("dc", "ny")])];
        let preference = ReadPreference::new(ReadMode::Nearest)
            .with_tag_sets(tags)
            .with_hedge(true);
        let criteria = Criteria::read(preference)
            .unwrap()
            .with_selector(Arc::new(|_: &mut Candidates<'_>| {}));
        assert!(block_on(topology.select(&criteria)).is_err());
    });
    check(
        &events,
        &[
            EventName::ServerSelectionStarted,
            EventName::ServerSelectionWaiting,
            EventName::ServerSelectionFailed,
        ],
    );
    for event in &events {
        let (EventKind::ServerSelectionStarted { selection, .. }
        | EventKind::ServerSelectionWaiting { selection, .. }
        | EventKind::ServerSelectionFailed { selection, .. }) = event
        else {
            unreachable!("{event:?}");
        };
        assert_eq!(
            &*selection.selector,
            "read preference { mode: nearest, tags: [{}, {dc: ny}], hedge: { enabled: true } }, \
             custom selector of the operation"
        );
    }
}

#[test]
fn a_dropped_selection_publishes_a_failure() {
    let events = events_during(UNREACHABLE, Interest::SELECTION, |topology| {
        let criteria = Criteria::write();
        let mut selection = Box::pin(topology.select(&criteria));
        let mut cx = Context::from_waker(noop_waker_ref());
        assert!(selection.as_mut().poll(&mut cx).is_pending());
    });
    let Some(EventKind::ServerSelectionFailed { reason, .. }) = events.last() else {
        unreachable!("{events:?}");
    };
    assert_eq!(*reason, SelectionFailure::Cancelled);
}

#[test]
fn closing_ends_every_selection_even_if_its_future_is_not_polled() {
    // K-7, K-8, J-13
    const WAITERS: usize = 3;
    let host = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (sink, events) = unbounded();
    let topology = Topology::builder(UNREACHABLE)
        .unwrap()
        .sink(sink.interested_in(Interest::ALL))
        .start(sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap())
        .unwrap();
    let criteria = Criteria::write();
    let mut cx = Context::from_waker(noop_waker_ref());
    let mut selections: Vec<_> = (0..=WAITERS)
        .map(|_| Box::pin(topology.select(&criteria)))
        .collect();
    for selection in &mut selections {
        assert!(selection.as_mut().poll(&mut cx).is_pending());
    }
    // One selection is dropped; the others are kept without being polled.
    drop(selections.pop());
    block_on(topology.close());
    for mut selection in selections {
        let outcome = block_on(selection.as_mut());
        assert!(
            matches!(outcome, Err(SelectionError::Closed)),
            "{outcome:?}"
        );
    }
    assert!(block_on(topology.select(&criteria)).is_err());
    let events: Vec<EventKind> = block_on_stream(events).map(|event| event.kind).collect();
    assert_eq!(events.last(), Some(&EventKind::TopologyClosed));
    let reasons: Vec<SelectionFailure> = events
        .iter()
        .filter_map(|event| match event {
            EventKind::ServerSelectionFailed { reason, .. } => Some(*reason),
            _ => None,
        })
        .collect();
    let [cancelled, closed] = [SelectionFailure::Cancelled, SelectionFailure::Closed];
    assert_eq!(reasons, [cancelled, closed, closed, closed]);
    let started = events
        .iter()
        .filter(|event| event.name() == EventName::ServerSelectionStarted);
    assert_eq!(started.count(), reasons.len());
}
