//! Twenty thousand events in a burst, on every runtime: none is lost or out of order, and no call
//! waits for a sink.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, mpsc},
    task::Poll,
    thread,
};

use futures::{channel::oneshot, executor::block_on, future::join_all};
use sdam::{
    Event, EventKind, EventSink, Instant, Interest, ObjectId, ServerAddress, Spawner, Task,
};
use sdam_events::{dispatch::Dispatcher, queue::EventQueue};
use sdam_sim::{Blueprint, runtime::Sim};

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

/// Yields to other tasks.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
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

#[test]
fn a_burst_of_events_is_delivered_completely_and_in_order_for_every_order_of_tasks() {
    // J-12
    for seed in 0..20 {
        let server = ServerAddress::new("a", 27017);
        let sim = Sim::new(seed, &Blueprint::standalone(server));
        let spawner = sim.runtime().spawner;
        let (queue, seen, end) = start(&*spawner, None);
        let sources = (0..SOURCES).map(|source| {
            let (queue, (ended, end)) = (Arc::clone(&queue), oneshot::channel());
            spawner.spawn(Task::new("source", async move {
                for burst in 0..EACH / 100 {
                    (0..100).for_each(|number| push(&queue, source, burst * 100 + number));
                    yield_now().await;
                }
                let _ = ended.send(());
            }));
            end
        });
        let sources = join_all(sources);
        sim.block_on(async {
            sources.await;
            queue.close();
            end.await.unwrap();
        });
        check(&format!("seed {seed}"), &seen.lock().unwrap());
    }
}
