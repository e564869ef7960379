//! The latency from a streamed reply on a socket until its event is delivered, and the processor
//! time.
//!
//! The servers listen on loopback in this process. The measuring thread pushes their replies, and
//! its processor time is not counted.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use futures::executor::block_on;
use sdam::{EventKind, Interest, ServerAddress, Topology, events::EventName};
use sdam_events::sink::sink_fn;
use sdam_testkit::reply_to;
use sdam_transport::wire::{OpMsg, WireMessage};

use crate::{FIRST, PUSHES, client::PACE, servers::hello};

/// The time after which the benchmark gives up waiting and fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures all figures.
pub(crate) fn measure() {
    print("socket_floor", micros(median(floor())), "us");
    for members in [3, 50] {
        let (latencies, cpu) = pushes(members);
        let name = format!("{members}_members");
        print(&format!("{name}/to_event"), micros(median(latencies)), "us");
        print(&format!("{name}/cpu"), micros(cpu), "us");
    }
}

fn print(name: &str, value: f64, unit: &str) {
    println!("bench: push/{name} {value:.3} {unit}");
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations[durations.len() / 2]
}

/// Measures the time from each push until a sink receives its event, and the processor time of
/// all pushes.
fn pushes(members: usize) -> (Vec<Duration>, Duration) {
    let host =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    let mut servers = Members::start(members);
    let (arrived, arrivals) = mpsc::channel();
    let sink = sink_fn(move |event| {
        if let EventKind::ServerHeartbeatSucceeded { heartbeat, .. } = &event.kind
            && heartbeat.awaited
        {
            // Sending fails once the receiver is dropped, at the end of the benchmark.
            let _ = arrived.send(Instant::now());
        }
    });
    let interest = Interest::of(&[EventName::ServerHeartbeatSucceeded]);
    let topology = Topology::builder(&servers.uri())
        .unwrap()
        .sink(sink.interested_in(interest))
        .start(runtime)
        .unwrap();
    servers.await_streams(PATIENCE);
    let mut latencies = Vec::new();
    let mut before = Duration::ZERO;
    let pause = PACE / members as u32;
    for number in 0..FIRST + PUSHES {
        if number == FIRST {
            before = cpu_of_others();
        }
        thread::sleep(pause);
        let begin = Instant::now();
        servers.push();
        let arrival = arrivals.recv_timeout(PATIENCE).unwrap();
        if number >= FIRST {
            latencies.push(arrival - begin);
        }
    }
    let cpu = cpu_of_others().saturating_sub(before) / PUSHES;
    block_on(topology.close());
    (latencies, cpu)
}

/// Measures the time that a message takes from one thread to another over a plain socket.
fn floor() -> Vec<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (arrived, arrivals) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let mut buffer = [0; Members::REPLY_SIZE];
        while stream.read_exact(&mut buffer).is_ok() {
            arrived.send(Instant::now()).unwrap();
        }
    });
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    let message = [0; Members::REPLY_SIZE];
    let latencies = (0..PUSHES).map(|_| {
        thread::sleep(PACE / 50);
        let begin = Instant::now();
        stream.write_all(&message).unwrap();
        arrivals.recv_timeout(PATIENCE).unwrap() - begin
    });
    let latencies = latencies.collect();
    drop(stream);
    reader.join().unwrap();
    latencies
}

/// Returns the processor time of all threads except this one, which pushes the servers' replies.
/// The other threads of the servers are idle during the measurement.
fn cpu_of_others() -> Duration {
    let own = fs::read_link("/proc/thread-self").unwrap();
    let own = own.file_name().unwrap().to_owned();
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks
        .map(|task| task.unwrap())
        .filter(|task| task.file_name() != own)
        .map(|task| {
            let times = fs::read_to_string(task.path().join("schedstat")).unwrap();
            let nanos = times.split_whitespace().next().unwrap();
            Duration::from_nanos(nanos.parse().unwrap())
        })
        .sum()
}

/// The members; the first one is primary.
struct Members {
    addresses: Arc<Vec<ServerAddress>>,
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

impl Members {
    /// The approximate size of a reply.
    const REPLY_SIZE: usize = 400;

    fn start(number: usize) -> Self {
        let listeners: Vec<_> =
            (0..number).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses = listeners.iter().map(|listener| {
            let port = listener.local_addr().unwrap().port();
            ServerAddress::new("127.0.0.1", port)
        });
        let addresses = Arc::new(addresses.collect::<Vec<_>>());
        let streams = Arc::<Streams>::default();
        streams.open.lock().unwrap().resize_with(number, || None);
        for (index, listener) in listeners.into_iter().enumerate() {
            let (addresses, streams) = (Arc::clone(&addresses), Arc::clone(&streams));
            thread::spawn(move || {
                for socket in listener.incoming() {
                    let (addresses, streams) = (Arc::clone(&addresses), Arc::clone(&streams));
                    let socket = socket.unwrap();
                    thread::spawn(move || serve(socket, index, &addresses, &streams));
                }
            });
        }
        Self { addresses, streams, counter: 1 }
    }

    /// Returns the connection string. Heartbeats take an hour, so that only pushes are sent.
    fn uri(&self) -> String {
        let hosts: Vec<_> = self.addresses.iter().map(ServerAddress::as_str).collect();
        let hosts = hosts.join(",");
        format!("mongodb://{hosts}/?replicaSet=rs&heartbeatFrequencyMS=3600000")
    }

    /// Waits until the client streams from every member.
    fn await_streams(&self, patience: Duration) {
        let open = self.streams.open.lock().unwrap();
        let lacking = |open: &mut Vec<Option<Stream>>| open.iter().any(Option::is_none);
        let waited = self.streams.opened.wait_timeout_while(open, patience, lacking);
        assert!(!waited.unwrap().1.timed_out(), "a server has no open stream");
    }

    /// Pushes a changed reply from the next member in turn.
    fn push(&mut self) {
        self.counter += 1;
        let index = self.counter as usize % self.addresses.len();
        let body = hello(index, Some(&self.addresses), self.counter);
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
fn serve(mut socket: TcpStream, index: usize, addresses: &[ServerAddress], streams: &Streams) {
    socket.set_nodelay(true).unwrap();
    while let Some(request) = read(&mut socket) {
        if request.exhaust_allowed() {
            let stream =
                Stream { socket: socket.try_clone().unwrap(), answered: request.request_id() };
            streams.open.lock().unwrap()[index] = Some(stream);
            streams.opened.notify_all();
            continue;
        }
        let body = hello(index, Some(addresses), 1);
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
