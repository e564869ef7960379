//! A deployment with a recorder in front of each member, a running program, and a client.

use std::{
    io::Read,
    net::{Shutdown, TcpListener, TcpStream},
    ops::Deref,
    sync::{
        Condvar, Mutex,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use bson::{Document, doc};
use futures::channel::mpsc::UnboundedSender;
use sdam::transport::wire::{OpMsg, WireMessage};
use sdam_sim::serve::{Builder, ReplicaSet};

use super::*;
use crate::testing::{Lines, block_on};

/// The time limit of every wait, which is long enough for a machine under load.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// The connections of a member, each with the bytes that the member received.
#[derive(Default)]
pub(super) struct Record {
    connections: Mutex<Vec<(Vec<u8>, TcpStream)>>,
    /// The marker of the connection whose next reply should stall in the middle.
    stopped: Mutex<Option<String>>,
    changed: Condvar,
}

impl Record {
    /// Forwards a part of a reply. If the reply should stall, pauses after its first bytes.
    fn forward(&self, number: usize, to: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        let is_stopped = |marker: &mut Option<String>| {
            let connections = self.connections.lock().unwrap();
            marker.as_ref().is_some_and(|marker| contains(&connections[number].0, marker))
        };
        let mut rest = bytes;
        let marker = self.stopped.lock().unwrap();
        if is_stopped(&mut marker.clone()) {
            to.write_all(&bytes[..30])?;
            rest = &bytes[30..];
        }
        drop(self.changed.wait_while(marker, is_stopped).unwrap());
        to.write_all(rest)
    }
}

/// A simulated replica set with a recorder in front of each member.
pub(super) struct Deployment {
    set: ReplicaSet,
    members: Vec<(String, Arc<Record>, SocketAddr)>,
}

impl Deref for Deployment {
    type Target = ReplicaSet;

    fn deref(&self) -> &ReplicaSet {
        &self.set
    }
}

impl Deployment {
    pub(super) fn start(builder: Builder) -> Self {
        let set = ReplicaSet::build(builder).unwrap();
        let members = set.places().iter().map(|(name, place)| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let record = Arc::<Record>::default();
            let (own, place) = (Arc::clone(&record), place.to_string());
            thread::spawn(move || record_all(&listener, &own, &place));
            (name.to_string(), record, address)
        });
        let members = members.collect();
        Self { set, members }
    }

    /// Starts the program with [`arguments`](Self::arguments), as modified by `change`.
    pub(super) fn proxy(&self, change: impl FnOnce(&mut Arguments)) -> Running {
        let mut arguments = self.arguments();
        change(&mut arguments);
        Running::start(arguments)
    }

    /// Returns arguments with which the program connects to the recorders, and listens on free
    /// ports.
    pub(super) fn arguments(&self) -> Arguments {
        let places = self.members.iter();
        let places = places.map(|(name, _, address)| format!("{name}={address}"));
        let places: Vec<_> = places.collect();
        let mut arguments = arguments();
        let uri = format!("{}&localThresholdMS=10000", self.uri());
        arguments.target = Target::new(&uri);
        arguments.target.translate = Some(places.join(",").parse().unwrap());
        arguments
    }

    pub(super) fn name(&self, member: usize) -> &str {
        &self.members[member].0
    }

    /// Returns the hello reply that a client gets from the primary without the proxy.
    pub(super) fn hello_of_primary(&self) -> Document {
        let primary = self.primary().unwrap().unwrap();
        let (_, place) = &self.places()[usize::from(primary.0)];
        Client::connect(&format!("mongodb://{place}/")).hello("direct")
    }

    /// Returns the names of the members that have received `marker`.
    pub(super) fn receivers(&self, marker: &str) -> Vec<&str> {
        let has = |record: &Record| {
            let connections = record.connections.lock().unwrap();
            connections.iter().any(|(bytes, _)| contains(bytes, marker))
        };
        let members = self.members.iter().filter(|(_, record, _)| has(record));
        members.map(|(name, ..)| &**name).collect()
    }

    /// Waits until a member has received `marker`.
    pub(super) fn wait_for(&self, marker: &str) {
        while self.receivers(marker).is_empty() {
            thread::yield_now();
        }
    }

    /// Makes the next reply on the connection that has sent `marker` stall after 30 bytes. `None`
    /// lets a stalled reply continue.
    pub(super) fn stop_reply(&self, marker: Option<&str>) {
        for (_, record, _) in &self.members {
            *record.stopped.lock().unwrap() = marker.map(str::to_owned);
            record.changed.notify_all();
        }
    }

    /// Closes the connection on which `marker` has arrived, as if the member had closed it.
    pub(super) fn cut(&self, marker: &str) {
        for (_, record, _) in &self.members {
            let connections = record.connections.lock().unwrap();
            for (bytes, stream) in connections.iter() {
                if contains(bytes, marker) {
                    stream.shutdown(Shutdown::Both).unwrap();
                }
            }
        }
    }
}

fn contains(bytes: &[u8], marker: &str) -> bool {
    // The NUL terminates the string, so that `a-1` is not found in `a-12`.
    let marker = format!("{marker}\0");
    let mut windows = bytes.windows(marker.len());
    windows.any(|window| window == marker.as_bytes())
}

/// Forwards the connections that `listener` accepts to `place`, and records the forwarded bytes.
fn record_all(listener: &TcpListener, record: &Arc<Record>, place: &str) {
    while let Ok((client, _)) = listener.accept() {
        // The member is down, so close the client's connection.
        let Ok(server) = TcpStream::connect(place) else {
            continue;
        };
        let number = {
            let mut connections = record.connections.lock().unwrap();
            connections.push((Vec::new(), client.try_clone().unwrap()));
            connections.len() - 1
        };
        let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let own = Arc::clone(record);
        thread::spawn(move || {
            pass(from, to, |to, bytes| {
                let mut connections = own.connections.lock().unwrap();
                connections[number].0.extend_from_slice(bytes);
                drop(connections);
                to.write_all(bytes)
            });
        });
        let own = Arc::clone(record);
        thread::spawn(move || {
            pass(server, client, |to, bytes| own.forward(number, to, bytes));
        });
    }
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    mut forward: impl FnMut(&mut TcpStream, &[u8]) -> io::Result<()>,
) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if forward(&mut to, &buffer[..read]).is_err() {
            break;
        }
    }
    // Ignore the error, because shutting down fails if the connection is already closed.
    let _ = from.shutdown(Shutdown::Read);
    let _ = to.shutdown(Shutdown::Write);
}

pub(super) fn arguments() -> Arguments {
    Arguments { listen: "127.0.0.1:0".parse().unwrap(), ..Arguments::default() }
}

/// A running program.
pub(super) struct Running {
    pub(super) uris: Vec<String>,
    output: Receiver<String>,
    pub(super) remarks: Receiver<String>,
    signals: UnboundedSender<()>,
    thread: thread::JoinHandle<Exit>,
}

impl Running {
    pub(super) fn start(arguments: Arguments) -> Self {
        let json = arguments.json;
        let ((lines, output), (remark, remarks)) = (mpsc::channel(), mpsc::channel());
        let (signals, signalled) = futures::channel::mpsc::unbounded();
        let thread = thread::spawn(move || {
            let console = Console {
                output: Lines::new(lines),
                remarks: Lines::new(remark),
                palette: crate::terminal::Palette::Plain,
            };
            block_on(run(&arguments, console, signalled)).unwrap()
        });
        let first = output.recv_timeout(TIMEOUT).expect("the addresses");
        let uris = if json {
            let event: serde_json::Value = serde_json::from_str(&first).unwrap();
            assert_eq!(event["event"], "listening");
            vec![event["uri"].as_str().unwrap().to_owned()]
        } else {
            first.split(' ').map(str::to_owned).collect()
        };
        Self { uris, output, remarks, signals, thread }
    }

    /// Waits for the next line of the output.
    pub(super) fn output(&self) -> String {
        self.output.recv_timeout(TIMEOUT).expect("a line")
    }

    /// Waits for a remark that starts with `wanted`. Remarks before it must start with one of
    /// `others`.
    pub(super) fn remark(&self, wanted: &str, others: &[&str]) -> String {
        loop {
            let remark = self.remarks.recv_timeout(TIMEOUT).expect(wanted);
            if remark.starts_with(wanted) {
                return remark;
            }
            let is_expected = others.iter().any(|other| remark.starts_with(other));
            assert!(is_expected, "{remark}");
        }
    }

    /// Waits for the first primary, and returns its name.
    pub(super) fn primary(&self) -> String {
        self.remark("primary: ", &[])["primary: ".len()..].to_owned()
    }

    /// Waits until the proxy reports that `old` is no longer the primary, which must be its next
    /// remark.
    pub(super) fn loses(&self, old: &str) {
        let change = self.remark("", &[]);
        assert!(change.ends_with(&format!(", before {old}")), "{change}");
    }

    pub(super) fn signal(&self) {
        self.signals.unbounded_send(()).unwrap();
    }

    pub(super) fn join(self) -> Exit {
        self.thread.join().unwrap()
    }

    /// Ends the program, even if exchanges are in progress.
    pub(super) fn finish(self) {
        self.signal();
        // Ignore the error, because sending fails only if the first signal has already ended the
        // program.
        let _ = self.signals.unbounded_send(());
        assert_eq!(self.join(), Exit::SUCCESS);
    }
}

/// Starts a replica set, and the program with arguments that `change` modifies. Waits until the
/// program has found the primary, and returns the primary's name, too.
pub(super) fn start(
    members: u16,
    change: impl FnOnce(&mut Arguments),
) -> (Deployment, Running, String) {
    let set = Deployment::start(Builder::replica_set(members));
    let program = set.proxy(change);
    let primary = program.primary();
    (set, program, primary)
}

/// Requests the page `path` from the server whose address the remark `status` contains.
pub(super) fn http_get(status: &str, path: &str) -> String {
    let address = status.strip_prefix("status: http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// A client with one connection.
pub(super) struct Client {
    pub(super) address: String,
    stream: TcpStream,
}

impl Client {
    pub(super) fn connect(uri: &str) -> Self {
        let address = uri.strip_prefix("mongodb://").unwrap();
        let (address, _) = address.split_once('/').unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { address: address.to_owned(), stream }
    }

    /// Sends a hello that contains `marker`. With a `version`, the member answers only when its
    /// topology version differs from it. A closed connection is not an error.
    pub(super) fn send(&mut self, marker: &str, version: Option<&Document>) {
        let mut hello = doc! { "hello": 1, "$db": "admin", "comment": marker };
        if let Some(version) = version {
            hello.insert("topologyVersion", version.clone());
            hello.insert("maxAwaitTimeMS", 600_000);
        }
        let message = OpMsg { body: &hello.to_vec().unwrap(), ..OpMsg::default() };
        self.send_message(&message.encode().unwrap());
    }

    pub(super) fn send_message(&mut self, message: &WireMessage) {
        // Ignore errors, because `receive` returns them.
        let _ = self.stream.write_all(message.as_bytes());
    }

    /// Checks that nothing arrives for the duration `time`, and that the connection stays open.
    pub(super) fn is_open_for(&mut self, time: Duration) {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let silence = self.stream.read(&mut [0]).unwrap_err();
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
        self.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    }

    /// Closes the connection in the sending direction only.
    pub(super) fn close_half(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    pub(super) fn receive(&mut self) -> io::Result<Document> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        self.receive_rest(&length)
    }

    /// Receives a reply that stalls after 30 bytes. Checks that no more bytes arrive for the
    /// duration `time`, and that the rest of the reply arrives after the call of `release`.
    pub(super) fn receive_stopped(&mut self, time: Duration, release: impl FnOnce()) -> Document {
        let mut head = [0; 30];
        self.stream.read_exact(&mut head).unwrap();
        self.is_open_for(time);
        release();
        self.receive_rest(&head).unwrap()
    }

    fn receive_rest(&mut self, head: &[u8]) -> io::Result<Document> {
        let length = u32::from_le_bytes(*head.first_chunk().unwrap());
        let mut bytes = vec![0; length as usize];
        bytes[..head.len()].copy_from_slice(head);
        self.stream.read_exact(&mut bytes[head.len()..])?;
        let message = WireMessage::decode(bytes).unwrap();
        Ok(Document::from_reader(message.body()).unwrap())
    }

    /// Sends a hello that contains `marker`, and returns the reply.
    pub(super) fn hello(&mut self, marker: &str) -> Document {
        self.send(marker, None);
        self.receive().unwrap()
    }

    /// Waits until the connection is closed, and checks that no bytes arrive before that.
    pub(super) fn assert_closed(&mut self) {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => {}
            Ok(_) => panic!("a reply came"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }
}
