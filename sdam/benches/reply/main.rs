//! The cost of a streamed reply, from the arrival of its bytes to the call of the sink, the memory
//! that the client needs for each server, and the latency of a reply that a server pushes over a
//! socket.
//!
//! Except for the measurement of this latency, servers, clock and tasks are on one thread and need
//! no sockets. Instruction counts and memory are therefore the same in each run, even on a busy
//! machine. The figures include the executor, the timer and the sink of the benchmark, which are as
//! simple as possible.

#![expect(clippy::unwrap_used, reason = "a panic fails the benchmark")]

mod client;
#[cfg(target_os = "linux")]
mod push;
mod servers;

use std::{
    env,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use futures::StreamExt;

use crate::{
    client::{Client, HandClock},
    servers::Servers,
};

/// The numbers of warm-up pushes and of measured pushes.
const FIRST: u32 = 100;
const PUSHES: u32 = 1000;

/// The number of pushes for which the time under the lock is measured.
const HOLDS: usize = 20_000;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["push", servers, pushes] => {
            let mut client = start(servers.parse().unwrap());
            (0..pushes.parse().unwrap()).for_each(|_| client.push());
        }
        _ => measure(&words),
    }
}

/// Measures all figures that criterion's arguments select.
fn measure(words: &[&str]) {
    let is_filter = |word: &&&str| !word.starts_with('-') && word.parse::<f64>().is_err();
    let filter = words.iter().rev().find(is_filter).copied().unwrap_or("");
    let selected = |name: &str| name.contains(filter) || filter.starts_with(name);
    if selected("reply/") {
        for (name, servers) in [("3_members", 3), ("50_members", 50), ("1000_mongos", 1000)] {
            println!("bench: reply/{name}/allocations {:.1} allocations", allocations(servers));
            match instructions(servers) {
                Some(count) => {
                    println!("bench: reply/{name}/instructions {count:.0} instructions");
                }
                None => eprintln!("skipped: instructions are counted by valgrind, which is absent"),
            }
        }
    }
    #[cfg(target_os = "linux")]
    if selected("push/") {
        push::measure();
    }
    if selected("memory/1000_mongos/per_server") {
        let memory = memory(1000) / 1000.0;
        println!("bench: memory/1000_mongos/per_server {memory:.2} KiB");
    }
    if selected("engine/hold/1000_mongos") {
        let mut holds = holds();
        let [median, rare] = [500, 999].map(|share| quantile(&mut holds, share));
        let rare_waits = quantile(&mut waits(median), 999);
        for (name, time) in [("p50", median), ("p99.9", rare), ("p99.9_of_a_wait", rare_waits)] {
            let time = time.as_secs_f64() * 1e6;
            println!("bench: engine/hold/1000_mongos/{name} {time:.2} us");
        }
    }
}

/// Starts a client of a replica set, or of many routers.
fn start(servers: u16) -> Client {
    Client::start(Servers::new(servers, servers >= 100))
}

/// Counts the instructions of one push; `None` without valgrind.
fn instructions(servers: u16) -> Option<f64> {
    let count = |pushes: u32| {
        let program = env::current_exe().unwrap();
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(program)
            .args(["push", &servers.to_string(), &pushes.to_string()])
            .output()
            .ok()?;
        let report = String::from_utf8(output.stderr).unwrap();
        let line = report.split("Collected :").nth(1);
        let number = line.and_then(|line| line.split_whitespace().next());
        assert!(number.is_some(), "valgrind has failed: {report}");
        Some(number?.parse::<f64>().unwrap())
    };
    Some((count(FIRST + PUSHES)? - count(FIRST)?) / f64::from(PUSHES))
}

/// Counts the allocations that one push makes.
fn allocations(servers: u16) -> f64 {
    let mut client = start(servers);
    (0..FIRST).for_each(|_| client.push());
    let push = || (0..PUSHES).for_each(|_| client.push());
    allocation_counter::measure(push).count_total as f64 / f64::from(PUSHES)
}

/// Measures the memory of a client that streams from all servers, in KiB.
fn memory(servers: u16) -> f64 {
    let servers = Servers::new(servers, true);
    let mut client = None;
    let used = allocation_counter::measure(|| client = Some(Client::start(servers)));
    used.bytes_current as f64 / 1024.0
}

/// Measures the time for which each pushed reply holds the lock: from the reading of the clock
/// under the lock until a reader is woken, right after the lock is released.
fn holds() -> Vec<Duration> {
    let mut client = start(1000);
    client.clock.watch();
    let reader = Arc::new(Reader {
        clock: Arc::clone(&client.clock),
        is_woken: AtomicBool::new(false),
        holds: Mutex::new(Vec::with_capacity(HOLDS)),
    });
    let waker = Waker::from(Arc::clone(&reader));
    let mut watch = client.topology.watch();
    for _ in 0..HOLDS {
        let mut cx = Context::from_waker(&waker);
        while watch.poll_next_unpin(&mut cx).is_ready() {}
        client.push();
        assert!(reader.is_woken.swap(false, Ordering::Relaxed), "no change");
    }
    std::mem::take(&mut reader.holds.lock().unwrap())
}

/// Measures busy waits of `time`, which take longer only if the machine interrupts them.
fn waits(time: Duration) -> Vec<Duration> {
    let wait = |_| {
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::hint::spin_loop();
        }
        begin.elapsed()
    };
    (0..HOLDS).map(wait).collect()
}

/// Returns the time that `thousandths` thousandths of `times` do not exceed.
fn quantile(times: &mut [Duration], thousandths: usize) -> Duration {
    times.sort_unstable();
    times[times.len() * thousandths / 1000]
}

/// A waker that measures the time since the clock was last read.
struct Reader {
    clock: Arc<HandClock>,
    is_woken: AtomicBool,
    holds: Mutex<Vec<Duration>>,
}

impl Wake for Reader {
    fn wake(self: Arc<Self>) {
        let hold = self.clock.since_last_read();
        self.is_woken.store(true, Ordering::Relaxed);
        self.holds.lock().unwrap().push(hold);
    }
}
