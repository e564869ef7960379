//! The events of server selections.

use std::time::Duration;

use futures::FutureExt;
use sdam::{Criteria, EventKind, Interest, ReadMode, ReadPreference, Topology, events::EventName};
use sdam_core::event::SelectionFailure;
use sdam_events::channel::unbounded;

use super::harness::{Harness, hosts};
use crate::drain;

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

fn secondary(max_staleness: u64) -> Criteria {
    let preference = ReadPreference::new(ReadMode::Secondary)
        .with_max_staleness(Duration::from_secs(max_staleness));
    Criteria::read(preference).unwrap()
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
    let invalid = secondary(1);
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
