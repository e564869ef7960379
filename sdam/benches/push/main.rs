//! The cost of a streamed reply: the latency until its event is delivered, and the processor time.
//!
//! The servers are threads of this process on loopback, which push replies on request; their
//! processor time is not counted.

#![expect(clippy::unwrap_used, reason = "a panic fails the benchmark")]

#[cfg(target_os = "linux")]
mod servers;

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("skipped: the cost of a thread is read from /proc");
}

#[cfg(target_os = "linux")]
fn main() {
    measurements::all(std::env::args().skip(1));
}

#[cfg(target_os = "linux")]
mod measurements {
    use std::{
        fs,
        io::Read,
        net::{TcpListener, TcpStream},
        sync::mpsc,
        thread,
        time::{Duration, Instant},
    };

    use futures::executor::block_on;
    use sdam::{EventKind, Interest, Topology, events::EventName};
    use sdam_events::sink::sink_fn;

    use crate::servers::Servers;

    /// The number of measured pushes, and of warm-up pushes before them.
    const PUSHES: u32 = 1000;
    const FIRST: u32 = 100;

    /// The pause between two pushes of one server. In the long run, a client reads at most 20
    /// replies a second from each server.
    const PACE: Duration = Duration::from_millis(55);

    /// The time after which the benchmark gives up waiting and fails.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Measures all figures if criterion's arguments, `words`, select this benchmark.
    pub(crate) fn all(words: impl Iterator<Item = String>) {
        let is_filter = |word: &String| !word.starts_with('-') && word.parse::<f64>().is_err();
        let filter = words.filter(is_filter).last().unwrap_or_default();
        if !"push/".contains(&filter) && !filter.starts_with("push/") {
            return;
        }
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
        let host = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
        let mut servers = Servers::start(members);
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

    /// Measures how long a message takes to get from one thread to another over a plain socket.
    fn floor() -> Vec<Duration> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (arrived, arrivals) = mpsc::channel();
        let reader = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut buffer = [0; Servers::REPLY_SIZE];
            while stream.read_exact(&mut buffer).is_ok() {
                arrived.send(Instant::now()).unwrap();
            }
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let message = [0; Servers::REPLY_SIZE];
        let latencies = (0..PUSHES).map(|_| {
            thread::sleep(PACE / 50);
            let begin = Instant::now();
            std::io::Write::write_all(&mut stream, &message).unwrap();
            arrivals.recv_timeout(PATIENCE).unwrap() - begin
        });
        let latencies = latencies.collect();
        drop(stream);
        reader.join().unwrap();
        latencies
    }

    /// Returns the processor time of all threads except this one, which simulates the servers.
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
}
