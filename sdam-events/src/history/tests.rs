use std::sync::Arc;

use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::EventKind,
    ids::{Generation, ServerId},
    pool::PoolClear,
    server::{ServerDescription, ServerType},
    topology::{DepartureReason, TopologyDescription, TopologyType},
};

use super::{Change, History};
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
fn a_history_is_displayed_as_one_line_per_transition_with_its_cause() {
    let text = record(100, life()).to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    assert_eq!(
        lines,
        [
            "0.000 s  #1     topology 070707070707070707070707 opened (opened by the program)",
            "0.001 s  #2     topology Unknown (opened by the program)",
            "0.002 s  #3     host1:27017 added (opened by the program)",
            "0.003 s  #4     host2:27017 added (opened by the program)",
            "0.005 s  #5     host1:27017 Unknown -> RSPrimary (reply of host1:27017)",
            "0.006 s  #6     host2:27017 removed: it is not watched any more: the topology was \
             closed (reply of host1:27017)",
            "0.007 s  #7     host3:27017 added (reply of host1:27017)",
            "0.008 s  #8     topology Unknown -> ReplicaSetWithPrimary, primary host1:27017 \
             (reply of host1:27017)",
            "0.009 s  #9     host1:27017 Unknown, other details (host1:27017: network error at \
             operation: reset)",
            "0.010 s  #10    topology ReplicaSetWithPrimary -> ReplicaSetNoPrimary (host1:27017: \
             network error at operation: reset)",
            "0.011 s  #11    host1:27017 pool cleared, generation 1 (host1:27017: network error \
             at operation: reset)",
            "0.012 s  #12    host4:27017 added (list of hosts)",
            "0.013 s  #13    topology ReplicaSetNoPrimary (list of hosts)",
            "0.014 s  #14    host1:27017 removed: it is not watched any more: the topology was \
             closed (closed by the program)",
            "0.015 s  #15    host3:27017 removed: it is not watched any more: the topology was \
             closed (closed by the program)",
            "0.016 s  #16    topology ReplicaSetNoPrimary -> Unknown (closed by the program)",
            "0.017 s  #17    topology closed (closed by the program)",
        ]
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
