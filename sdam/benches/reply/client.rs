//! A client whose tasks run on this thread, with a clock that advances only at each push.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use sdam::{
    Clock, EventKind, Interest, Runtime, Spawner, Topology,
    events::EventName,
    runtime::{Backend, Instant, Task, UnixTime},
};
use sdam_events::sink::sink_fn;

use crate::servers::Servers;

/// The pause between two pushes of one server. It exceeds 50 ms, because in the long run a client
/// reads at most 20 replies a second from each server.
pub(crate) const PACE: Duration = Duration::from_millis(55);

/// A client that streams from all servers.
pub(crate) struct Client {
    pub(crate) topology: Topology,
    pub(crate) clock: Arc<HandClock>,
    servers: Servers,
    executor: Arc<Executor>,
    /// The number of streamed replies that the sink has received.
    arrived: Arc<AtomicU64>,
    pushed: u64,
}

impl Client {
    /// Starts a client and lets it find all `servers`.
    pub(crate) fn start(servers: Servers) -> Self {
        let (clock, executor) = (Arc::<HandClock>::default(), Arc::<Executor>::default());
        let arrived = Arc::<AtomicU64>::default();
        let count = Arc::clone(&arrived);
        let sink = sink_fn(move |event| {
            if let EventKind::ServerHeartbeatSucceeded { heartbeat, .. } = &event.kind
                && heartbeat.awaited
            {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let interest = Interest::of(&[EventName::ServerHeartbeatSucceeded]);
        let own = Arc::clone(&clock) as Arc<dyn Clock>;
        let backend = Backend::new(own, Arc::new(servers.clone()), 1);
        let spawner = Arc::clone(&executor) as Arc<dyn Spawner>;
        let topology = Topology::builder(&servers.uri())
            .unwrap()
            .sink(sink.interested_in(interest))
            .start(Runtime::new(backend, spawner))
            .unwrap();
        executor.run();
        assert!(servers.all_stream(), "a server has no open stream");
        Self { topology, clock, servers, executor, arrived, pushed: 0 }
    }

    /// Pushes a reply from the next server in turn, and runs the tasks until the sink has received
    /// the event for that reply.
    pub(crate) fn push(&mut self) {
        self.clock.advance(PACE / self.servers.count());
        self.servers.push();
        self.executor.run();
        self.pushed += 1;
        let arrived = self.arrived.load(Ordering::Relaxed);
        assert_eq!(arrived, self.pushed, "a reply is no event");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut close = Box::pin(self.topology.close());
        if (&mut close).now_or_never().is_none() {
            self.executor.run();
            assert!(close.now_or_never().is_some(), "the client does not end");
        }
    }
}

/// A clock that only the benchmark advances.
#[derive(Debug)]
pub(crate) struct HandClock {
    nanos: AtomicU64,
    begin: std::time::Instant,
    watched: AtomicBool,
    /// The real time at which the clock was last read, in nanoseconds. It is recorded only while
    /// the clock is watched.
    last_read: AtomicU64,
}

impl Default for HandClock {
    fn default() -> Self {
        Self {
            nanos: AtomicU64::new(0),
            begin: std::time::Instant::now(),
            watched: AtomicBool::new(false),
            last_read: AtomicU64::new(0),
        }
    }
}

impl HandClock {
    fn advance(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap();
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Begins to record the real time of each reading.
    pub(crate) fn watch(&self) {
        self.watched.store(true, Ordering::Relaxed);
    }

    /// Returns the real time since the last reading.
    pub(crate) fn since_last_read(&self) -> Duration {
        let last = Duration::from_nanos(self.last_read.load(Ordering::Relaxed));
        self.begin.elapsed().saturating_sub(last)
    }
}

impl Clock for HandClock {
    fn now(&self) -> Instant {
        if self.watched.load(Ordering::Relaxed) {
            let real = u64::try_from(self.begin.elapsed().as_nanos()).unwrap();
            self.last_read.store(real, Ordering::Relaxed);
        }
        Instant::EPOCH + Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn wall(&self) -> UnixTime {
        UnixTime::from_millis(0)
    }

    /// Returns a future that never becomes ready, because no deadline is ever reached.
    fn sleep_until(&self, _deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// A spawner whose tasks run only on request.
#[derive(Debug, Default)]
struct Executor {
    tasks: Mutex<Vec<(Task, Arc<TaskWaker>, Waker)>>,
    spawned: Mutex<Vec<Task>>,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

#[derive(Debug)]
struct TaskWaker {
    task: usize,
    queued: AtomicBool,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().unwrap().push_back(self.task);
        }
    }
}

impl Spawner for Executor {
    fn spawn(&self, task: Task) {
        self.spawned.lock().unwrap().push(task);
    }
}

impl Executor {
    /// Polls tasks until none is ready.
    fn run(&self) {
        let mut tasks = self.tasks.lock().unwrap();
        loop {
            for task in std::mem::take(&mut *self.spawned.lock().unwrap()) {
                let own = Arc::new(TaskWaker {
                    task: tasks.len(),
                    queued: AtomicBool::new(false),
                    ready: Arc::clone(&self.ready),
                });
                own.wake_by_ref();
                tasks.push((task, Arc::clone(&own), Waker::from(own)));
            }
            let Some(next) = self.ready.lock().unwrap().pop_front() else {
                return;
            };
            let (task, own, waker) = &mut tasks[next];
            own.queued.store(false, Ordering::Relaxed);
            if let Poll::Ready(()) = task.poll_unpin(&mut Context::from_waker(waker)) {
                *task = Task::new("ended", std::future::pending());
            }
        }
    }
}
