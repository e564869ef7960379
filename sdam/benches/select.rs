//! The cost of a selection, which reads a running topology without locking it.
//!
//! The servers send fixed replies through the transport interface, so the topology is a real one.

#![expect(clippy::unwrap_used, reason = "a panic fails the benchmark")]

use std::{
    hint::black_box,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use criterion::Criterion;
use sdam::{Criteria, Options, ReadMode, Runtime, ServerAddress, Topology, TopologyBuilder};
use sdam_core::options::ServerMonitoringMode;
use sdam_testkit::{ManualClock, Server, Servers};

/// Starts a topology that knows all its servers.
fn topology(runtime: &Runtime, servers: u16, sharded: bool) -> Topology {
    let hosts: Vec<_> =
        (0..servers).map(|index| ServerAddress::new("db.lan", 20_000 + index)).collect();
    let mut options = Options::new(hosts.clone());
    options.server_monitoring_mode = ServerMonitoringMode::Poll;
    options.heartbeat_frequency = Some(Duration::from_secs(3600));
    options.local_threshold = Duration::from_secs(1);
    options.max_servers = hosts.len();
    let transport = Servers::new(ManualClock::default(), Server::silent());
    for (index, host) in hosts.iter().enumerate() {
        let member = || Server::member(&hosts, index == 0);
        let server = if sharded { Server::mongos() } else { member() };
        transport.set(host, server);
    }
    let mut runtime = runtime.clone();
    runtime.backend.transport = Arc::new(transport);
    let topology = TopologyBuilder::new(options).start(runtime).unwrap();
    let known = topology.wait_for(
        |snapshot| {
            let servers = snapshot.description().servers();
            servers.iter().all(|server| server.server_type.is_available()).then_some(())
        },
        Duration::from_secs(30),
    );
    futures::executor::block_on(known).unwrap();
    topology
}

fn benches(criterion: &mut Criterion, runtime: &Runtime) {
    let nearest = Criteria::read(ReadMode::Nearest).unwrap();
    let primary = Criteria::write();
    let cases = [
        ("3_members/primary", 3, false, &primary),
        ("3_members/nearest", 3, false, &nearest),
        ("50_members/primary", 50, false, &primary),
        ("50_members/nearest", 50, false, &nearest),
        ("1000_mongos", 1000, true, &primary),
    ];
    for (name, servers, sharded, criteria) in cases {
        let topology = topology(runtime, servers, sharded);
        criterion.bench_function(&format!("engine/select/{name}"), |bencher| {
            bencher.iter(|| topology.try_select(black_box(criteria)).unwrap().unwrap());
        });
        // Measures a selection on this thread while another thread selects in a loop. The other
        // thread does not slow the selection down unless the two contend: in one of four cases, two
        // threads share an operation counter.
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    black_box(topology.try_select(criteria).unwrap());
                }
            });
            criterion.bench_function(&format!("engine/select_beside_another/{name}"), |bencher| {
                bencher.iter(|| topology.try_select(black_box(criteria)).unwrap().unwrap());
            });
            stop.store(true, Ordering::Relaxed);
        });
    }
}

/// The number of concurrently waiting selections.
const WAITERS: usize = 1000;

/// Measures the time between the first and the last wake-up when many selections wait for a primary
/// and a primary is found.
fn waiters(host: &tokio::runtime::Runtime, runtime: &Runtime) {
    let server = ServerAddress::new("db.lan", 20_000);
    let hosts = [server.clone()];
    let mut options = Options::new(hosts.to_vec());
    options.server_monitoring_mode = ServerMonitoringMode::Poll;
    let transport = Servers::new(ManualClock::default(), Server::silent());
    let mut runtime = runtime.clone();
    runtime.backend.transport = Arc::new(transport.clone());
    let topology = TopologyBuilder::new(options).start(runtime).unwrap();
    let secondary = Criteria::read(ReadMode::Secondary).unwrap();
    let round = || {
        transport.set(&server, Server::member(&hosts, false));
        drop(futures::executor::block_on(topology.select(&secondary)).unwrap());
        let (ended, ends) = mpsc::channel();
        for _ in 0..WAITERS {
            let (topology, ended) = (topology.clone(), ended.clone());
            host.spawn(async move {
                drop(topology.select(&Criteria::write()).await.unwrap());
                ended.send(Instant::now()).unwrap();
            });
        }
        while topology.waiters() < WAITERS {
            std::thread::yield_now();
        }
        transport.set(&server, Server::member(&hosts, true));
        let ends: Vec<_> = ends.iter().take(WAITERS).collect();
        let (first, last) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
        WAITERS as f64 / last.duration_since(*first).as_secs_f64()
    };
    let mut rates: Vec<f64> = (0..7).map(|_| round()).collect();
    rates.sort_by(f64::total_cmp);
    println!("bench: engine/waiters_woken {:.0} per_s", rates[rates.len() / 2]);
}

/// Measures the maximum number of allocations that a selection makes if it finds a server at once.
fn allocations(runtime: &Runtime) {
    let topology = topology(runtime, 50, false);
    let nearest = Criteria::read(ReadMode::Nearest).unwrap();
    let of = |criteria: &Criteria| {
        let select = || drop(black_box(topology.try_select(criteria).unwrap()));
        // Allocations that a thread makes only once are not counted.
        select();
        allocation_counter::measure(select).count_total
    };
    let most = of(&Criteria::write()).max(of(&nearest));
    println!("bench: engine/select/allocations_per_call {most} allocations");
}

/// The client-side cost of a very short operation, far less than a round trip on loopback.
const OPERATION: Duration = Duration::from_micros(5);

/// Measures the ratio of the selections that two threads make to those that one thread makes in the
/// same time.
///
/// Threads are distributed over several operation counters. A selection with only one suitable
/// server reads nothing that threads with other counters write. To compare two servers, a selection
/// reads recent counts of other threads (L-41), and fetching these counts from another core takes
/// longer than the rest of the selection. Threads that do nothing but select therefore contend.
/// Threads that also use the selected server do not, because they select far less often.
fn scaling(runtime: &Runtime) {
    let topology = topology(runtime, 3, false);
    let nearest = Criteria::read(ReadMode::Nearest).unwrap();
    let primary = Criteria::write();
    let cases = [
        ("primary", &primary, Duration::ZERO),
        ("nearest", &nearest, Duration::ZERO),
        ("nearest_and_5_us_of_work", &nearest, OPERATION),
    ];
    for (name, criteria, work) in cases {
        let rate = |threads| rate(&topology, criteria, work, threads) as f64;
        let mut ratios: Vec<f64> = (0..7).map(|_| rate(2) / rate(1)).collect();
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ratios.len() / 2];
        println!("bench: engine/select/{name}/two_threads_over_one {median:.2} ratio");
    }
}

/// Counts the selections that `threads` threads make in a fixed time, if each selection is followed
/// by an operation that takes `work`.
fn rate(topology: &Topology, criteria: &Criteria, work: Duration, threads: usize) -> u64 {
    let (count, barrier) = (AtomicU64::new(0), Barrier::new(threads));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                barrier.wait();
                let (begin, mut own) = (Instant::now(), 0);
                while begin.elapsed() < Duration::from_millis(300) {
                    for _ in 0..1000 {
                        let selected = black_box(topology.try_select(criteria).unwrap());
                        busy(work);
                        drop(selected);
                    }
                    own += 1000;
                }
                count.fetch_add(own, Ordering::Relaxed);
            });
        }
    });
    count.into_inner()
}

/// Keeps the core busy for the given time.
fn busy(work: Duration) {
    if work.is_zero() {
        return;
    }
    let begin = Instant::now();
    while begin.elapsed() < work {
        std::hint::spin_loop();
    }
}

fn main() {
    let tokio =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let runtime = sdam_runtime_tokio::from_handle(tokio.handle().clone()).unwrap();
    let mut criterion = Criterion::default().configure_from_args();
    benches(&mut criterion, &runtime);
    if std::env::args().any(|argument| argument == "--bench") {
        scaling(&runtime);
        allocations(&runtime);
        waiters(&tokio, &runtime);
    }
    criterion.final_summary();
}
