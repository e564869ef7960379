//! The events of server selections, and the absence of cost and events without a sink.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{task::Context, time::Duration};

use futures::{
    executor::{block_on, block_on_stream},
    task::noop_waker_ref,
};
use sdam::{
    Criteria, EventKind, EventName, Interest, ReadMode, ReadPreference, Snapshot, Topology,
};
use sdam_core::event::SelectionFailure;
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
