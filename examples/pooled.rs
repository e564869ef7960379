//! A client with its own connection pool that survives a failover.
//!
//! `cargo run -p sdam-examples --example pooled [URI]`. Without a connection string, it simulates a
//! replica set whose primary is killed during an operation. The guide's page on pools explains this
//! pool. It has no maximum size.

use std::{
    collections::BTreeMap,
    env,
    future::poll_fn,
    io::stdin,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::{self, Duration},
};

use futures::task::AtomicWaker;
use sdam::{
    Criteria, Error, ErrorKind, Established, PoolClear, PoolContext, PoolFactory, PoolHandle,
    ServerAddress, Topology,
    pool::Generation,
    runtime::{self, Task},
    sim::{Blueprint, action::Target},
    snapshot::ObjectId,
};

/// The time limit for connecting and for each reply.
const TIMEOUT: Duration = Duration::from_secs(5);

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Creates the pool of each server.
#[derive(Debug)]
struct Pools;

/// The pool of one server. Clones share it.
#[derive(Clone, Debug)]
struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    context: PoolContext,
    state: Mutex<State>,
    /// Wakes the task of the pool.
    task: AtomicWaker,
}

#[derive(Debug)]
struct State {
    /// The error of check-outs; `None` while the pool is ready.
    refusal: Option<Error>,
    /// The generation after the last clear: of the pool, and of each service behind a load
    /// balancer.
    cleared: BTreeMap<Option<ObjectId>, Generation>,
    idle: Vec<Established>,
}

impl PoolFactory for Pools {
    type Pool = Pool;

    fn create(&self, context: PoolContext) -> Pool {
        let state = State {
            refusal: Some(Error::pool_not_ready(&context.address)),
            cleared: BTreeMap::new(),
            idle: Vec::new(),
        };
        Pool(Arc::new(Shared { context, state: Mutex::new(state), task: AtomicWaker::new() }))
    }
}

/// The topology calls these methods while it holds its lock, so they only change the state.
impl PoolHandle for Pool {
    fn ready(&self) {
        self.change(|state| state.refuse(None));
    }

    fn clear(&self, clear: &PoolClear) {
        self.change(|state| {
            state.cleared.insert(clear.service_id, clear.generation);
            if clear.service_id.is_none() {
                let error = Error::pool_cleared(self.address(), &clear.cause);
                state.refuse(Some(error));
            }
        });
    }

    fn close(&self) {
        let closed = Error::pool_closed(self.address());
        self.change(|state| state.refuse(Some(closed)));
    }

    /// Closes idle connections after a clear, and all connections when the pool is closed.
    fn background(&self) -> Option<Task> {
        let pool = self.clone();
        let work = poll_fn(move |cx| {
            pool.0.task.register(cx.waker()); // first, so that no change is missed
            let (stale, is_closed) = pool.state().take_stale();
            for connection in stale {
                connection.close(); // without the lock, because this may report
            }
            if is_closed { Poll::Ready(()) } else { Poll::Pending }
        });
        Some(Task::new("pool", work))
    }
}

impl State {
    fn is_closed(&self) -> bool {
        let kind = self.refusal.as_ref().map(Error::kind);
        kind == Some(ErrorKind::PoolClosed)
    }

    /// Sets the error of check-outs. A closed pool stays closed.
    fn refuse(&mut self, error: Option<Error>) {
        if !self.is_closed() {
            self.refusal = error;
        }
    }

    fn is_current(&self, connection: &Established) -> bool {
        let cleared = self.cleared.get(&connection.service_id());
        cleared.is_none_or(|cleared| connection.generation() >= *cleared)
    }

    /// Takes the idle connections to be closed, and returns whether the pool is closed.
    fn take_stale(&mut self) -> (Vec<Established>, bool) {
        let is_closed = self.is_closed();
        let idle = mem::take(&mut self.idle).into_iter();
        let (current, stale) = idle.partition(|own| !is_closed && self.is_current(own));
        self.idle = current;
        (stale, is_closed)
    }
}

impl Pool {
    /// Checks out a connection. `establish` reports its errors to the topology; errors of the pool
    /// itself are not reported.
    async fn check_out(&self) -> Result<Established, Error> {
        while let Some(connection) = self.next_idle()? {
            if self.state().is_current(&connection) {
                return Ok(connection);
            }
            connection.close();
        }
        let connection = self.0.context.establish(Some(TIMEOUT)).await?;
        let refusal = {
            let state = self.state();
            let is_current = state.is_current(&connection);
            let cleared = || Error::stale_connection(self.address());
            let refusal = state.refusal.clone();
            refusal.or_else(|| (!is_current).then(cleared))
        };
        match refusal {
            None => Ok(connection),
            Some(error) => {
                connection.close();
                Err(error)
            }
        }
    }

    fn next_idle(&self) -> Result<Option<Established>, Error> {
        let mut state = self.state();
        match &state.refusal {
            Some(error) => Err(error.clone()),
            None => Ok(state.idle.pop()),
        }
    }

    fn check_in(&self, connection: Established) {
        let mut state = self.state();
        if connection.is_usable() && !state.is_closed() && state.is_current(&connection) {
            state.idle.push(connection);
        } else {
            drop(state);
            connection.close();
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.task.wake();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.0.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> &ServerAddress {
        &self.0.context.address
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

/// Runs five pings, and `kill_primary` during the third. Returns the server of each ping, and
/// whether it succeeded.
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
                println!("ping {number} failed: {error:#}");
                if let Some(server) = topology.snapshot().server_by_id(primary.id()) {
                    println!("  known of this server now: {}", server.description());
                }
                let generation = topology.reporter(primary.id()).generation(None);
                println!("  generation of its pool now: {generation:?}");
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
        let set = Blueprint::replica_set(3).serve()?;
        host.block_on(run(set.uri(), || Ok(set.kill(Target::Primary)?)))?;
    }
    Ok(())
}

#[test]
fn one_ping_fails_in_a_failover_and_the_next_one_uses_the_new_primary() -> Result<()> {
    let set = Blueprint::replica_set(3).serve()?;
    let host = tokio::runtime::Runtime::new()?;
    let pings = host.block_on(run(set.uri(), || Ok(set.kill(Target::Primary)?)))?;
    let succeeded: Vec<bool> = pings.iter().map(|(_, succeeded)| *succeeded).collect();
    assert_eq!(succeeded, [true, true, false, true, true]);
    let (old, new) = (&pings[2].0, &pings[3].0);
    assert_ne!(old, new);
    assert_eq!(&pings[4].0, new);
    Ok(())
}

#[cfg(test)]
mod conformance {
    use sdam::{Options, async_trait};
    use sdam_testkit::conformance::pools::{self, Claim, PoolUser};

    use super::*;

    struct User;

    #[async_trait]
    impl PoolUser for User {
        type Factory = Pools;
        type Connection = Established;

        fn claims(&self) -> &[Claim] {
            &[Claim::Reuses, Claim::Pauses, Claim::LoadBalanced]
        }

        fn factory(&self, _: &Options) -> Pools {
            Pools
        }

        async fn check_out(&self, pool: &Pool) -> Result<Established, Error> {
            pool.check_out().await
        }

        async fn run_command(&self, own: &mut Established, command: &[u8]) -> Result<(), Error> {
            let reply = own.run_command(command, None).await;
            reply.map(drop)
        }

        fn check_in(&self, pool: &Pool, connection: Established) {
            pool.check_in(connection);
        }
    }

    #[test]
    fn the_pool_keeps_the_contract_of_pools_and_what_it_claims() {
        pools::check(User);
    }
}
