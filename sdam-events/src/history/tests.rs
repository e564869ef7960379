use std::sync::Arc;

use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::EventKind,
    ids::{Generation, ServerId},
    pool::PoolClear,
    server::{ServerDescription, ServerType},
    topology::{DepartureReason, TopologyDescription, TopologyType},
};

use super::{Cause, Change, History};
use crate::{
    queue::EventQueue,
    sink::EventSink,
    test_support::{
        TOPOLOGY, address, at, description, opening, pool_cleared, started, topology_changed,
    },
};

fn changed(new: ServerDescription) -> EventKind {
    EventKind::ServerDescriptionChanged {
        previous: Arc::new(description(new.id.as_u64(), ServerType::Unknown)),
        new: Arc::new(new),
    }
}

fn closed(server: u64) -> EventKind {
    EventKind::ServerClosed {
        server: ServerId::from_u64(server),
        address: address(&format!("host{server}")),
        reason: DepartureReason::Closed,
    }
}

fn record(capacity: usize, events: Vec<EventKind>) -> History {
    let history = History::new(capacity);
    let queue = EventQueue::new(TOPOLOGY, history.interest());
    for (millis, kind) in (0..).zip(events) {
        queue.push(at(millis), kind);
    }
    queue.drain_now(&history);
    assert_eq!(queue.sink_failed(), None);
    history
}

fn error() -> Error {
    Error::new(ErrorKind::Network, Stage::Operation, "reset")
}

/// Returns the events of a topology: two seeds, a reply that replaces one of them, an error, a
/// change of the SRV record, and `TopologyClosed`.
fn life() -> Vec<EventKind> {
    let empty = TopologyDescription::default();
    let unknown = TopologyDescription::new(TopologyType::Unknown, []);
    let with = TopologyDescription::new(
        TopologyType::ReplicaSetWithPrimary,
        [description(1, ServerType::RsPrimary)],
    );
    let without = TopologyDescription::new(TopologyType::ReplicaSetNoPrimary, []);
    let mut broken = description(1, ServerType::Unknown);
    broken.error = Some(error());
    vec![
        EventKind::TopologyOpening,
        topology_changed(&empty, &unknown),
        opening(1),
        opening(2),
        started(1),
        changed(description(1, ServerType::RsPrimary)),
        closed(2),
        opening(3),
        topology_changed(&unknown, &with),
        changed(broken),
        topology_changed(&with, &without),
        pool_cleared(PoolClear::new(Generation::from_u64(1), error())),
        opening(4),
        topology_changed(&without, &without),
        closed(1),
        closed(3),
        topology_changed(&without, &empty),
        EventKind::TopologyClosed,
    ]
}

#[test]
fn every_transition_has_its_cause() {
    let history = record(100, life());
    let causes: Vec<Cause> =
        history.transitions().into_iter().map(|transition| transition.cause).collect();
    let host = address("host1");
    let reply = || Cause::Reply(host.clone());
    let failure = || Cause::Error(host.clone(), error());
    assert_eq!(
        causes,
        [
            Cause::Open,
            Cause::Open,
            Cause::Open,
            Cause::Open,
            reply(),
            reply(),
            reply(),
            reply(),
            failure(),
            failure(),
            failure(),
            Cause::Hosts,
            Cause::Hosts,
            Cause::Close,
            Cause::Close,
            Cause::Close,
            Cause::Close,
        ]
    );
}

#[test]
fn a_history_is_displayed_as_one_line_per_transition() {
    let text = record(100, life()).to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    assert_eq!(lines.len(), 17);
    assert_eq!(lines[4], "0.005 s  #5     host1:27017 Unknown -> RSPrimary (reply of host1:27017)");
    assert_eq!(
        lines[7],
        "0.008 s  #8     topology Unknown -> ReplicaSetWithPrimary, primary host1:27017 (reply of \
         host1:27017)"
    );
    assert_eq!(
        lines[10],
        "0.011 s  #11    host1:27017 pool cleared, generation 1 (host1:27017: network error at \
         operation: reset)"
    );
}

#[test]
fn only_the_last_transitions_are_kept() {
    let history = record(2, life());
    let changes: Vec<Change> =
        history.transitions().into_iter().map(|transition| transition.change).collect();
    let last = Change::Topology {
        old: TopologyType::ReplicaSetNoPrimary,
        new: TopologyType::Unknown,
        primary: None,
    };
    assert_eq!(changes, [last, Change::Closed]);
    assert_eq!(history.forgotten(), 15);
    assert!(history.to_string().starts_with("(15 earlier"));
}
