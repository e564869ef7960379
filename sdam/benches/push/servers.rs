//! A replica set whose members are threads, and which pushes changed replies on request.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use bson::{RawArrayBuf, oid::ObjectId, rawdoc};
use sdam::ServerAddress;
use sdam_testkit::reply_to;
use sdam_transport::wire::{OpMsg, WireMessage};

/// The members; the first one is primary.
pub(crate) struct Servers {
    members: Arc<Vec<ServerAddress>>,
    streams: Arc<Streams>,
    /// The current `topologyVersion.counter`.
    counter: i64,
}

/// The connections that await a change, grouped by member.
#[derive(Default)]
struct Streams {
    open: Mutex<Vec<Option<Stream>>>,
    opened: Condvar,
}

/// A connection whose request is answered on the next change.
struct Stream {
    socket: TcpStream,
    /// The `responseTo` of the next reply: first the id of the request, then the id of the previous
    /// reply.
    answered: i32,
}

impl Servers {
    /// The approximate size of a reply.
    pub(crate) const REPLY_SIZE: usize = 400;

    pub(crate) fn start(number: usize) -> Self {
        let listeners: Vec<_> =
            (0..number).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let members = listeners.iter().map(|listener| {
            let port = listener.local_addr().unwrap().port();
            ServerAddress::new("127.0.0.1", port)
        });
        let members = Arc::new(members.collect::<Vec<_>>());
        let streams = Arc::<Streams>::default();
        streams.open.lock().unwrap().resize_with(number, || None);
        for (index, listener) in listeners.into_iter().enumerate() {
            let (members, streams) = (Arc::clone(&members), Arc::clone(&streams));
            thread::spawn(move || {
                for socket in listener.incoming() {
                    let (members, streams) = (Arc::clone(&members), Arc::clone(&streams));
                    let socket = socket.unwrap();
                    thread::spawn(move || serve(socket, index, &members, &streams));
                }
            });
        }
        Self { members, streams, counter: 1 }
    }

    /// Returns the connection string. Heartbeats take an hour, so that only pushes are sent.
    pub(crate) fn uri(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(ServerAddress::as_str).collect();
        let hosts = hosts.join(",");
        format!("mongodb://{hosts}/?replicaSet=rs&heartbeatFrequencyMS=3600000")
    }

    /// Waits until the client streams from every member.
    pub(crate) fn await_streams(&self, patience: Duration) {
        let open = self.streams.open.lock().unwrap();
        let lacking = |open: &mut Vec<Option<Stream>>| open.iter().any(Option::is_none);
        let waited = self.streams.opened.wait_timeout_while(open, patience, lacking);
        assert!(!waited.unwrap().1.timed_out(), "a server has no open stream");
    }

    /// Pushes a changed reply from the next member in turn.
    pub(crate) fn push(&mut self) {
        self.counter += 1;
        let index = self.counter as usize % self.members.len();
        let body = hello(index, &self.members, self.counter);
        let mut open = self.streams.open.lock().unwrap();
        let stream = open[index].as_mut().unwrap();
        let reply = OpMsg {
            request_id: stream.answered + 1,
            response_to: stream.answered,
            more_to_come: true,
            body: &body,
            ..OpMsg::default()
        };
        stream.answered += 1;
        stream.socket.write_all(reply.encode().unwrap().as_bytes()).unwrap();
    }
}

/// Answers requests that need an immediate reply, until the connection ends.
fn serve(mut socket: TcpStream, index: usize, members: &[ServerAddress], streams: &Streams) {
    socket.set_nodelay(true).unwrap();
    while let Some(request) = read(&mut socket) {
        if request.exhaust_allowed() {
            let stream =
                Stream { socket: socket.try_clone().unwrap(), answered: request.request_id() };
            streams.open.lock().unwrap()[index] = Some(stream);
            streams.opened.notify_all();
            continue;
        }
        let body = hello(index, members, 1);
        let reply = reply_to(&request, &body);
        // The client may have closed the connection.
        if socket.write_all(reply.unwrap().as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads the next request; `None` at the end of the stream.
fn read(socket: &mut TcpStream) -> Option<WireMessage> {
    let mut bytes = vec![0; 4];
    socket.read_exact(&mut bytes).ok()?;
    let length = u32::from_le_bytes(bytes[..].try_into().unwrap());
    bytes.resize(length as usize, 0);
    socket.read_exact(&mut bytes[4..]).ok()?;
    Some(WireMessage::decode(bytes).unwrap())
}

fn hello(index: usize, members: &[ServerAddress], counter: i64) -> Vec<u8> {
    let mut hosts = RawArrayBuf::new();
    for member in members {
        hosts.push(member.as_str());
    }
    let reply = rawdoc! {
        "helloOk": true,
        "topologyVersion": { "processId": ObjectId::from_bytes([7; 12]), "counter": counter },
        "hosts": hosts,
        "setName": "rs",
        "setVersion": 1,
        "isWritablePrimary": index == 0,
        "secondary": index != 0,
        "me": members[index].as_str(),
        "electionId": ObjectId::from_bytes([8; 12]),
        "lastWrite": { "lastWriteDate": bson::DateTime::from_millis(1_700_000_000_000 + counter) },
        "maxBsonObjectSize": 16_777_216,
        "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000,
        "logicalSessionTimeoutMinutes": 30,
        "minWireVersion": 0,
        "maxWireVersion": 17,
        "readOnly": false,
        "ok": 1.0,
    };
    reply.into_bytes()
}
