//! Twenty thousand events in a burst, on every runtime: none is lost or out of order, and no call
//! waits for a sink.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
};

use futures::{channel::oneshot, executor::block_on};
use sdam::{Event, EventKind, EventSink, Instant, Interest, ObjectId, Spawner, Task};
use sdam_events::{dispatch::Dispatcher, queue::EventQueue};

const SOURCES: usize = 4;
const EACH: usize = 5_000;

/// A sink that records events and blocks in the first one until it is released.
#[derive(Debug)]
struct Recorder {
    seen: Arc<Mutex<Vec<Event>>>,
    gate: Mutex<Option<mpsc::Receiver<()>>>,
}

impl EventSink for Recorder {
    fn emit(&self, event: &Event) {
        if let Some(gate) = self.gate.lock().unwrap().take() {
            gate.recv().unwrap();
        }
        self.seen.lock().unwrap().push(event.clone());
    }

    fn interest(&self) -> Interest {
        Interest::ALL
    }
}

/// Starts a queue with a dispatcher on `spawner`; also returns its deliveries and its end.
fn start(
    spawner: &dyn Spawner,
    gate: Option<mpsc::Receiver<()>>,
) -> (
    Arc<EventQueue>,
    Arc<Mutex<Vec<Event>>>,
    oneshot::Receiver<()>,
) {
    let queue = Arc::new(EventQueue::new(ObjectId::default(), Interest::ALL));
    let seen = Arc::<Mutex<Vec<Event>>>::default();
    let sink = Recorder {
        seen: Arc::clone(&seen),
        gate: Mutex::new(gate),
    };
    let dispatcher = Dispatcher::new(Arc::clone(&queue), Arc::new(sink));
    let (ended, end) = oneshot::channel();
    spawner.spawn(Task::new("dispatcher", async move {
        dispatcher.await;
        let _ = ended.send(());
    }));
    (queue, seen, end)
}

fn push(queue: &EventQueue, source: usize, number: usize) {
    queue.push(
        Instant::EPOCH,
        EventKind::MembersIgnored {
            ignored: number,
            limit: source,
        },
    );
}

/// Asserts that every number occurs once and in order, and that the events of each source are in
/// order.
fn check(runtime: &str, seen: &[Event]) {
    assert_eq!(seen.len(), SOURCES * EACH, "{runtime}");
    let mut next = [0; SOURCES];
    for (index, event) in seen.iter().enumerate() {
        assert_eq!(event.seq, index as u64 + 1, "{runtime}");
        let EventKind::MembersIgnored { ignored, limit } = event.kind else {
            unreachable!("{runtime}: nothing else was pushed");
        };
        assert_eq!(ignored, next[limit], "{runtime}: out of order");
        next[limit] += 1;
    }
}

#[test]
fn a_burst_of_events_is_delivered_completely_and_in_order_on_every_multi_threaded_runtime() {
    // J-12
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let runtimes = [
        (
            "tokio",
            sdam_runtime_tokio::from_handle(tokio.handle().clone()).unwrap(),
        ),
        ("smol", sdam_runtime_smol::runtime()),
        ("async-std", sdam_runtime_async_std::runtime()),
    ];
    for (name, runtime) in runtimes {
        let (open, gate) = mpsc::channel();
        let (queue, seen, end) = start(&*runtime.spawner, Some(gate));
        thread::scope(|scope| {
            for source in 0..SOURCES {
                let queue = &queue;
                scope.spawn(move || (0..EACH).for_each(|number| push(queue, source, number)));
            }
        });
        // All were pushed while the sink was blocked in its first event.
        assert!(seen.lock().unwrap().is_empty(), "{name}");
        open.send(()).unwrap();
        queue.close();
        block_on(end).unwrap();
        check(name, &seen.lock().unwrap());
    }
}
