//! The cost of one client, and of each further client.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    thread,
    time::{Duration, Instant},
};

use futures::executor::block_on;
use sdam::{Spawner, Topology, runtime::Task};

use crate::process::{cpu, memory, sockets, switches};

/// The time that clients run before a measurement: long enough for one heartbeat, whose checks fill
/// and free buffers.
const SETTLING: Duration = Duration::from_secs(11);

/// The time within which clients must find their servers.
const PATIENCE: Duration = Duration::from_secs(60);

/// The memory of the first client in KiB, and the cost of each further client: sockets, tasks,
/// memory in KiB, and for each second the number of task polls, the number of times that a thread
/// goes to sleep, and the processor time in microseconds.
pub(crate) type Figures = [f64; 7];

/// A spawner that counts tasks and their polls.
#[derive(Debug, Default)]
struct Counts {
    alive: AtomicUsize,
    polls: AtomicU64,
}

#[derive(Debug)]
struct CountingSpawner(Arc<dyn Spawner>, Arc<Counts>);

impl Spawner for CountingSpawner {
    fn spawn(&self, task: Task) {
        self.1.alive.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(task, Arc::clone(&self.1));
        self.0.spawn(Task::new("counted", counted));
    }
}

struct Counted(Task, Arc<Counts>);

impl Future for Counted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.1.polls.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll(cx)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Measures and prints the cost of a first client and of `further` more clients. Each client
/// monitors `members` members.
pub(crate) fn measure(uri: &str, members: usize, further: usize, seconds: u64) {
    let host =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    let counts = Arc::<Counts>::default();
    runtime.spawner = Arc::new(CountingSpawner(runtime.spawner, Arc::clone(&counts)));
    let per_server = if uri.contains("serverMonitoringMode=poll") { 1 } else { 2 };
    let others = sockets();
    let empty = memory();
    let mut clients = Vec::with_capacity(further + 1);
    let mut add = |more: usize| {
        for _ in 0..more {
            let builder = Topology::builder(uri).unwrap();
            clients.push(builder.start(runtime.clone()).unwrap());
        }
        settle(&clients, members, others + members * per_server * clients.len());
    };
    add(1);
    let (one_memory, one_sockets) = (memory(), sockets());
    let one_tasks = counts.alive.load(Ordering::Relaxed);
    add(further);
    let per_client = |all: f64, one: f64| (all - one) / further as f64;
    let (tasks, open) = (counts.alive.load(Ordering::Relaxed), sockets());
    let all_memory = memory();
    let work = || {
        let polls = counts.polls.load(Ordering::Relaxed) as f64;
        (Instant::now(), [polls, switches(), cpu()])
    };
    let begin = work();
    thread::sleep(Duration::from_secs(seconds));
    let end = work();
    let passed = end.0.duration_since(begin.0).as_secs_f64();
    let rate = |index: usize| (end.1[index] - begin.1[index]) / passed / clients.len() as f64;
    let figures: Figures = [
        one_memory - empty,
        per_client(open as f64, one_sockets as f64),
        per_client(tasks as f64, one_tasks as f64),
        per_client(all_memory, one_memory),
        rate(0),
        rate(1),
        rate(2),
    ];
    println!("{}", figures.map(|figure| figure.to_string()).join(" "));
    for client in &clients {
        block_on(client.close());
    }
}

/// Waits until every client knows its servers and has opened all connections, and then for one more
/// heartbeat.
fn settle(clients: &[Topology], members: usize, expected: usize) {
    for client in clients {
        let complete = block_on(client.wait_for(
            |snapshot| {
                let servers = snapshot.description().servers();
                let known = servers.iter().filter(|server| server.server_type.is_available());
                (known.count() == members).then_some(())
            },
            PATIENCE,
        ));
        assert!(complete.is_some(), "a client has not found its servers");
    }
    let deadline = Instant::now() + PATIENCE;
    while sockets() != expected {
        assert!(Instant::now() < deadline, "{} sockets, not {expected}", sockets());
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(SETTLING);
}
