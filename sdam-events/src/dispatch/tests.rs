use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Wake, Waker},
    thread,
};

use futures::executor::block_on;
use sdam_core::event::{Event, EventKind};

use super::{BUDGET, Dispatcher};
use crate::{
    queue::EventQueue,
    sink::{EventSink, Interest},
    test_support::{Recorder, TOPOLOGY, at, opening},
};

fn queue() -> Arc<EventQueue> {
    Arc::new(EventQueue::new(TOPOLOGY, Interest::SDAM))
}

#[derive(Default)]
struct CountWakes(AtomicUsize);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_push_wakes_the_dispatcher_once_and_a_burst_is_delivered_in_several_polls() {
    let queue = queue();
    let sink = Recorder::shared();
    let count = Arc::new(CountWakes::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut cx = Context::from_waker(&waker);
    let mut dispatcher = pin!(Dispatcher::new(Arc::clone(&queue), sink.clone()));

    assert!(dispatcher.as_mut().poll(&mut cx).is_pending());
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    for _ in 0..=BUDGET {
        queue.push(at(1), opening(1));
    }
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "one wake-up for the burst");

    assert!(dispatcher.as_mut().poll(&mut cx).is_pending());
    assert_eq!(sink.seqs().len(), BUDGET);
    assert_eq!(count.0.load(Ordering::SeqCst), 2, "it wakes itself to be polled again");
    assert!(dispatcher.as_mut().poll(&mut cx).is_pending());
    assert_eq!(sink.seqs().len(), BUDGET + 1);
    assert_eq!(count.0.load(Ordering::SeqCst), 2);

    queue.push(at(2), EventKind::TopologyClosed);
    assert_eq!(count.0.load(Ordering::SeqCst), 3);
    assert!(dispatcher.as_mut().poll(&mut cx).is_ready(), "the queue is closed and empty");
    assert_eq!((sink.seqs().len(), queue.sink_failed()), (BUDGET + 2, None));
    assert_eq!(sink.names().last(), Some(&"TopologyClosed"));
    assert_eq!(Arc::strong_count(&sink), 1, "the dispatcher has dropped the sink");
}

#[test]
fn events_not_delivered_by_a_dropped_dispatcher_stay_in_the_queue() {
    let queue = queue();
    let sink = Recorder::shared();
    for _ in 0..BUDGET + 2 {
        queue.push(at(1), opening(1));
    }
    let mut cx = Context::from_waker(Waker::noop());
    {
        let mut dispatcher = pin!(Dispatcher::new(Arc::clone(&queue), sink.clone()));
        assert!(dispatcher.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(queue.depth(), 2);
    assert_eq!(queue.drain_now(&sink), 2);
    assert!(sink.seqs().into_iter().eq(1..=BUDGET as u64 + 2));
}

/// A sink that blocks in each call until it is released.
#[derive(Debug)]
struct Blocked {
    entered: mpsc::Sender<u64>,
    release: Mutex<mpsc::Receiver<()>>,
}

impl EventSink for Blocked {
    fn emit(&self, event: &Event) {
        self.entered.send(event.seq).unwrap();
        self.release.lock().unwrap().recv().unwrap();
    }
}

#[test]
fn a_blocked_sink_does_not_delay_producers() {
    // Events are published in order, without waiting for sinks (J-12).
    let queue = queue();
    let (entered, has_entered) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let sink = Arc::new(Blocked { entered, release: Mutex::new(released) });
    let dispatcher = Dispatcher::new(Arc::clone(&queue), sink);
    let delivery = thread::spawn(move || block_on(dispatcher));
    queue.push(at(0), opening(0));
    assert_eq!(has_entered.recv(), Ok(1));

    // The sink blocks in its first call until this thread releases it.
    for count in 1..20_000 {
        queue.push(at(count), opening(count));
    }
    queue.close();
    assert_eq!(queue.depth(), 20_000);
    assert!(has_entered.try_recv().is_err(), "the sink was still blocked");

    for _ in 0..20_000 {
        release.send(()).unwrap();
    }
    delivery.join().unwrap();
    assert!(has_entered.iter().eq(2..=20_000));
}

/// A sink that panics at one event.
#[derive(Debug)]
struct Panics {
    at: u64,
    before: Arc<Recorder>,
}

impl EventSink for Panics {
    fn emit(&self, event: &Event) {
        assert!(event.seq < self.at, "no more than {}", self.at - 1);
        self.before.emit(event);
    }
}

#[test]
fn a_sink_that_panics_is_disabled_and_reported() {
    let queue = queue();
    let before = Recorder::shared();
    let sink = Arc::new(Panics { at: 3, before: before.clone() });
    for _ in 0..5 {
        queue.push(at(1), opening(1));
    }
    block_on(Dispatcher::new(Arc::clone(&queue), sink));
    assert_eq!(before.seqs(), [1, 2]);
    let failure = queue.sink_failed().unwrap();
    assert_eq!((failure.seq, &*failure.message), (3, "no more than 2"));
    assert!(queue.interest().is_empty(), "no event is built for a disabled sink");
    queue.push(at(2), opening(2));
    assert_eq!(queue.depth(), 0);
}
