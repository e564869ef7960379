//! The cost of a check-out and its check-in, compared with deadpool in the same run.
//!
//! The connections lead to a simulated server, but nothing is sent: only the pools are measured.

#![expect(clippy::unwrap_used, reason = "a panic fails the benchmark")]

use std::{
    convert::Infallible,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::Criterion;
use deadpool::managed::{Manager, Metrics, Pool as Deadpool, RecycleResult};
use futures::{FutureExt, future::join_all};
use sdam::{Criteria, PoolContext, PoolFactory, ServerAddress, Topology};
use sdam_pool::{Pool, Pools};
use sdam_sim::{Blueprint, config::SetConfig, runtime::Sim};
use sdam_transport::system::{Epoch, ThreadClock};

/// The numbers of connections, tasks and check-outs per task in the measurement under contention.
const CONNECTIONS: usize = 50;
const TASKS: usize = 1_000;
const ROUNDS: usize = 100;

/// A deadpool manager whose objects need no server.
#[derive(Debug)]
struct Numbers;

impl Manager for Numbers {
    type Type = u64;
    type Error = Infallible;

    async fn create(&self) -> Result<u64, Infallible> {
        Ok(1)
    }

    async fn recycle(&self, _: &mut u64, _: &Metrics) -> RecycleResult<Infallible> {
        Ok(())
    }
}

/// Creates pools that read the clock of the system, because the clock of the simulation is behind a
/// lock.
#[derive(Debug)]
struct Timed(Pools);

impl PoolFactory for Timed {
    type Pool = Pool;

    fn create(&self, mut context: PoolContext) -> Pool {
        context.backend.clock = Arc::new(ThreadClock::new(Epoch::begin()));
        self.0.create(context)
    }
}

/// Returns a pool with idle connections, and the values that keep it alive.
fn pool() -> (Sim, Topology<Pool>, Pool) {
    let hosts = [ServerAddress::new("a", 27017)];
    let sim = Sim::new(1, &Blueprint::replica_set(SetConfig::new("rs", hosts)));
    let uri = format!("{}&maxPoolSize={CONNECTIONS}&maxConnecting={CONNECTIONS}", sim.uri());
    let builder = Topology::builder(&uri).unwrap().pools(Timed(Pools::new()));
    let topology = builder.start(sim.runtime()).unwrap();
    let pool = sim.block_on(async {
        let server = topology.select(&Criteria::write()).await.unwrap();
        let pool = server.pool().clone();
        join_all((0..CONNECTIONS).map(|_| pool.check_out())).await;
        pool
    });
    assert_eq!(pool.stats().idle, CONNECTIONS);
    (sim, topology, pool)
}

fn deadpool() -> Deadpool<Numbers> {
    let pool = Deadpool::builder(Numbers).max_size(CONNECTIONS).build().unwrap();
    let all = join_all((0..CONNECTIONS).map(|_| pool.get()));
    drop(futures::executor::block_on(all));
    pool
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let (_sim, _topology, pool) = pool();
    let deadpool = deadpool();
    criterion.bench_function("pool/pair/sdam", |bencher| {
        bencher.iter(|| black_box(pool.check_out().now_or_never().unwrap().unwrap()));
    });
    criterion.bench_function("pool/pair/deadpool", |bencher| {
        bencher.iter(|| black_box(deadpool.get().now_or_never().unwrap().unwrap()));
    });
    criterion.final_summary();
    // `cargo xtask bench` passes its filter as the last argument.
    let filter = std::env::args().skip(1).last().unwrap_or_default();
    if !filter.starts_with('-') && !"pool/contended".contains(&filter) {
        return;
    }
    let pair = || drop(pool.check_out().now_or_never().unwrap().unwrap());
    // A connection that was idle for more than a second is checked first, and this check allocates.
    pair();
    let allocations = allocation_counter::measure(pair).count_total;
    println!("bench: pool/pair/allocations {allocations} allocations");
    let host = tokio::runtime::Runtime::new().unwrap();
    let own = move || {
        let pool = pool.clone();
        async move { pool.check_out().await.unwrap() }
    };
    let other = move || {
        let pool = deadpool.clone();
        async move { pool.get().await.unwrap() }
    };
    report("sdam", host.block_on(contend(own)));
    report("deadpool", host.block_on(contend(other)));
}

/// Runs many tasks that share few connections. Returns the duration of each check-out.
async fn contend<C, F>(check_out: impl Fn() -> F + Clone + Send + 'static) -> Vec<Duration>
where
    C: Send + 'static,
    F: Future<Output = C> + Send + 'static,
{
    let tasks = (0..TASKS).map(|_| {
        let check_out = check_out.clone();
        tokio::spawn(async move {
            let mut times = Vec::with_capacity(ROUNDS);
            for _ in 0..ROUNDS {
                let start = Instant::now();
                let connection = check_out().await;
                times.push(start.elapsed());
                // Lets the other tasks run, as they would during an operation.
                tokio::task::yield_now().await;
                drop(connection);
            }
            times
        })
    });
    let times = join_all(tasks).await.into_iter();
    times.flat_map(Result::unwrap).collect()
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    let (median, tail) = (at(0.5), at(0.999));
    println!("bench: pool/contended/{name}/p50 {median:.1} us");
    println!("bench: pool/contended/{name}/p99.9_over_p50 {:.2} x", tail / median);
}
