//! Loom models of the state shared by threads; `cargo xtask loom` runs every interleaving. They have a
//! topology with the real engine, whose tasks run as loom threads.

mod publication;
mod shutdown;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bson::{Document, RawDocumentBuf, doc};
use futures::future::{BoxFuture, FutureExt, pending, ready};
use loom::{future::block_on, thread};
use sdam_core::{
    address::ServerAddress,
    deployment::{ConnId, Input, Role, Timer},
    error::Error,
    hello::HelloReply,
    ids::{Generation, ServerId},
    time::{Instant, UnixTime},
};
use sdam_events::sink::EventSink;
use sdam_transport::{
    clock::Clock,
    connect::{Connection, Transport},
    runtime::{Backend, Runtime},
    spawn::{Spawner, Task},
    wire::{OpCode, OpMsg, OpReply, WireMessage},
};

use crate::{Topology, TopologyBuilder};

/// Timers longer than this never fire in a model: another event has to end the wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// A topology with the seed `a:1`, and the tasks that have not started.
pub(super) struct Harness {
    pub(super) topology: Topology,
    pub(super) tasks: Tasks,
}

/// A spawner that holds tasks back until [`begin`](Self::begin) is called.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks(Arc<Mutex<Held>>);

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
    pub(super) fn new(replies: &[Document]) -> Self {
        Self::start(replies, |builder| builder)
    }

    pub(super) fn with_sink(replies: &[Document], sink: impl EventSink) -> Self {
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
    pub(super) fn seed(&self) -> ServerId {
        self.topology.snapshot().description().servers()[0].id
    }

    /// Applies the reply to the seed's first check.
    pub(super) fn checked(&self, reply: &Document) {
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
    pub(super) fn greeted(&self, reply: &Document) {
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
    pub(super) fn begin(&self) {
        let tasks = {
            let mut held = self.0.lock().unwrap();
            held.begun = true;
            std::mem::take(&mut held.tasks)
        };
        tasks.into_iter().for_each(Self::run);
    }

    /// Takes the tasks that have not started; dropping them simulates a runtime's shutdown.
    pub(super) fn take(&self) -> Vec<Task> {
        std::mem::take(&mut self.0.lock().unwrap().tasks)
    }

    /// Makes the test fail if another task is spawned.
    pub(super) fn end(&self) {
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
pub(super) fn member(role: &str, hosts: &[&str]) -> Document {
    doc! { "ok": 1, role: true, "setName": "rs", "hosts": hosts, "maxWireVersion": 21 }
}

pub(super) fn bytes(reply: &Document) -> Vec<u8> {
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
