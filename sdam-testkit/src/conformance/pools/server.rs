//! The simulated server of the pool under test.

use std::{
    future::{pending, poll_fn},
    mem,
    sync::{Arc, Mutex, MutexGuard},
    task::{Poll, Waker},
};

use async_trait::async_trait;
use sdam_core::{
    address::ServerAddress,
    document::DocumentWriter,
    error::{Error, Stage},
    ids::ObjectId,
    time::Instant,
};

use super::host::{TopologyLock, lock};
use sdam_transport::{
    connect::{Connection, Transport},
    error,
    wire::{OpMsg, WireMessage},
};

/// The server's reaction to connection attempts, hellos or other commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Gate {
    /// Attempts and commands succeed immediately.
    #[default]
    Open,
    /// Attempts and commands wait until the gate changes.
    Held,
    /// Attempts and commands fail immediately.
    Broken,
}

/// A function that sets one of a server's gates.
pub(super) type SetGate = fn(&Server, Gate);

/// A message that is not a valid reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadReply {
    /// A reply to an earlier request, which is sent before the correct reply.
    Stray,
    /// A reply to a request that was not sent.
    WrongResponseTo,
    /// A reply without `ok`.
    NoOk,
    /// A reply that is not BSON.
    Malformed,
}

/// A simulated server. Clones share the state.
#[derive(Clone, Debug)]
pub(super) struct Server {
    state: Arc<Mutex<ServerGates>>,
    lock: Arc<TopologyLock>,
}

#[derive(Debug, Default)]
pub(super) struct ServerGates {
    connects: Gate,
    hellos: Gate,
    commands: Gate,
    /// The kind of invalid reply to send to the next command; `None` to send a valid one.
    bad_reply: Option<BadReply>,
    /// The service to which new connections lead.
    service: Option<ObjectId>,
    /// The number of connection attempts.
    pub(super) attempts: usize,
    /// The number of hellos.
    pub(super) hellos_sent: usize,
    /// The current number of connections whose hello has not been answered, and the maximum of that
    /// number so far.
    pub(super) opening: usize,
    pub(super) most_opening: usize,
    /// The state of each socket: true if it is open.
    sockets: Vec<bool>,
    /// The maximum number of sockets that were open at the same time.
    pub(super) most_open: usize,
    /// The sockets on which commands other than hello arrived, in order of arrival.
    pub(super) arrivals: Vec<usize>,
    wakers: Vec<Waker>,
}

impl Server {
    pub(super) fn new(lock: Arc<TopologyLock>) -> Self {
        Self { state: Arc::default(), lock }
    }

    pub(super) fn connects(&self, gate: Gate) {
        self.change(|state| state.connects = gate);
    }

    pub(super) fn hellos(&self, gate: Gate) {
        self.change(|state| state.hellos = gate);
    }

    pub(super) fn commands(&self, gate: Gate) {
        self.change(|state| state.commands = gate);
    }

    /// Makes the reply to the next command invalid.
    pub(super) fn reply_badly(&self, bad: BadReply) {
        self.change(|state| state.bad_reply = Some(bad));
    }

    /// Sets the service to which new connections lead.
    pub(super) fn lead_to(&self, service: ObjectId) {
        self.change(|state| state.service = Some(service));
    }

    pub(super) fn is_open(&self, socket: usize) -> bool {
        self.state().sockets.get(socket) == Some(&true)
    }

    fn change(&self, change: impl FnOnce(&mut ServerGates)) {
        let mut state = self.state();
        change(&mut state);
        let wakers = mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits as long as the gate is held. Then returns whether the gate is open.
    async fn pass(&self, gate: impl Fn(&ServerGates) -> Gate) -> bool {
        poll_fn(|cx| {
            let mut state = self.state();
            match gate(&state) {
                Gate::Open => Poll::Ready(true),
                Gate::Broken => Poll::Ready(false),
                Gate::Held => {
                    state.wakers.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Returns the recorded state of the server.
    pub(super) fn state(&self) -> MutexGuard<'_, ServerGates> {
        lock(&self.state)
    }
}

impl ServerGates {
    /// Returns the number of open sockets.
    pub(super) fn open(&self) -> usize {
        self.sockets.iter().filter(|open| **open).count()
    }
}

/// A connection that is being opened. It counts as opening until its hello is answered.
#[derive(Debug)]
struct Opening(Server);

impl Opening {
    fn begin(server: &Server) -> Self {
        let mut state = server.state();
        state.attempts += 1;
        state.opening += 1;
        state.most_opening = state.most_opening.max(state.opening);
        Self(server.clone())
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.change(|state| state.opening -= 1);
    }
}

#[async_trait]
impl Transport for Server {
    async fn connect(
        &self,
        _: &ServerAddress,
        _: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        self.lock.note("it opens a connection");
        let opening = Opening::begin(self);
        if !self.pass(|state| state.connects).await {
            return Err(Error::network(Stage::Connect, "refused"));
        }
        let mut state = self.state();
        let number = state.sockets.len();
        state.sockets.push(true);
        state.most_open = state.most_open.max(state.open());
        let service = state.service;
        drop(state);
        Ok(Box::new(Socket {
            server: self.clone(),
            number,
            service,
            opening: Some(opening),
            request: None,
        }))
    }
}

#[derive(Debug)]
struct Socket {
    server: Server,
    number: usize,
    service: Option<ObjectId>,
    /// The attempt to open the connection; `None` once hello is answered.
    opening: Option<Opening>,
    request: Option<WireMessage>,
}

#[async_trait]
impl Connection for Socket {
    async fn send(&mut self, message: WireMessage) -> Result<(), Error> {
        let (is_hello, number) = (self.opening.is_some(), self.number);
        self.server.change(|state| {
            if is_hello {
                state.hellos_sent += 1;
            } else {
                state.arrivals.push(number);
            }
        });
        self.request = Some(message);
        Ok(())
    }

    async fn recv(&mut self) -> Result<WireMessage, Error> {
        let Some(request) = self.request.take() else {
            return pending().await;
        };
        let is_hello = self.opening.is_some();
        let gate = |state: &ServerGates| {
            if is_hello { state.hellos } else { state.commands }
        };
        if !self.server.pass(gate).await {
            return Err(Error::network(Stage::Hello, "the connection broke"));
        }
        let asked = request.request_id();
        if self.opening.take().is_some() {
            return reply(asked, &hello(self.service));
        }
        match self.server.state().bad_reply.take() {
            None => reply(asked, &success()),
            Some(BadReply::Stray) => {
                self.request = Some(request);
                reply(asked - 1, &success())
            }
            Some(BadReply::WrongResponseTo) => reply(asked + 1, &success()),
            Some(BadReply::NoOk) => reply(asked, &DocumentWriter::new().finish()),
            Some(BadReply::Malformed) => {
                let mut body = success();
                // Replaces the type of the first element, which follows the length of the document,
                // with a type that BSON does not define.
                body[4] = 0x7E;
                reply(asked, &body)
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.server.lock.note("it closes a socket");
        let number = self.number;
        self.server.change(|state| {
            if let Some(open) = state.sockets.get_mut(number) {
                *open = false;
            }
        });
    }
}

fn reply(response_to: i32, body: &[u8]) -> Result<WireMessage, Error> {
    let reply = OpMsg { request_id: 1, response_to, body, ..OpMsg::default() };
    reply.encode().map_err(|error| error::from_wire(Stage::Hello, error))
}

/// Returns the hello reply of a standalone server, or of a service behind a load balancer.
fn hello(service: Option<ObjectId>) -> Vec<u8> {
    let mut reply = DocumentWriter::new();
    reply.int32("ok", 1);
    reply.boolean("helloOk", true);
    reply.boolean("isWritablePrimary", true);
    reply.int32("minWireVersion", 0);
    reply.int32("maxWireVersion", 25);
    if let Some(service) = service {
        reply.text("msg", "isdbgrid");
        reply.object_id("serviceId", service);
    }
    reply.finish()
}

fn success() -> Vec<u8> {
    let mut reply = DocumentWriter::new();
    reply.int32("ok", 1);
    reply.finish()
}
