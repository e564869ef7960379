//! Loom models of the state shared by threads; `cargo xtask loom` runs every interleaving. Each
//! model has a topology with the real engine, and the tasks of the topology run as loom threads.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bson::{Document, RawDocumentBuf, doc};
use futures::{
    future::{BoxFuture, FutureExt, pending, ready},
    stream::StreamExt,
};
use loom::{future::block_on, thread};
use sdam_core::{
    address::ServerAddress,
    deployment::{ConnId, Input, Role, Timer},
    error::Error,
    event::{Event, EventName},
    hello::HelloReply,
    ids::{Generation, ServerId},
    server::ServerType,
    time::{Instant, UnixTime},
    topology::TopologyType,
};
use sdam_events::{
    sink::{EventSink, Interest},
    sync::explore,
};
use sdam_select::criteria::Criteria;
use sdam_transport::{
    clock::Clock,
    connect::{Connection, Transport},
    runtime::{Backend, Runtime},
    spawn::{Spawner, Task},
    wire::{OpCode, OpMsg, OpReply, WireMessage},
};

use crate::{Topology, TopologyBuilder};

/// The longest timer that fires in a model. Another event has to end a longer wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// A topology with the seed `a:1`, and the tasks that have not started.
struct Harness {
    topology: Topology,
    tasks: Tasks,
}

/// A spawner that holds tasks back until [`begin`](Self::begin) is called.
#[derive(Clone, Debug, Default)]
struct Tasks(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    tasks: Vec<Task>,
    /// True if new tasks start as threads at once.
    begun: bool,
    /// True if the test has to fail when another task is spawned.
    over: bool,
}

impl Harness {
    /// Starts a harness whose servers answer each hello with the next of `replies`, and stop
    /// answering after the last.
    fn new(replies: &[Document]) -> Self {
        Self::start(replies, |builder| builder)
    }

    fn with_sink(replies: &[Document], sink: impl EventSink) -> Self {
        Self::start(replies, |builder| builder.sink(sink))
    }

    fn start(replies: &[Document], setup: impl FnOnce(TopologyBuilder) -> TopologyBuilder) -> Self {
        let tasks = Tasks::default();
        let replies = replies.iter().map(bytes).collect();
        let servers = Replica { replies, asked: Arc::default(), request: None };
        let backend = Backend::new(Arc::<ModelClock>::default(), Arc::new(servers), 1);
        let runtime = Runtime::new(backend, Arc::new(tasks.clone()));
        let uri = "mongodb://a:1/?replicaSet=rs&serverMonitoringMode=poll";
        let topology = setup(Topology::builder(uri).unwrap()).start(runtime).unwrap();
        Self { topology, tasks }
    }

    /// Returns the server id of the seed.
    fn seed(&self) -> ServerId {
        self.topology.snapshot().description().servers()[0].id
    }

    /// Applies the reply to the seed's first check.
    fn checked(&self, reply: &Document) {
        let (server, now) = (self.seed(), Instant::EPOCH);
        let conn = ConnId { server, role: Role::Check, number: 1 };
        let reply = HelloReply::parse(bytes(reply));
        for input in [
            Input::Due { timer: Timer::Server(server), wanted: true },
            Input::Connected { conn },
            Input::Reply { conn, sent: now, at: now, reply, more_to_come: false },
        ] {
            self.topology.engine().handle(input);
        }
    }

    /// Applies a later reply of the seed, to the handshake of a pooled connection.
    fn greeted(&self, reply: &Document) {
        let greeted =
            self.topology.reporter(self.seed()).handle_handshake(Generation::FIRST, &*bytes(reply));
        greeted.unwrap();
    }
}

impl Drop for Harness {
    /// Breaks the reference cycle of tasks that never started.
    fn drop(&mut self) {
        drop(self.tasks.take());
    }
}

impl Tasks {
    /// Starts the held tasks and all later ones, each on its own thread.
    fn begin(&self) {
        let tasks = {
            let mut held = self.0.lock().unwrap();
            held.begun = true;
            std::mem::take(&mut held.tasks)
        };
        tasks.into_iter().for_each(Self::run);
    }

    /// Takes the tasks that have not started; dropping them simulates a runtime's shutdown.
    fn take(&self) -> Vec<Task> {
        std::mem::take(&mut self.0.lock().unwrap().tasks)
    }

    /// Makes the test fail if another task is spawned.
    fn end(&self) {
        self.0.lock().unwrap().over = true;
    }

    fn run(task: Task) {
        thread::spawn(move || block_on(task));
    }
}

impl Spawner for Tasks {
    fn spawn(&self, task: Task) {
        let mut held = self.0.lock().unwrap();
        assert!(!held.over, "a task is spawned after the end");
        if held.begun {
            drop(held);
            Self::run(task);
        } else {
            held.tasks.push(task);
        }
    }
}

/// Builds a hello reply from a member of the set `rs` with this role and these `hosts`.
fn member(role: &str, hosts: &[&str]) -> Document {
    doc! { "ok": 1, role: true, "setName": "rs", "hosts": hosts, "maxWireVersion": 21 }
}

fn bytes(reply: &Document) -> Vec<u8> {
    RawDocumentBuf::try_from(reply).unwrap().into_bytes()
}

/// A clock that jumps to the deadline of each short timer.
#[derive(Debug, Default)]
struct ModelClock(AtomicU64);

impl Clock for ModelClock {
    fn now(&self) -> Instant {
        Instant::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn wall(&self) -> UnixTime {
        UnixTime::default()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let wait = deadline.since(self.now());
        if wait > PATIENCE {
            return pending().boxed();
        }
        self.0.fetch_add(wait.as_millis() as u64 + 1, Ordering::Relaxed);
        ready(()).boxed()
    }
}

/// A transport whose connections open at once, and answer at once or never. This type is also the
/// connection.
#[derive(Clone, Debug)]
struct Replica {
    replies: Arc<[Vec<u8>]>,
    /// The number of requests on all connections.
    asked: Arc<AtomicUsize>,
    request: Option<WireMessage>,
}

#[async_trait]
impl Transport for Replica {
    async fn connect(
        &self,
        _: &ServerAddress,
        _: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl Connection for Replica {
    async fn send(&mut self, message: WireMessage) -> Result<(), Error> {
        self.request = Some(message);
        Ok(())
    }

    async fn recv(&mut self) -> Result<WireMessage, Error> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        match (self.request.take(), self.replies.get(asked)) {
            (Some(request), Some(reply)) => Ok(answer(&request, reply)),
            _ => pending().await,
        }
    }
}

fn answer(request: &WireMessage, body: &[u8]) -> WireMessage {
    let (request_id, response_to) = (1, request.request_id());
    let reply = if request.op_code() == OpCode::Query {
        OpReply { request_id, response_to, flags: OpReply::AWAIT_CAPABLE, body }.encode()
    } else {
        OpMsg { request_id, response_to, body, ..OpMsg::default() }.encode()
    };
    reply.unwrap()
}

#[test]
fn waiting_selections_are_woken_by_concurrent_publications() {
    // A waiting selection sees every change of the topology (L-62).
    explore(2, || {
        let harness = Harness::new(&[]);
        let waiters = [(); 2].map(|()| {
            let topology = harness.topology.clone();
            thread::spawn(move || {
                let selected = block_on(topology.select(&Criteria::write())).unwrap();
                assert_eq!(selected.server_type(), ServerType::RsPrimary);
            })
        });
        harness.checked(&member("secondary", &["a:1"]));
        harness.greeted(&member("isWritablePrimary", &["a:1"]));
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn a_stream_of_snapshots_yields_the_newest_and_none_twice() {
    explore(3, || {
        let harness = Harness::new(&[]);
        let mut watch = harness.topology.watch();
        let reader = thread::spawn(move || {
            let mut seen = None;
            loop {
                let snapshot = block_on(watch.next()).unwrap();
                assert!(seen < Some(snapshot.version()));
                seen = Some(snapshot.version());
                let topology_type = snapshot.description().topology_type();
                if topology_type == TopologyType::ReplicaSetWithPrimary {
                    return;
                }
            }
        });
        harness.checked(&member("secondary", &["a:1"]));
        harness.greeted(&member("isWritablePrimary", &["a:1"]));
        reader.join().unwrap();
    });
}

/// A sink that records the names of all events.
#[derive(Clone, Debug, Default)]
struct Names(Arc<Mutex<Vec<EventName>>>);

impl Names {
    /// Checks that there are as many `end` as `start` events, and that `TopologyClosed` is the
    /// last event.
    fn check(&self, start: EventName, end: EventName) {
        let names = self.0.lock().unwrap();
        let count = |name| names.iter().filter(|one| **one == name).count();
        assert_eq!(names.last(), Some(&EventName::TopologyClosed));
        assert_eq!(count(start), count(end));
    }
}

impl EventSink for Names {
    fn emit(&self, event: &Event) {
        self.0.lock().unwrap().push(event.kind.name());
    }

    fn interest(&self) -> Interest {
        Interest::SDAM.union(Interest::SELECTION)
    }
}

#[test]
fn closing_waits_for_the_last_event_and_for_every_heartbeat_to_end() {
    // Every started heartbeat ends, and TopologyClosed is the last event (J-13, I10).
    explore(2, || {
        let names = Names::default();
        let harness = Harness::with_sink(&[], names.clone());
        harness.tasks.begin();
        block_on(harness.topology.close());
        harness.tasks.end();
        names.check(EventName::ServerHeartbeatStarted, EventName::ServerHeartbeatFailed);
    });
}

#[test]
fn the_task_of_a_server_without_a_connection_ends_when_the_topology_is_closed() {
    // No order to disconnect wakes this task.
    explore(2, || {
        let harness = Harness::new(&[doc! { "ok": 0 }]);
        harness.tasks.begin();
        block_on(harness.topology.close());
        harness.tasks.end();
    });
}

#[test]
fn every_selection_ends_once_and_before_the_topology_closed_event() {
    // Every started selection succeeds or fails exactly once (K-7).
    explore(1, || {
        let names = Names::default();
        let harness = Harness::with_sink(&[], names.clone());
        let topology = harness.topology.clone();
        harness.tasks.begin();
        let selection = thread::spawn(move || {
            block_on(topology.select(&Criteria::write())).unwrap_err();
        });
        block_on(harness.topology.close());
        selection.join().unwrap();
        names.check(EventName::ServerSelectionStarted, EventName::ServerSelectionFailed);
    });
}

#[test]
fn no_monitor_starts_after_close_has_returned() {
    // A pooled connection's handshake may add a new member while the topology is being closed.
    explore(2, || {
        let harness = Harness::new(&[]);
        harness.checked(&member("isWritablePrimary", &["a:1"]));
        let (topology, seed) = (harness.topology.clone(), harness.seed());
        harness.tasks.begin();
        thread::spawn(move || {
            let reply = bytes(&member("isWritablePrimary", &["a:1", "b:1"]));
            let _ = topology.reporter(seed).handle_handshake(Generation::FIRST, &*reply);
        });
        block_on(harness.topology.close());
        harness.tasks.end();
    });
}

#[test]
fn the_event_queue_is_closed_when_a_shutdown_and_the_drop_of_the_monitors_overlap() {
    explore(3, || {
        let names = Names::default();
        let harness = Harness::with_sink(&[], names.clone());
        let monitors = harness.tasks.take();
        assert!(!monitors.is_empty());
        // Simulates the shutdown of the runtime.
        let runtime = thread::spawn(move || drop(monitors));
        harness.topology.engine().shut_down();
        runtime.join().unwrap();
        // Delivers the events that the sink's task has not delivered.
        harness.topology.events().deliver_now(&names);
        names.check(EventName::ServerHeartbeatStarted, EventName::ServerHeartbeatFailed);
    });
}

#[test]
fn a_waiting_selection_fails_when_the_runtime_drops_the_monitors() {
    explore(2, || {
        let harness = Harness::new(&[]);
        let monitors = harness.tasks.take();
        let runtime = thread::spawn(move || drop(monitors));
        // This call would block forever if the selection were not woken a last time.
        let error = block_on(harness.topology.select(&Criteria::write())).unwrap_err();
        assert!(error.is_runtime_shut_down());
        runtime.join().unwrap();
    });
}
