//! Tests single-threaded mode with a scripted transport, in virtual time. Futures are pending only
//! if a test stalls the transport.

mod cancelling;
mod connections;
mod errors;
mod events;
mod scanning;

use std::future::Future;

use bson::oid::ObjectId;
use sdam::{ErrorKind, error::ErrorOutcome};
use sdam_testkit::{Reply, fixed_reply};

use super::*;

/// The default random seed of tests.
const SEED: u64 = 7;

/// All events except the recorded inputs.
const EVENTS: Interest = Interest::ALL.without(Interest::INPUTS);

/// The error message for a server that refuses connections because the test has never
/// [served](Harness::serve) it.
const ABSENT: &str = "no server is running";

/// The environment of the topology: servers, clock and log.
#[derive(Clone, Debug)]
struct Harness {
    clock: ManualClock,
    servers: Servers,
}

impl Default for Harness {
    fn default() -> Self {
        let clock = ManualClock::jumping();
        let absent = Server {
            delay: Duration::from_millis(1),
            other: reply(&doc! { "ok": 1 }),
            ..Server::refusing(ABSENT)
        };
        Self { servers: Servers::new(clock.clone(), absent), clock }
    }
}

impl Harness {
    /// Sets the server's reply to hello. A new server is up at once, and its replies take 1 ms.
    fn serve(&self, name: &str, hello: Document) {
        let hello: Reply = Arc::new(move |request| {
            let mut reply = hello.clone();
            if reply.get("ok") == Some(&1.into()) {
                reply.insert("connectionId", request.connection);
            }
            Some(bytes(&reply))
        });
        self.change(name, |server| {
            server.refusal.take_if(|refusal| refusal == ABSENT);
            server.hello = hello;
        });
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Server)) {
        self.servers.change(&address(name), change);
    }

    /// Breaks all connections to a server.
    fn restart(&self, name: &str) {
        self.servers.restart(&address(name));
    }

    fn kill(&self, name: &str) {
        self.change(name, |server| server.refusal = Some("refused".to_owned()));
        self.restart(name);
    }

    fn revive(&self, name: &str) {
        self.change(name, |server| server.refusal = None);
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    fn millis(&self) -> u64 {
        self.clock.now().since(Instant::EPOCH).as_millis() as u64
    }

    /// Returns and clears the log of requests, such as `a connect, a isMaster`.
    fn log(&self) -> String {
        self.servers.take_log().join(", ")
    }

    /// Returns the number of open connections.
    fn open(&self) -> usize {
        self.servers.connections()
    }

    /// Makes the next receive operation return pending when it is first polled.
    fn stall(&self) {
        self.servers.stall();
    }

    fn backend(&self, seed: u64) -> Backend {
        let (clock, servers) = (self.clock.clone(), self.servers.clone());
        Backend::new(Arc::new(clock), Arc::new(servers), seed)
    }

    /// Starts a topology with these seeds.
    fn topology(
        &self,
        seeds: &str,
        change: impl FnOnce(&mut Options),
    ) -> (ScanTopology, EventStream) {
        self.build(seeds, |builder| builder.options(change))
    }

    fn build<P: PoolHandle>(
        &self,
        seeds: &str,
        change: impl FnOnce(TopologyBuilder) -> TopologyBuilder<P>,
    ) -> (ScanTopology<P>, EventStream) {
        let (sink, events) = unbounded();
        let builder = TopologyBuilder::new(Options::new(addresses(seeds)));
        let builder = change(builder).sink(sink.interested_in(EVENTS));
        (builder.scan(self.backend(SEED)).unwrap(), events)
    }

    /// Starts a topology of a replica set with the seeds `a` (primary), `b` and `c` (secondaries).
    fn replica_set(&self, change: impl FnOnce(&mut Options)) -> (ScanTopology, EventStream) {
        self.replica_set_with(|builder| builder.options(change))
    }

    /// Starts a topology of the same set as [`replica_set`](Self::replica_set), with a builder that
    /// `change` has modified.
    fn replica_set_with<P: PoolHandle>(
        &self,
        change: impl FnOnce(TopologyBuilder) -> TopologyBuilder<P>,
    ) -> (ScanTopology<P>, EventStream) {
        self.serve("a", member(true, "a b c"));
        self.serve("b", member(false, "a b c"));
        self.serve("c", member(false, "a b c"));
        self.build("a b c", |builder| {
            change(builder.options(|options| options.replica_set = Some("rs".into())))
        })
    }
}

/// Starts a topology of the replica set, and selects its primary once. The log and the events begin
/// after this selection.
fn scanned() -> (Harness, ScanTopology, EventStream) {
    let harness = Harness::default();
    let (mut topology, mut events) = harness.replica_set(|_| ());
    select(&mut topology).unwrap();
    harness.log();
    drain(&mut events);
    (harness, topology, events)
}

/// Returns the result of a future that must not be pending.
fn ready<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("a future is pending")
}

fn address(name: &str) -> ServerAddress {
    ServerAddress::new(name, 27017)
}

fn addresses(names: &str) -> Vec<ServerAddress> {
    names.split_whitespace().map(address).collect()
}

/// Builds the hello reply of a member of the set `rs` with streaming support.
fn member(primary: bool, members: &str) -> Document {
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
fn mongos() -> Document {
    doc! { "ok": 1, "helloOk": true, "isWritablePrimary": true, "msg": "isdbgrid", "maxWireVersion": 21 }
}

/// Builds an error reply with this code.
fn refusal(code: i32) -> Document {
    doc! { "ok": 0, "code": code, "errmsg": "no" }
}

/// Returns `document` as the reply to every request.
fn reply(document: &Document) -> Reply {
    fixed_reply(Some(bytes(document)))
}

fn bytes(document: &Document) -> Vec<u8> {
    document.to_vec().unwrap()
}

/// Returns the host selected for writing, or the error.
fn select<P: PoolHandle>(topology: &mut ScanTopology<P>) -> Result<String, String> {
    let selected = ready(topology.select(&Criteria::write()));
    selected
        .map(|selected| selected.address().host().to_string())
        .map_err(|error| error.to_string())
}

fn id<P: PoolHandle>(topology: &ScanTopology<P>, name: &str) -> ServerId {
    let description = topology.description();
    description.server(&address(name)).unwrap().id
}

fn kind(topology: &ScanTopology, name: &str) -> ServerType {
    let description = topology.description();
    description.server(&address(name)).unwrap().server_type
}

/// Summarizes each event in one or two words.
fn summaries(events: &mut EventStream) -> Vec<String> {
    drain(events).iter().map(summary).collect()
}

fn summary(event: &Event) -> String {
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
