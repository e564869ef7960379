//! A fixture that consists of a deployment, a virtual clock, and the client ends of connections.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use bson::{Document, doc, oid::ObjectId};
use sdam_core::{address::ServerAddress, rng::Rng, time::Instant};
use sdam_sim::{
    Action, Blueprint, Cluster, ConnectionId, MemberId, Output, Outputs,
    config::{MemberConfig, SetConfig},
    deployment::{MemberStatus, Role, Status},
    version::ServerVersion,
};
use sdam_transport::wire::{OpMsg, WireMessage};

pub(crate) struct Fixture {
    pub(crate) deployment: Cluster,
    pub(crate) now: Instant,
    received: BTreeMap<ConnectionId, VecDeque<WireMessage>>,
    closed: BTreeSet<ConnectionId>,
    requests: i32,
}

/// The parsed reply to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) response_to: i32,
    pub(crate) more_to_come: bool,
    pub(crate) body: Document,
}

/// Returns the address of member `number`. It is the same in all deployments of these tests.
pub(crate) fn address(number: u16) -> ServerAddress {
    ServerAddress::new("sim", 27017 + number)
}

pub(crate) fn addresses(count: u16) -> impl Iterator<Item = ServerAddress> {
    (0..count).map(address)
}

/// Returns the configuration of a replica set with these members, in this order.
pub(crate) fn set(members: impl IntoIterator<Item = MemberConfig>) -> SetConfig {
    let mut config = SetConfig::new("rs0", []);
    config.members.extend(members);
    config
}

impl Fixture {
    pub(crate) fn new(blueprint: &Blueprint) -> Self {
        Self::seeded(blueprint, 1)
    }

    pub(crate) fn seeded(blueprint: &Blueprint, seed: u64) -> Self {
        Self {
            deployment: Cluster::start(Instant::EPOCH, blueprint, Rng::new(seed)),
            now: Instant::EPOCH,
            received: BTreeMap::new(),
            closed: BTreeSet::new(),
            requests: 0,
        }
    }

    pub(crate) fn replica_set(members: u16) -> Self {
        Self::replica_set_of(members, ServerVersion::default())
    }

    pub(crate) fn replica_set_of(members: u16, version: ServerVersion) -> Self {
        let config = SetConfig::new("rs0", addresses(members));
        Self::new(&Blueprint::replica_set(config).version(version))
    }

    pub(crate) fn configured(members: impl IntoIterator<Item = MemberConfig>) -> Self {
        Self::new(&Blueprint::replica_set(set(members)))
    }

    pub(crate) fn standalone() -> Self {
        Self::new(&Blueprint::standalone().at([address(0)]))
    }

    pub(crate) fn sharded(mongoses: u16) -> Self {
        Self::new(&Blueprint::sharded(mongoses).at(addresses(mongoses)))
    }

    pub(crate) fn connect(&mut self, member: u16) -> ConnectionId {
        self.try_connect(member).expect("the member must listen")
    }

    pub(crate) fn try_connect(&mut self, member: u16) -> Option<ConnectionId> {
        self.deployment.open(MemberId(member))
    }

    /// Sends an OP_MSG and returns its request id.
    pub(crate) fn send(&mut self, connection: ConnectionId, body: &Document) -> i32 {
        self.send_msg(connection, false, body)
    }

    pub(crate) fn send_exhaust(&mut self, connection: ConnectionId, body: &Document) -> i32 {
        self.send_msg(connection, true, body)
    }

    fn send_msg(
        &mut self,
        connection: ConnectionId,
        exhaust_allowed: bool,
        body: &Document,
    ) -> i32 {
        self.requests += 1;
        let message = OpMsg {
            request_id: self.requests,
            exhaust_allowed,
            body: &body.to_vec().unwrap(),
            ..OpMsg::default()
        };
        self.send_message(connection, &message.encode().unwrap());
        self.requests
    }

    pub(crate) fn send_message(&mut self, connection: ConnectionId, message: &WireMessage) {
        self.send_bytes(connection, message.as_bytes());
    }

    pub(crate) fn send_bytes(&mut self, connection: ConnectionId, bytes: &[u8]) {
        let outputs = self.deployment.receive(self.now, connection, bytes);
        self.take(outputs);
    }

    /// Returns the next reply on `connection`, if it has arrived.
    pub(crate) fn try_receive(&mut self, connection: ConnectionId) -> Option<Reply> {
        let message = self.received.get_mut(&connection)?.pop_front()?;
        Some(Reply {
            response_to: message.response_to(),
            more_to_come: message.more_to_come(),
            body: Document::from_reader(message.body()).unwrap(),
        })
    }

    pub(crate) fn receive(&mut self, connection: ConnectionId) -> Reply {
        self.try_receive(connection).expect("a reply must have arrived")
    }

    /// Returns the latest reply that has arrived on `connection`.
    pub(crate) fn receive_last(&mut self, connection: ConnectionId) -> Reply {
        let mut last = self.receive(connection);
        while let Some(next) = self.try_receive(connection) {
            last = next;
        }
        last
    }

    /// Sends a command and returns the body of its reply, which must arrive immediately.
    pub(crate) fn call(&mut self, connection: ConnectionId, body: &Document) -> Document {
        self.send(connection, body);
        self.receive(connection).body
    }

    /// Returns the reply to `body` on a new connection.
    pub(crate) fn call_member(&mut self, member: u16, body: &Document) -> Document {
        let connection = self.connect(member);
        let reply = self.call(connection, body);
        self.deployment.closed(connection);
        reply
    }

    pub(crate) fn hello(&mut self, member: u16) -> Document {
        self.call_member(member, &hello())
    }

    /// Opens a connection to a member, and sends a hello followed by an awaitable hello that allows
    /// streaming. Returns the connection, the reply to the first hello, and the id of the second
    /// request.
    pub(crate) fn stream(&mut self, member: u16, millis: i64) -> (ConnectionId, Document, i32) {
        let connection = self.connect(member);
        let known = self.call(connection, &hello());
        let id = self.send_exhaust(connection, &awaiting(&known, millis));
        (connection, known, id)
    }

    pub(crate) fn is_closed(&self, connection: ConnectionId) -> bool {
        self.closed.contains(&connection)
    }

    /// Advances time by `duration`, and handles each deadline as it is reached.
    pub(crate) fn advance(&mut self, duration: Duration) {
        let until = self.now + duration;
        while let Some(deadline) = self.deployment.next_deadline().filter(|at| *at <= until) {
            self.now = deadline.max(self.now);
            let outputs = self.deployment.advance(self.now);
            self.take(outputs);
        }
        self.now = until;
    }

    pub(crate) fn advance_millis(&mut self, millis: u64) {
        self.advance(Duration::from_millis(millis));
    }

    /// Applies the action that `line` describes.
    pub(crate) fn run(&mut self, line: &str) {
        let action: Action = line.parse().unwrap();
        let outputs = self.deployment.apply(self.now, &action).unwrap();
        self.take(outputs);
    }

    pub(crate) fn refuse(&mut self, line: &str) -> String {
        let action: Action = line.parse().unwrap();
        let refusal = self.deployment.apply(self.now, &action);
        refusal.unwrap_err().to_string()
    }

    pub(crate) fn status(&self) -> Status {
        self.deployment.status()
    }

    pub(crate) fn member(&self, member: u16) -> MemberStatus {
        self.status().members[usize::from(member)].clone()
    }

    pub(crate) fn role(&self, member: u16) -> Role {
        self.member(member).role.unwrap()
    }

    pub(crate) fn roles(&self) -> Vec<Role> {
        let members = self.status().members;
        members.iter().map(|member| member.role.unwrap()).collect()
    }

    /// Returns the member to which clients should write.
    pub(crate) fn primary(&self) -> Option<u16> {
        self.status().primary().map(|primary| primary.id.0)
    }

    fn take(&mut self, outputs: Outputs) {
        for output in outputs {
            match output {
                Output::Send { connection, bytes } => {
                    let message = WireMessage::decode(bytes).unwrap();
                    self.received.entry(connection).or_default().push_back(message);
                }
                Output::Close { connection } => {
                    self.closed.insert(connection);
                }
                _ => {}
            }
        }
    }
}

pub(crate) fn hello() -> Document {
    doc! { "hello": 1, "$db": "admin" }
}

pub(crate) fn ping() -> Document {
    doc! { "ping": 1, "$db": "admin" }
}

/// Returns a write of an empty document.
pub(crate) fn insert() -> Document {
    doc! { "insert": "things", "documents": [{}], "$db": "test" }
}

/// Returns a hello that waits for a newer topology version than the one in `reply`.
pub(crate) fn awaiting(reply: &Document, max_await_time_ms: i64) -> Document {
    doc! {
        "hello": 1,
        "topologyVersion": reply.get_document("topologyVersion").unwrap(),
        "maxAwaitTimeMS": max_await_time_ms,
        "$db": "admin",
    }
}

pub(crate) fn counter(reply: &Document) -> i64 {
    let version = reply.get_document("topologyVersion").unwrap();
    version.get_i64("counter").unwrap()
}

pub(crate) fn process(reply: &Document) -> ObjectId {
    let version = reply.get_document("topologyVersion").unwrap();
    version.get_object_id("processId").unwrap()
}

pub(crate) fn is_ok(reply: &Document) -> bool {
    reply.get_f64("ok").unwrap() > 0.5
}

pub(crate) fn code(reply: &Document) -> i32 {
    assert!(!is_ok(reply), "{reply}");
    reply.get_i32("code").unwrap()
}

pub(crate) fn is_primary(reply: &Document) -> bool {
    reply.get_bool("isWritablePrimary").unwrap()
}
