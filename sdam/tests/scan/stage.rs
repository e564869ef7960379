//! Scripted servers, a clock that jumps, and a log of requests.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    sync::{Arc, Mutex, MutexGuard},
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use bson::{Document, RawDocument, RawDocumentBuf, doc, oid::ObjectId};
use futures::{FutureExt as _, future::BoxFuture};
use sdam::{builder::TopologyBuilder, scan::ScanTopology};
use sdam_core::{
    address::ServerAddress,
    error::Stage as ErrorStage,
    event::{Event, EventKind},
    ids::ServerId,
    options::Options,
    read_preference::{ReadMode, ReadPreference},
    server::ServerType,
    time::Instant,
};
use sdam_events::{
    channel::{EventStream, unbounded},
    sink::Interest,
};
use sdam_select::criteria::Criteria;
use sdam_transport::{
    clock::Clock,
    connect::{Connection, Transport},
    error::TransportError,
    runtime::Io,
    wire::{OpMsg, WireMessage},
};

/// The default random seed of tests.
pub(crate) const SEED: u64 = 7;

/// All events except the recorded inputs.
const EVENTS: Interest = Interest::ALL.without(Interest::INPUTS);

/// The environment of the topology: servers, clock and log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stage(Arc<Mutex<World>>);

#[derive(Debug, Default)]
struct World {
    now: Instant,
    servers: BTreeMap<ServerAddress, Server>,
    log: Vec<String>,
    open: usize,
    connections: i64,
    /// The number of receives that are pending once before they proceed.
    stalls: usize,
    /// Whether the next timer is pending once, because a receive was.
    stalled: bool,
}

/// The current behaviour of a server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// Whether connections can be opened.
    pub(crate) up: bool,
    /// Whether it does not answer requests.
    pub(crate) silent: bool,
    /// The delay of a reply in milliseconds.
    pub(crate) delay: u64,
    /// The reply to hello.
    pub(crate) hello: Document,
    /// The reply to all other commands.
    pub(crate) other: Document,
    /// The process number; connections of an earlier process are broken.
    process: u64,
}

impl Stage {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// Sets the server's reply to hello. A new server is up and takes 1 ms.
    pub(crate) fn serve(&self, name: &str, hello: Document) {
        let mut world = self.world();
        let server = world
            .servers
            .entry(address(name))
            .or_insert_with(|| Server {
                up: true,
                silent: false,
                delay: 1,
                hello: Document::new(),
                other: doc! { "ok": 1 },
                process: 0,
            });
        server.hello = hello;
    }

    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Server)) {
        change(self.world().servers.get_mut(&address(name)).unwrap());
    }

    /// Breaks all connections to a server.
    pub(crate) fn restart(&self, name: &str) {
        self.change(name, |server| server.process += 1);
    }

    pub(crate) fn kill(&self, name: &str) {
        self.change(name, |server| server.up = false);
        self.restart(name);
    }

    pub(crate) fn advance(&self, millis: u64) {
        self.world().pass(Duration::from_millis(millis));
    }

    pub(crate) fn millis(&self) -> u64 {
        self.world().now.since(Instant::EPOCH).as_millis() as u64
    }

    /// Returns and clears the log of requests, such as `a connect, a isMaster`.
    pub(crate) fn log(&self) -> String {
        std::mem::take(&mut self.world().log).join(", ")
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.world().open
    }

    /// Makes the next receive pending at its first poll.
    pub(crate) fn stall(&self) {
        self.world().stalls += 1;
    }

    pub(crate) fn io(&self, seed: u64) -> Io {
        Io::new(Arc::new(self.clone()), Arc::new(self.clone()), seed)
    }

    /// Starts a topology with these seeds.
    pub(crate) fn topology(
        &self,
        seeds: &str,
        change: impl FnOnce(&mut Options),
    ) -> (ScanTopology, EventStream) {
        self.build(seeds, |builder| builder.options(change))
    }

    fn build(
        &self,
        seeds: &str,
        change: impl FnOnce(TopologyBuilder) -> TopologyBuilder,
    ) -> (ScanTopology, EventStream) {
        let (sink, events) = unbounded();
        let builder = TopologyBuilder::new(Options::new(addresses(seeds)));
        let builder = change(builder).sink(sink.interested_in(EVENTS));
        (builder.scan(self.io(SEED)).unwrap(), events)
    }

    /// Starts a topology of a replica set with the seeds `a` (primary), `b` and `c` (secondaries).
    pub(crate) fn replica_set(
        &self,
        change: impl FnOnce(&mut Options),
    ) -> (ScanTopology, EventStream) {
        self.replica_set_with(|builder| builder.options(change))
    }

    /// Does the same with another builder.
    pub(crate) fn replica_set_with(
        &self,
        change: impl FnOnce(TopologyBuilder) -> TopologyBuilder,
    ) -> (ScanTopology, EventStream) {
        self.serve("a", member(true, "a b c"));
        self.serve("b", member(false, "a b c"));
        self.serve("c", member(false, "a b c"));
        self.build("a b c", |builder| {
            change(builder.options(|options| options.replica_set = Some("rs".into())))
        })
    }
}

impl World {
    fn pass(&mut self, duration: Duration) {
        self.now = self.now + duration;
    }

    fn note(&mut self, address: &ServerAddress, what: &str) {
        self.log.push(format!("{} {what}", address.host()));
    }

    /// Advances the clock to the answer's time; fails if the deadline comes first.
    fn wait(&mut self, ready: Option<Instant>, deadline: Option<Instant>) -> Result<(), ()> {
        match (ready, deadline) {
            (Some(ready), deadline) if deadline.is_none_or(|deadline| ready <= deadline) => {
                self.now = self.now.max(ready);
                Ok(())
            }
            (_, deadline) => {
                self.now = deadline.expect("waits for ever").max(self.now);
                Err(())
            }
        }
    }
}

impl Clock for Stage {
    fn now(&self) -> Instant {
        self.world().now
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let stage = self.clone();
        Box::pin(poll_fn(move |_| {
            let mut world = stage.world();
            if std::mem::take(&mut world.stalled) {
                return Poll::Pending;
            }
            world.now = world.now.max(deadline);
            Poll::Ready(())
        }))
    }
}

#[async_trait]
impl Transport for Stage {
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, TransportError> {
        let mut world = self.world();
        world.note(target, "connect");
        let server = world.servers.get(target).filter(|server| server.up);
        let Some(process) = server.map(|server| server.process) else {
            return Err(TransportError::network(ErrorStage::Connect, "refused"));
        };
        let _ = deadline;
        world.open += 1;
        world.connections += 1;
        Ok(Box::new(Line {
            stage: self.clone(),
            target: target.clone(),
            number: world.connections,
            process,
            deadline: None,
            asked: None,
            asked_at: world.now,
        }))
    }
}

/// An open connection.
#[derive(Debug)]
struct Line {
    stage: Stage,
    target: ServerAddress,
    number: i64,
    process: u64,
    deadline: Option<Instant>,
    asked: Option<WireMessage>,
    asked_at: Instant,
}

impl Line {
    fn answer(&mut self) -> Result<WireMessage, TransportError> {
        let stage = self.stage.clone();
        let mut world = stage.world();
        let server = world.servers.get(&self.target).unwrap().clone();
        let asked = self.asked.take().expect("nothing was asked");
        if server.process != self.process {
            return Err(TransportError::network(ErrorStage::Hello, "reset by peer"));
        }
        let ready = self.asked_at + Duration::from_millis(server.delay);
        world
            .wait((!server.silent).then_some(ready), self.deadline)
            .map_err(|()| TransportError::timeout(ErrorStage::Hello, "no reply"))?;
        let command = command(&asked);
        let mut reply = match &*command {
            "hello" | "isMaster" => server.hello,
            _ => server.other,
        };
        if reply.get("ok") == Some(&1.into()) && command.len() > 4 {
            reply.insert("connectionId", self.number);
        }
        let body = RawDocumentBuf::try_from(&reply).unwrap().into_bytes();
        let reply = OpMsg {
            request_id: 1000 + asked.request_id(),
            response_to: asked.request_id(),
            body: &body,
            ..OpMsg::default()
        };
        Ok(reply.encode().unwrap())
    }
}

#[async_trait]
impl Connection for Line {
    async fn send(&mut self, message: WireMessage) -> Result<(), TransportError> {
        let mut what = command(&message);
        let body = RawDocument::from_bytes(message.body()).unwrap();
        if body.get("topologyVersion").unwrap().is_some() || message.exhaust_allowed() {
            what.push_str(" awaited");
        }
        let mut world = self.stage.world();
        world.note(&self.target, &what);
        self.asked_at = world.now;
        self.asked = Some(message);
        Ok(())
    }

    async fn recv(&mut self) -> Result<WireMessage, TransportError> {
        poll_fn(|_| {
            let mut world = self.stage.world();
            if world.stalls > 0 {
                world.stalls -= 1;
                world.stalled = true;
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        self.answer()
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stage.world().open -= 1;
    }
}

/// Returns the name of the command in a message.
fn command(message: &WireMessage) -> String {
    let body = RawDocument::from_bytes(message.body()).unwrap();
    let (name, _) = body.iter().next().unwrap().unwrap();
    name.to_string()
}

/// Returns the result of a future that must not be pending.
pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("a future is pending")
}

pub(crate) fn address(name: &str) -> ServerAddress {
    ServerAddress::new(name, 27017)
}

fn addresses(names: &str) -> Vec<ServerAddress> {
    names.split_whitespace().map(address).collect()
}

/// Builds the hello reply of a member of the set `rs` with streaming support.
pub(crate) fn member(primary: bool, members: &str) -> Document {
    let hosts: Vec<String> = addresses(members).iter().map(ToString::to_string).collect();
    doc! {
        "ok": 1,
        "helloOk": true,
        "isWritablePrimary": primary,
        "secondary": !primary,
        "setName": "rs",
        "setVersion": 1,
        "hosts": hosts,
        "minWireVersion": 0,
        "maxWireVersion": 21,
        "lastWrite": { "lastWriteDate": bson::DateTime::from_millis(1_000) },
        "topologyVersion": { "processId": ObjectId::from_bytes([1; 12]), "counter": 1_i64 },
    }
}

/// Builds the hello reply of a mongos.
pub(crate) fn mongos() -> Document {
    doc! { "ok": 1, "helloOk": true, "isWritablePrimary": true, "msg": "isdbgrid", "maxWireVersion": 21 }
}

/// Builds an error reply with this code.
pub(crate) fn refusal(code: i32) -> Document {
    doc! { "ok": 0, "code": code, "errmsg": "no" }
}

pub(crate) fn bytes(document: &Document) -> Vec<u8> {
    RawDocumentBuf::try_from(document).unwrap().into_bytes()
}

pub(crate) fn read(mode: ReadMode) -> Criteria {
    Criteria::read(ReadPreference::new(mode)).unwrap()
}

/// Returns the host that is selected for writing, or the error.
pub(crate) fn select(topology: &mut ScanTopology) -> Result<String, String> {
    let selected = ready(topology.select(&Criteria::write()));
    selected
        .map(|selected| selected.address().host().to_string())
        .map_err(|error| error.to_string())
}

pub(crate) fn id(topology: &ScanTopology, name: &str) -> ServerId {
    let description = topology.description();
    description.server(&address(name)).unwrap().id
}

pub(crate) fn kind(topology: &ScanTopology, name: &str) -> ServerType {
    let description = topology.description();
    description.server(&address(name)).unwrap().server_type
}

/// Returns a summary of all events, one word or two for each.
pub(crate) fn told(events: &mut EventStream) -> Vec<String> {
    std::iter::from_fn(|| events.try_next())
        .map(|event| brief(&event))
        .collect()
}

fn brief(event: &Event) -> String {
    let name = event.kind.name().as_str();
    let name = name.strip_prefix("Server").unwrap_or(name);
    match (&event.kind, event.kind.address()) {
        (EventKind::TopologyDescriptionChanged { new, .. }, _) => {
            format!("Topology{}", new.topology_type())
        }
        (EventKind::ServerDescriptionChanged { new, .. }, Some(address)) => {
            format!("{} {}", new.server_type, address.host())
        }
        (_, Some(address)) => format!("{name} {}", address.host()),
        (_, None) => name.to_string(),
    }
}
