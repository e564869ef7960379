//! A client with its own connection pool that survives a failover.
//!
//! `cargo run -p sdam-examples --example pooled [URI]`. Without a connection string, a replica set is
//! simulated, and its primary is killed while an operation is in progress. The pool has no maximum
//! size, and does not support load balancers.

use std::{
    env,
    error::Error,
    io::stdin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{self, Duration},
};

use sdam::{
    Criteria, Established, Generation, NewPool, PoolClear, PoolFactory, PoolHandle, ServerAddress,
    Topology, runtime,
    sim::{ReplicaSet, action::Target},
};

/// The time limit of connecting and of each reply.
const TIMEOUT: Duration = Duration::from_secs(5);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Creates the pool of each server.
#[derive(Debug)]
struct Pools;

#[derive(Debug)]
struct Pool {
    new: NewPool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// False while the pool is paused or closed.
    ready: bool,
    /// Connections of earlier generations are stale.
    generation: Generation,
    idle: Vec<Established>,
}

impl PoolFactory for Pools {
    type Pool = Pool;

    fn create(&self, new: NewPool) -> Pool {
        let state = State {
            ready: false,
            generation: new.generation,
            idle: Vec::new(),
        };
        Pool {
            new,
            state: Mutex::new(state),
        }
    }
}

/// The topology calls these methods with its lock held, so they only change the state.
impl PoolHandle for Pool {
    fn ready(&self) {
        self.state().ready = true;
    }

    fn clear(&self, clear: &PoolClear) {
        let mut state = self.state();
        (state.ready, state.generation) = (false, clear.generation);
    }

    fn close(&self) {
        self.state().ready = false;
    }
}

impl Pool {
    async fn check_out(&self) -> Result<Established> {
        let idle = {
            let mut state = self.state();
            if !state.ready {
                return Err(format!("the pool of {} is paused or closed", self.new.address).into());
            }
            let current = state.generation;
            state.idle.retain(|idle| idle.generation() >= current);
            state.idle.pop()
        };
        match idle {
            Some(connection) => Ok(connection),
            // Reports the reply to hello, or the error, to the topology.
            None => Ok(self.new.establish(Some(TIMEOUT)).await?),
        }
    }

    fn check_in(&self, connection: Established) {
        if connection.is_usable() {
            self.state().idle.push(connection);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a ping on a pooled connection, and `during` while the connection is in use.
async fn ping(pool: &Pool, during: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut connection = pool.check_out().await?;
    during()?;
    let ping = bson::rawdoc! { "ping": 1, "$db": "admin" };
    // Reports the reply or the error to the topology.
    let reply = connection.run_command(ping.as_bytes(), Some(TIMEOUT)).await;
    pool.check_in(connection);
    Ok(reply.map(drop)?)
}

/// Runs five pings, and `kill_primary` during the third. Returns the server of each, and whether it
/// has succeeded.
async fn run(
    uri: &str,
    kill_primary: impl Fn() -> Result<()>,
) -> Result<Vec<(ServerAddress, bool)>> {
    let builder = Topology::builder(uri)?.pools(Pools);
    let topology = builder.start(runtime::tokio()?)?;
    let mut pings = Vec::new();
    for number in 1..=5 {
        let start = time::Instant::now();
        // After a failover, this waits for the new primary.
        let primary = topology.select(&Criteria::write()).await?;
        let (pool, address) = (primary.pool(), primary.address());
        let outcome = ping(pool, || if number == 3 { kill_primary() } else { Ok(()) }).await;
        match &outcome {
            Ok(()) => println!("ping {number}: {address}, after {:.1?}", start.elapsed()),
            Err(error) => {
                println!("ping {number} failed: {error}");
                if let Some(server) = topology.snapshot().server_by_id(primary.id()) {
                    println!("  known of this server now: {}", server.description());
                }
                println!("  generation of its pool now: {}", pool.state().generation);
            }
        }
        pings.push((address.clone(), outcome.is_ok()));
    }
    topology.close().await;
    Ok(pings)
}

fn main() -> Result<()> {
    let host = tokio::runtime::Runtime::new()?;
    if let Some(uri) = env::args().nth(1) {
        host.block_on(run(&uri, || {
            println!("kill the primary or let it step down, then press Enter");
            stdin().read_line(&mut String::new())?;
            Ok(())
        }))?;
    } else {
        let set = ReplicaSet::start(3)?;
        host.block_on(run(set.uri(), || Ok(set.kill(Target::Primary)?)))?;
    }
    Ok(())
}

#[test]
fn one_ping_fails_in_a_failover_and_the_next_one_uses_the_new_primary() -> Result<()> {
    let set = ReplicaSet::start(3)?;
    let host = tokio::runtime::Runtime::new()?;
    let pings = host.block_on(run(set.uri(), || Ok(set.kill(Target::Primary)?)))?;
    let succeeded: Vec<bool> = pings.iter().map(|(_, succeeded)| *succeeded).collect();
    assert_eq!(succeeded, [true, true, false, true, true]);
    let (old, new) = (&pings[2].0, &pings[3].0);
    assert_ne!(old, new);
    assert_eq!(&pings[4].0, new);
    Ok(())
}
