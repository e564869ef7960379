use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use sdam_core::{
    error::{ErrorKind, ServerError, Stage},
    event::{CheckOutFailure, ConnectionClosedReason, EventKind, EventName},
    ids::ServerId,
};

mod shedding;

use super::EventQueue;
use crate::{
    sink::{EventSink, Interest},
    test_support::{
        Recorder, TOPOLOGY, address, at, command, connection, failed, opening, started,
    },
};

fn queue() -> EventQueue {
    EventQueue::new(TOPOLOGY, Interest::SDAM)
}

#[test]
fn sequence_numbers_start_at_1_in_the_order_of_pushes() {
    // J-12, J-41
    let queue = queue();
    queue.push(at(1), EventKind::TopologyOpening);
    queue.push(at(2), opening(1));
    let sink = Recorder::shared();
    assert_eq!(queue.drain_now(&sink), 2);
    let events = sink.events();
    assert_eq!(sink.seqs(), [1, 2]);
    assert_eq!(sink.names(), ["TopologyOpening", "ServerOpening"]);
    assert_eq!(events[1].at, at(2));
    assert!(events.iter().all(|event| event.topology == TOPOLOGY));
    assert_eq!((queue.depth(), queue.high_water()), (0, 2));
}

#[test]
fn events_without_interest_are_neither_built_nor_numbered() {
    let queue = EventQueue::new(TOPOLOGY, EventName::ServerOpening.into());
    queue.push(at(1), EventKind::TopologyOpening);
    queue.push_with(at(1), EventName::TopologyOpening, || unreachable!());
    queue.push_with(at(1), EventName::ServerOpening, || opening(1));
    assert!(queue.wants_any(Interest::SDAM) && !queue.wants_any(Interest::POOLS));
    let sink = Recorder::shared();
    queue.drain_now(&sink);
    assert_eq!(sink.seqs(), [1]);
    assert_eq!(sink.names(), ["ServerOpening"]);
}

#[test]
fn a_queue_without_interest_stays_empty() {
    let queue = EventQueue::new(TOPOLOGY, Interest::NONE);
    for name in EventName::ALL {
        assert!(!queue.wants(*name));
    }
    queue.push(at(1), started(1));
    assert_eq!((queue.depth(), queue.high_water()), (0, 0));
}

#[test]
fn no_event_follows_topology_closed() {
    // J-13
    for interest in [Interest::SDAM, Interest::HEARTBEATS] {
        let queue = EventQueue::new(TOPOLOGY, interest);
        queue.push(at(1), started(1));
        queue.push(at(2), failed(1));
        queue.push(at(3), EventKind::TopologyClosed);
        queue.push(at(4), started(1));
        queue.push(at(4), opening(2));
        assert!(queue.is_closed());
        let sink = Recorder::interested_in(interest);
        queue.drain_now(&sink);
        let expected = [
            "ServerHeartbeatStarted",
            "ServerHeartbeatFailed",
            "TopologyClosed",
        ];
        let delivered = if interest == Interest::SDAM { 3 } else { 2 };
        assert_eq!(sink.names(), expected[..delivered]);
    }
}

#[test]
fn topology_closed_is_delivered_after_the_end_of_started_heartbeats() {
    // J-25, J-31
    let queue = queue();
    queue.push(at(1), started(1));
    queue.push(at(2), started(2));
    queue.push(at(3), EventKind::TopologyClosed);
    let sink = Recorder::shared();
    queue.drain_now(&sink);
    queue.push(at(4), failed(2));
    assert!(!queue.is_closed());
    queue.push(at(5), failed(1));
    assert!(queue.is_closed());
    queue.drain_now(&sink);
    assert_eq!(
        sink.names(),
        [
            "ServerHeartbeatStarted",
            "ServerHeartbeatStarted",
            "ServerHeartbeatFailed",
            "ServerHeartbeatFailed",
            "TopologyClosed"
        ]
    );
    assert_eq!(sink.seqs(), [1, 2, 3, 4, 5]);
    // Times never go back along the queue.
    assert_eq!(sink.events()[4].at, at(5));
}

#[test]
fn topology_closed_is_delivered_after_the_ends_of_operations_under_way() {
    // J-26
    let check = |start: EventKind, end: EventKind| {
        let queue = EventQueue::new(TOPOLOGY, Interest::ALL);
        queue.push(at(1), start.clone());
        queue.push(at(1), start.clone());
        queue.push(at(2), end.clone());
        queue.push(at(3), EventKind::TopologyClosed);
        // The end of the last monitor does not end an operation.
        queue.monitors_ended();
        assert!(!queue.is_closed(), "{start:?}");
        queue.push(at(4), end.clone());
        assert!(queue.is_closed(), "{start:?}");
        let (sink, [start, end]) = (Recorder::shared(), [start, end].map(|kind| kind.name()));
        queue.drain_now(&sink);
        let [start, end] = [start.as_str(), end.as_str()];
        assert_eq!(sink.names(), [start, start, end, end, "TopologyClosed"]);
        assert_eq!(queue.dropped(), 0);
    };
    for (start, end) in operations() {
        check(start, end);
    }
}

#[test]
fn closing_the_queue_counts_the_ends_that_it_does_not_wait_for_as_dropped() {
    // J-26
    let queue = EventQueue::new(TOPOLOGY, Interest::ALL);
    for (start, end) in operations() {
        queue.push(at(1), start.clone());
        queue.push(at(2), end);
        queue.push(at(2), start);
    }
    queue.push(at(3), EventKind::TopologyClosed);
    assert!(queue.close(), "TopologyClosed was held back");
    assert!(!queue.close());
    let dropped = queue.dropped();
    assert_eq!(dropped, operations().len() as u64);
    for (_, end) in operations() {
        queue.push(at(4), end);
    }
    assert_eq!(queue.dropped(), dropped, "counted once");
    let sink = Recorder::shared();
    queue.drain_now(&sink);
    assert_eq!(sink.names().last(), Some(&"TopologyClosed"));
}

#[test]
fn operations_whose_ends_the_sink_does_not_receive_delay_nothing() {
    for (start, end) in operations() {
        let interest = Interest::ALL.without(end.name().into());
        let queue = EventQueue::new(TOPOLOGY, interest);
        queue.push(at(1), start);
        queue.push(at(2), EventKind::TopologyClosed);
        assert!(queue.is_closed(), "{end:?}");
    }
}

/// Returns starts of operations, each with its end.
fn operations() -> Vec<(EventKind, EventKind)> {
    let (server, address) = (ServerId::from_u64(1), address("a"));
    let created = EventKind::ConnectionCreated {
        server,
        address: address.clone(),
        connection: connection(),
    };
    let closed = EventKind::ConnectionClosed {
        server,
        address: address.clone(),
        connection: connection(),
        reason: ConnectionClosedReason::PoolClosed,
        error: None,
    };
    let check_out = EventKind::ConnectionCheckOutStarted {
        server,
        address: address.clone(),
    };
    let checked_out = EventKind::ConnectionCheckedOut {
        server,
        address: address.clone(),
        connection: connection(),
        duration: Duration::ZERO,
    };
    let check_out_failed = EventKind::ConnectionCheckOutFailed {
        server,
        address,
        reason: CheckOutFailure::PoolClosed,
        failure: "closed".into(),
        duration: Duration::ZERO,
    };
    let (command, document) = command(&bson::doc! { "ping": 1 });
    let error = ServerError::new(ErrorKind::Network, Stage::Operation, "broken").shared();
    vec![
        (created, closed),
        (check_out.clone(), checked_out),
        (check_out, check_out_failed),
        (
            command.started(&document),
            command.succeeded(Duration::ZERO, &document),
        ),
        (
            command.started(&document),
            command.failed(Duration::ZERO, error),
        ),
    ]
}

#[test]
fn the_high_water_mark_is_kept_when_the_queue_is_drained() {
    let queue = queue();
    for _ in 0..EventQueue::WARN_DEPTH {
        queue.push(at(1), opening(1));
    }
    queue.drain_now(&Recorder::shared());
    queue.push(at(2), opening(1));
    assert_eq!(queue.depth(), 1);
    assert_eq!(queue.high_water(), EventQueue::WARN_DEPTH);
}

#[test]
fn bursts_from_many_threads_arrive_complete_and_in_order() {
    // J-12
    const THREADS: u64 = 4;
    const EACH: u64 = 5_000;
    let queue = Arc::new(queue());
    let sink = Recorder::shared();
    let start = Barrier::new(THREADS as usize + 1);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (queue, start) = (&queue, &start);
            scope.spawn(move || {
                start.wait();
                for count in 0..EACH {
                    queue.push(at(count), opening(thread * EACH + count));
                }
            });
        }
        // Drains while the other threads push, so events cross between the two buffers.
        start.wait();
        let mut drained = 0;
        while drained < THREADS * EACH {
            drained += queue.drain_now(&sink);
            thread::yield_now();
        }
    });
    let events = sink.events();
    assert_eq!(events.len() as u64, THREADS * EACH);
    assert!(sink.seqs().into_iter().eq(1..=THREADS * EACH));
    let pushed: Vec<u64> = events
        .iter()
        .map(|event| match event.kind {
            EventKind::ServerOpening { server, .. } => server.as_u64(),
            _ => unreachable!(),
        })
        .collect();
    for thread in 0..THREADS {
        let own = thread * EACH..(thread + 1) * EACH;
        let arrived = pushed.iter().copied().filter(|push| own.contains(push));
        assert!(arrived.eq(own.clone()), "thread {thread}");
    }
    assert!(events.is_sorted_by_key(|event| event.at));
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
