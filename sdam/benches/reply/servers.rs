//! Servers without sockets, which answer in the call that sends the request.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
};

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, oid::ObjectId, rawdoc};
use futures::io::{AsyncRead, AsyncWrite};
use sdam::{Connection, Error, ServerAddress, Transport, async_trait, runtime::Instant};
use sdam_testkit::reply_to;
use sdam_transport::{
    framed::Framed,
    stream::NonBlocking,
    wire::{OpMsg, WireMessage},
};

/// The servers: either members of a replica set, the first of which is primary, or routers.
///
/// All memory is allocated at the start, so that measurements of the client do not include it.
#[derive(Clone)]
pub(crate) struct Servers {
    members: Arc<Vec<ServerAddress>>,
    is_sharded: bool,
    state: Arc<Mutex<State>>,
}

struct State {
    servers: Vec<Server>,
    /// The sockets of all servers, [`SOCKETS`] for each.
    sockets: Vec<Socket>,
    /// The number of pushes so far.
    pushes: usize,
}

struct Server {
    reply: Vec<u8>,
    /// A message that contains `reply` and announces another message.
    pushed: Vec<u8>,
    /// The position of `topologyVersion.counter` in `pushed`.
    counter: usize,
    opened: usize,
    /// The socket that awaits a change.
    stream: Option<usize>,
}

#[derive(Default)]
struct Socket {
    unread: Vec<u8>,
    /// The number of bytes of `unread` that the client has already read.
    read: usize,
    reader: Option<Waker>,
    /// The `responseTo` of the next reply.
    answered: i32,
}

/// The client's end of a socket.
struct End {
    servers: Servers,
    socket: usize,
}

/// The number of sockets for each server: one for checks, and one for round-trip times.
const SOCKETS: usize = 2;

/// The first `topologyVersion.counter`. Its bytes occur only once in a reply, so their position can
/// be found.
const COUNTER: i64 = 0x0123_4567_89AB_CDEF;

impl Servers {
    pub(crate) fn new(number: u16, is_sharded: bool) -> Self {
        let address = |index| ServerAddress::new("db.lan", 20_000 + index);
        let members: Vec<_> = (0..number).map(address).collect();
        let server =
            |index| Server::new(hello(index, (!is_sharded).then_some(&members[..]), COUNTER));
        let servers: Vec<_> = (0..members.len()).map(server).collect();
        let socket = |index: usize| Socket {
            unread: Vec::with_capacity(servers[index / SOCKETS].pushed.len()),
            ..Socket::default()
        };
        Self {
            is_sharded,
            state: Arc::new(Mutex::new(State {
                sockets: (0..members.len() * SOCKETS).map(socket).collect(),
                servers,
                pushes: 0,
            })),
            members: Arc::new(members),
        }
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap()
    }

    /// Returns the connection string. Heartbeats take an hour, so that only pushes are sent.
    pub(crate) fn uri(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(ServerAddress::as_str).collect();
        let hosts = hosts.join(",");
        let set = if self.is_sharded { "" } else { "&replicaSet=rs" };
        format!("mongodb://{hosts}/?heartbeatFrequencyMS=3600000{set}")
    }

    pub(crate) fn all_stream(&self) -> bool {
        let state = self.lock();
        state.servers.iter().all(|server| server.stream.is_some())
    }

    /// Pushes a changed reply from the next server in turn.
    pub(crate) fn push(&self) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.pushes += 1;
        let turn = state.pushes % state.servers.len();
        let counter = COUNTER + i64::try_from(state.pushes).unwrap();
        let server = &mut state.servers[turn];
        let socket = &mut state.sockets[server.stream.unwrap()];
        let message = &mut server.pushed;
        let mut set = |place: usize, bytes: &[u8]| {
            message[place..place + bytes.len()].copy_from_slice(bytes);
        };
        // Sets the request id and `responseTo` in the header.
        set(4, &(socket.answered + 1).to_le_bytes());
        set(8, &socket.answered.to_le_bytes());
        set(server.counter, &counter.to_le_bytes());
        socket.answered += 1;
        let reader = socket.fill(message);
        drop(guard);
        reader.unwrap().wake();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Server {
    fn new(reply: Vec<u8>) -> Self {
        let message = OpMsg { more_to_come: true, body: &reply, ..OpMsg::default() };
        let pushed = message.encode().unwrap().into_bytes();
        let marked = COUNTER.to_le_bytes();
        let counter = pushed.windows(marked.len()).position(|own| own == marked);
        Self { reply, pushed, counter: counter.unwrap(), opened: 0, stream: None }
    }
}

impl Socket {
    /// Makes `message` readable, and returns the waker of the reader.
    fn fill(&mut self, message: &[u8]) -> Option<Waker> {
        self.unread.clear();
        self.unread.extend_from_slice(message);
        self.read = 0;
        self.reader.take()
    }
}

/// Returns a hello reply from a router, or from a member of a replica set.
pub(crate) fn hello(index: usize, members: Option<&[ServerAddress]>, counter: i64) -> Vec<u8> {
    let version = rawdoc! { "processId": ObjectId::from_bytes([7; 12]), "counter": counter };
    let limits = rawdoc! {
        "helloOk": true,
        "topologyVersion": version,
        "maxBsonObjectSize": 16_777_216,
        "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000,
        "logicalSessionTimeoutMinutes": 30,
        "minWireVersion": 0,
        "maxWireVersion": 17,
        "readOnly": false,
        "ok": 1.0,
    };
    let Some(members) = members else {
        let mut reply = rawdoc! { "msg": "isdbgrid" };
        extend(&mut reply, &limits);
        return reply.into_bytes();
    };
    let mut hosts = RawArrayBuf::new();
    for member in members {
        hosts.push(member.as_str());
    }
    let mut reply = rawdoc! {
        "hosts": hosts,
        "setName": "rs",
        "setVersion": 1,
        "isWritablePrimary": index == 0,
        "secondary": index != 0,
        "me": members[index].as_str(),
        "electionId": ObjectId::from_bytes([8; 12]),
        "lastWrite": { "lastWriteDate": bson::DateTime::from_millis(1_700_000_000_000) },
    };
    extend(&mut reply, &limits);
    reply.into_bytes()
}

fn extend(reply: &mut RawDocumentBuf, fields: &RawDocument) {
    for field in fields {
        let (key, value) = field.unwrap();
        reply.append(key, value);
    }
}

#[async_trait]
impl Transport for Servers {
    async fn connect(
        &self,
        target: &ServerAddress,
        _deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        let index = self.members.binary_search(target).unwrap();
        let server = &mut self.lock().servers[index];
        let socket = index * SOCKETS + server.opened;
        server.opened += 1;
        assert!(server.opened <= SOCKETS, "another connection is opened");
        let servers = self.clone();
        Ok(Box::new(Framed::new(NonBlocking(End { servers, socket }))))
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let socket = &mut self.servers.lock().sockets[self.socket];
        let unread = &socket.unread[socket.read..];
        if unread.is_empty() {
            socket.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let length = space.len().min(unread.len());
        space[..length].copy_from_slice(&unread[..length]);
        socket.read += length;
        Poll::Ready(Ok(length))
    }
}

impl AsyncWrite for End {
    /// Accepts a whole request, because the client writes each request at once.
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let request = WireMessage::decode(bytes.to_vec()).unwrap();
        let mut guard = self.servers.lock();
        let state = &mut *guard;
        let server = &mut state.servers[self.socket / SOCKETS];
        let socket = &mut state.sockets[self.socket];
        if request.exhaust_allowed() {
            socket.answered = request.request_id();
            server.stream = Some(self.socket);
        } else {
            let reply = reply_to(&request, &server.reply).unwrap();
            socket.fill(reply.as_bytes());
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

sdam_core::opaque!(Servers);

sdam_core::opaque!(End);
