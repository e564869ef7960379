//! Models of the state shared by threads, run through every interleaving by `cargo xtask loom`.

use std::{panic::resume_unwind, sync::Arc};

use futures::StreamExt as _;
use loom::{future::block_on, sync::atomic::AtomicBool, thread};
use sdam_core::event::{Event, EventKind, EventName};

use crate::{
    channel,
    dispatch::Dispatcher,
    queue::EventQueue,
    sink::{EventSink, Interest, sink_fn},
    sync::{atomic::Ordering, explore},
    test_support::{Recorder, TOPOLOGY, at, failed, opening, started},
};

/// A sink that records events and fails on concurrent deliveries.
#[derive(Debug)]
struct Exclusive {
    recorder: Recorder,
    busy: AtomicBool,
}

impl Exclusive {
    fn shared() -> Arc<Self> {
        Arc::new(Self { recorder: Recorder::default(), busy: AtomicBool::new(false) })
    }

    /// Asserts that `count` events were delivered, in order and exactly once.
    fn assert_delivered(&self, count: u64) {
        assert_eq!(self.recorder.seqs(), Vec::from_iter(1..=count));
    }
}

impl EventSink for Exclusive {
    fn emit(&self, event: &Event) {
        assert!(
            !self.busy.swap(true, Ordering::SeqCst),
            "two threads deliver events at the same time"
        );
        self.recorder.emit(event);
        self.busy.store(false, Ordering::SeqCst);
    }
}

fn queue() -> Arc<EventQueue> {
    Arc::new(EventQueue::new(TOPOLOGY, Interest::SDAM))
}

fn push_from_thread(queue: &Arc<EventQueue>, kinds: Vec<EventKind>) -> thread::JoinHandle<()> {
    let queue = Arc::clone(queue);
    thread::spawn(move || {
        for kind in kinds {
            queue.push(at(1), kind);
        }
    })
}

#[test]
fn a_dispatcher_delivers_every_event_in_order_and_topology_closed_last() {
    // TopologyClosed is the last event (J-12, J-13).
    explore(3, || {
        let (queue, sink) = (queue(), Exclusive::shared());
        push_from_thread(&queue, vec![started(1), failed(1)]);
        push_from_thread(&queue, vec![opening(2), EventKind::TopologyClosed]);
        block_on(Dispatcher::new(Arc::clone(&queue), sink.clone()));
        let names = sink.recorder.names();
        sink.assert_delivered(names.len() as u64);
        assert_eq!(names.last(), Some(&"TopologyClosed"));
        let count = |name: EventName| names.iter().filter(|one| **one == name.as_str()).count();
        assert_eq!(
            count(EventName::ServerHeartbeatStarted),
            count(EventName::ServerHeartbeatFailed)
        );
        assert_eq!(count(EventName::ServerOpening), 1);
        assert_eq!(queue.depth(), 0);
    });
}

#[test]
fn of_two_draining_threads_one_delivers_the_events_of_both() {
    // Each event is delivered exactly once (J-25).
    explore(3, || {
        let (queue, sink) = (queue(), Exclusive::shared());
        let other = {
            let (queue, sink) = (Arc::clone(&queue), Arc::clone(&sink));
            thread::spawn(move || {
                queue.push(at(1), opening(1));
                queue.drain_now(&sink)
            })
        };
        queue.push(at(1), opening(2));
        let delivered = queue.drain_now(&sink) + other.join().unwrap();
        assert_eq!(delivered, 2);
        sink.assert_delivered(2);
        assert_eq!(queue.depth(), 0);
    });
}

#[test]
fn a_dispatcher_refused_by_another_drain_is_woken_when_the_queue_ends() {
    explore(3, || {
        let (queue, sink) = (queue(), Exclusive::shared());
        {
            let (queue, sink) = (Arc::clone(&queue), Arc::clone(&sink));
            thread::spawn(move || queue.drain_now(&sink));
        }
        {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                queue.push(at(1), opening(1));
                queue.push(at(1), opening(2));
                queue.close();
            });
        }
        block_on(Dispatcher::new(Arc::clone(&queue), sink.clone()));
        assert_eq!(queue.sink_failed(), None);
        assert!(queue.is_closed());
        sink.assert_delivered(2);
        assert_eq!(queue.depth(), 0);
    });
}

#[test]
fn after_a_panic_of_the_sink_the_queue_becomes_empty() {
    explore(3, || {
        let queue = queue();
        let pusher = push_from_thread(&queue, vec![opening(1), opening(2)]);
        let other = push_from_thread(&queue, vec![opening(3)]);
        let panicking = Arc::new(sink_fn(|_| resume_unwind(Box::new("no"))));
        block_on(Dispatcher::new(Arc::clone(&queue), panicking));
        assert_eq!(queue.sink_failed().map(|failure| failure.seq), Some(1));
        pusher.join().unwrap();
        other.join().unwrap();
        assert!(queue.is_closed());
        assert_eq!(queue.depth(), 0);
    });
}

#[test]
fn a_stream_never_counts_fewer_events_than_it_has_still_to_deliver() {
    explore(None, || {
        let (sink, mut events) = channel::unbounded();
        let emits = thread::spawn(move || {
            for seq in 1..=2 {
                sink.emit(&Event::new(seq, at(1), TOPOLOGY, opening(seq)));
            }
        });
        let mut received = Vec::new();
        while let Some(event) = block_on(events.next()) {
            received.push(event.seq);
            assert!(events.waiting() <= 2 - received.len(), "the count has fallen below zero");
        }
        emits.join().unwrap();
        assert_eq!(received, [1, 2]);
        assert_eq!((events.waiting(), events.dropped()), (0, 0));
    });
}
