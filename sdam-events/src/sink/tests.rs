use std::sync::Arc;

use sdam_core::event::{Event, EventKind, EventName};

use super::{EventSink, Fanout, Interest, sink_fn};
use crate::{
    queue::EventQueue,
    test_support::{Recorder, TOPOLOGY, at, failed, opening, started},
};

fn fanout<const N: usize>(sinks: [Arc<dyn EventSink>; N]) -> Fanout {
    sinks.into_iter().collect()
}

/// Sends the heartbeats of two servers and an opening event through `sink`.
fn send(sink: &dyn EventSink) {
    let queue = EventQueue::new(TOPOLOGY, sink.interest());
    queue.push(at(1), EventKind::TopologyOpening);
    for server in [1, 2] {
        queue.push(at(2), started(server));
        queue.push(at(3), failed(server));
    }
    queue.drain_now(sink);
    assert_eq!(queue.sink_failed(), None);
}

#[test]
fn a_fanout_passes_each_sink_the_events_of_its_interest_in_order() {
    let all = Recorder::shared();
    let some = Recorder::interested_in(EventName::TopologyOpening.into());
    let fanout = fanout([Arc::new(all.clone()), Arc::new(some.clone())]);
    assert_eq!(fanout.interest(), Interest::SDAM);
    send(&fanout);
    assert_eq!(all.seqs(), [1, 2, 3, 4, 5]);
    assert_eq!(some.names(), ["TopologyOpening"]);
    assert!(Fanout::default().interest().is_empty());
}

#[test]
fn a_fanout_disables_only_the_sink_that_panicked() {
    let before = Recorder::shared();
    let after = Recorder::shared();
    let calls = Recorder::shared();
    let seen = calls.clone();
    let faulty = sink_fn(move |event| {
        seen.emit(event);
        assert_ne!(event.seq, 2, "the second event");
    });
    send(&fanout([Arc::new(before.clone()), Arc::new(faulty), Arc::new(after.clone())]));
    assert_eq!(before.seqs(), [1, 2, 3, 4, 5]);
    assert_eq!(calls.seqs(), [1, 2]);
    assert_eq!(after.seqs(), [1, 2, 3, 4, 5]);
}

#[test]
fn a_closure_receives_the_events_of_its_interest() {
    #[derive(Debug)]
    struct Plain;
    impl EventSink for Plain {
        fn emit(&self, _: &Event) {}
    }
    let recorder = Recorder::shared();
    let seen = recorder.clone();
    let sink = sink_fn(move |event| seen.emit(event));
    assert_eq!((sink.interest(), Arc::new(Plain).interest()), (Interest::SDAM, Interest::SDAM));
    let sink = sink.interested_in(EventName::ServerHeartbeatFailed.into());
    send(&sink);
    assert_eq!(recorder.seqs(), [1, 2]);
    // A direct call of a sink is not filtered: the caller has to respect the sink's interest.
    let queue = EventQueue::new(TOPOLOGY, Interest::ALL);
    queue.push(at(1), opening(1));
    queue.drain_now(&sink);
    assert_eq!(recorder.seqs(), [1, 2, 1]);
}

#[test]
fn the_named_sets_partition_all_names() {
    let sets = [
        Interest::DESCRIPTIONS,
        Interest::HEARTBEATS,
        Interest::WARNINGS,
        Interest::POOLS,
        Interest::COMMANDS,
        Interest::SELECTION,
        Interest::INPUTS,
    ];
    for &name in EventName::ALL {
        let homes = sets.iter().filter(|set| set.contains(name)).count();
        assert_eq!(homes, 1, "{}", name.as_str());
        assert_eq!(Interest::ALL.contains(name), name != EventName::Input);
        assert!(!Interest::NONE.contains(name));
    }
}

#[test]
fn set_operations_agree_with_membership() {
    let opening = Interest::from(EventName::TopologyOpening);
    let checks = Interest::HEARTBEATS;
    assert_eq!(opening.union(checks).without(checks), opening, "{opening:?}");
    assert_eq!(checks | EventName::TopologyOpening, opening.union(checks));
    assert!(opening.intersection(checks).is_empty());
    assert!(Interest::SDAM.contains_all(checks));
    assert!(!checks.contains_all(Interest::SDAM));
    assert_eq!(checks.names().collect::<Interest>(), checks);
    assert_eq!(format!("{opening:?}"), r#"{"TopologyOpening"}"#);
}
