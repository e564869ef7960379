use std::{sync::Arc, time::Duration};

use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::{CheckOutFailure, ConnectionClosedReason, EventKind, EventName},
};

mod shedding;

use super::{EventPublisher, EventQueue};
use crate::{
    sink::{EventSink, Interest},
    test_support::{
        Recorder, TOPOLOGY, at, check_out_failed, check_out_started, checked_out, closed, command,
        created, failed, opening, started,
    },
};

fn queue() -> EventQueue {
    EventQueue::new(TOPOLOGY, Interest::SDAM)
}

#[test]
fn events_without_interest_are_neither_built_nor_numbered() {
    let queue = EventQueue::new(TOPOLOGY, EventName::ServerOpening.into());
    queue.push(at(1), EventKind::TopologyOpening);
    queue.push_with(at(1), EventName::TopologyOpening, || unreachable!());
    queue.push_with(at(1), EventName::ServerOpening, || opening(1));
    assert!(queue.wants_any(Interest::SDAM) && !queue.wants_any(Interest::POOLS));
    let publish: &dyn EventPublisher = &queue;
    assert!(publish.wants(EventName::ServerOpening));
    assert!(!publish.wants(EventName::TopologyOpening));
    let pending = queue.pending();
    assert_eq!((pending.depth(), pending.bytes()), (1, queue.bytes()));
    let text = format!("{pending:?}");
    assert!(text.contains("depth: 1") && !text.contains("ServerOpening"), "{text}");
    assert!(pending.bytes() > 0);
    let sink = Recorder::shared();
    assert_eq!(pending.deliver_now(&sink), 1);
    assert_eq!(pending.deliver_now(&sink), 0);
    assert_eq!(sink.seqs(), [1]);
    assert_eq!(sink.names(), ["ServerOpening"]);
}

#[test]
fn the_topology_ends_after_operations_under_way_whose_ends_the_sink_receives() {
    for (start, end) in operations() {
        let queue = EventQueue::new(TOPOLOGY, Interest::ALL);
        queue.push(at(1), start.clone());
        queue.push(at(2), EventKind::TopologyClosed);
        assert!(!queue.is_closed(), "{end:?}");
        queue.push(at(3), end.clone());
        assert!(queue.is_closed(), "{end:?}");
        let interest = Interest::ALL.without(end.name().into());
        let queue = EventQueue::new(TOPOLOGY, interest);
        queue.push(at(1), start);
        queue.push(at(2), EventKind::TopologyClosed);
        assert!(queue.is_closed(), "{end:?}");
    }
}

/// Returns the start events of a heartbeat and of operations, each with the matching end event.
fn operations() -> Vec<(EventKind, EventKind)> {
    let (command, document) = command(&bson::doc! { "ping": 1 });
    let error = Error::new(ErrorKind::Network, Stage::Operation, "broken");
    vec![
        (started(1), failed(1)),
        (created(), closed(ConnectionClosedReason::PoolClosed, None)),
        (check_out_started(), checked_out(Duration::ZERO)),
        (check_out_started(), check_out_failed(CheckOutFailure::PoolClosed, Duration::ZERO)),
        (command.started(&document), command.succeeded(Duration::ZERO, &document)),
        (command.started(&document), command.failed(Duration::ZERO, error)),
    ]
}

#[test]
fn the_high_water_mark_is_kept_when_the_queue_is_drained() {
    let queue = queue();
    for _ in 0..3 {
        queue.push(at(1), opening(1));
    }
    queue.drain_now(&Recorder::shared());
    queue.push(at(2), opening(1));
    assert_eq!(queue.depth(), 1);
    assert_eq!(queue.high_water(), 3);
}

#[test]
fn a_sink_that_pushes_and_drains_is_not_called_recursively() {
    #[derive(Debug)]
    struct Echo(Arc<EventQueue>, Arc<Recorder>);
    impl EventSink for Echo {
        fn emit(&self, event: &sdam_core::event::Event) {
            self.1.emit(event);
            if event.seq < 3 {
                self.0.push(event.at, opening(event.seq + 1));
                assert_eq!(self.0.drain_now(self), 0);
            }
        }
    }
    let queue = Arc::new(queue());
    let recorder = Recorder::shared();
    queue.push(at(1), opening(1));
    let echo = Echo(Arc::clone(&queue), Arc::clone(&recorder));
    assert_eq!(queue.drain_now(&echo), 3);
    assert_eq!(recorder.seqs(), [1, 2, 3]);
}
