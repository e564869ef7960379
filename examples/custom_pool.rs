//! A connection pool over the generic pool [`deadpool`].
//!
//! `cargo run -p sdam-examples --example custom_pool [URI]`. Without a connection string, it
//! simulates a replica set whose primary is killed.
//!
//! deadpool provides a first-come, first-served wait queue, a maximum size, and the reuse of idle
//! connections. This file adds pausing, generations, and a task that closes idle connections after
//! a clear and when the pool is closed.
//!
//! This pool does not implement all of CMAP, because deadpool does not track connections that are
//! being opened or are in use, and each check-out opens its own connection. The pool has
//!
//! - no eviction: after a clear, check-outs keep waiting until a connection is checked in,
//! - no interruption: a running command ends only at its own time-out,
//! - no `maxConnecting`: after a failover, `maxPoolSize` connections are opened at the same time,
//! - no hand-over: a check-out that is opening a connection does not use a connection that is
//!   checked in meanwhile,
//! - no support for load balancers: deadpool drops connections silently, so nothing reports that
//!   they are closed,
//! - no `minPoolSize`, `maxIdleTimeMS`, `waitQueueTimeoutMS`, unlimited size or events.
//!
//! The pool of the feature `pool` has none of these limitations. The test at the end of this file
//! verifies the statements above.

use std::{
    env,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use deadpool::managed::{
    Manager, Metrics, Object, Pool as Deadpool, PoolError as DeadpoolError, RecycleResult,
};
use event_listener::Event;
use futures::future::join_all;
use sdam::{
    Criteria, Error, ErrorKind, Established, PoolClear, PoolContext, PoolFactory, PoolHandle,
    Topology,
    pool::Generation,
    runtime::{self, Task},
    sim::{Blueprint, action::Target},
};

/// The result of the program. Any error ends it.
type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Creates a pool for each server.
#[derive(Clone, Debug)]
pub struct Pools {
    /// `maxPoolSize`, at least 1.
    pub max_size: usize,
    /// The time limit for opening a connection; `None` for no limit.
    pub connect_timeout: Option<Duration>,
}

/// The pool of one server.
#[derive(Clone, Debug)]
pub struct Pool(Deadpool<Connector>);

/// A checked-out connection. Dropping it checks it in.
pub type Connection = Object<Connector>;

/// Opens connections for deadpool and rejects stale connections.
#[derive(Debug)]
pub struct Connector {
    context: PoolContext,
    timeout: Option<Duration>,
    state: Mutex<State>,
    /// Notified on each clear and when the pool is closed.
    changed: Event,
}

#[derive(Debug)]
struct State {
    /// The error that check-outs return; `None` while the pool is ready.
    refusal: Option<Error>,
    /// Connections of earlier generations are stale.
    generation: Generation,
}

impl PoolFactory for Pools {
    type Pool = Pool;

    fn create(&self, context: PoolContext) -> Pool {
        let state = State {
            refusal: Some(Error::pool_not_ready(&context.address)),
            generation: context.generation,
        };
        let connector = Connector {
            context,
            timeout: self.connect_timeout,
            state: Mutex::new(state),
            changed: Event::new(),
        };
        let pool = Deadpool::builder(connector).max_size(self.max_size.max(1));
        #[expect(clippy::expect_used, reason = "only deadpool's time-outs need a runtime")]
        Pool(pool.build().expect("no time-outs are set"))
    }
}

impl PoolHandle for Pool {
    fn ready(&self) {
        self.connector().set_refusal(None);
    }

    fn clear(&self, clear: &PoolClear) {
        let own = self.connector();
        own.lock().generation = clear.generation;
        own.set_refusal(Some(Error::pool_cleared(&own.context.address, &clear.cause)));
        own.changed.notify(1);
    }

    fn close(&self) {
        let own = self.connector();
        own.set_refusal(Some(Error::pool_closed(&own.context.address)));
        own.changed.notify(1);
    }

    /// Returns a task that closes stale idle connections. The topology waits for the calls that it
    /// makes to the pool, and closing connections within those calls would take too long.
    fn background(&self) -> Option<Task> {
        let pool = self.clone();
        Some(Task::new("custom-pool", async move {
            loop {
                let changed = pool.connector().changed.listen();
                drop(pool.0.retain(|own, _| pool.connector().check(own).is_ok()));
                if pool.connector().is_closed() {
                    return pool.0.close();
                }
                changed.await;
            }
        }))
    }
}

impl Pool {
    /// Checks out a connection. The future may be dropped at any time.
    ///
    /// # Errors
    ///
    /// If the pool refused the check-out, or the connection could not be opened; such a connection
    /// error has already been reported to the topology.
    pub async fn check_out(&self) -> Result<Connection, Error> {
        self.connector().admit()?;
        self.0.get().await.map_err(|error| match error {
            DeadpoolError::Backend(error) => error,
            _ => Error::pool_closed(&self.connector().context.address),
        })
    }

    fn connector(&self) -> &Connector {
        self.0.manager()
    }
}

impl Manager for Connector {
    type Type = Established;
    type Error = Error;

    async fn create(&self) -> Result<Established, Error> {
        self.admit()?;
        let connection = self.context.establish(self.timeout).await?;
        self.check(&connection).map(|()| connection)
    }

    async fn recycle(&self, own: &mut Established, _: &Metrics) -> RecycleResult<Error> {
        Ok(self.check(own)?)
    }
}

impl Connector {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        let kind = self.lock().refusal.as_ref().map(Error::kind);
        kind == Some(ErrorKind::PoolClosed)
    }

    fn set_refusal(&self, refusal: Option<Error>) {
        if !self.is_closed() {
            self.lock().refusal = refusal;
        }
    }

    /// Fails while the pool is paused or closed.
    fn admit(&self) -> Result<(), Error> {
        let refusal = self.lock().refusal.clone();
        refusal.map_or(Ok(()), Err)
    }

    /// Fails if the connection must not be used again.
    fn check(&self, connection: &Established) -> Result<(), Error> {
        self.admit()?;
        if connection.is_usable() && connection.generation() >= self.lock().generation {
            return Ok(());
        }
        Err(Error::stale_connection(&self.context.address))
    }
}

fn main() -> Result<()> {
    let host = tokio::runtime::Runtime::new()?;
    if let Some(uri) = env::args().nth(1) {
        host.block_on(run(&uri, || Ok(())))?;
    } else {
        let set = Blueprint::replica_set(3).serve()?;
        host.block_on(run(set.uri(), || Ok(set.kill(Target::Primary)?)))?;
    }
    println!("100 pings shared 4 connections, and one more went to the primary of now");
    Ok(())
}

/// Runs 100 pings at the same time, calls `disturb`, and pings until the pool of the current primary
/// answers.
async fn run(uri: &str, disturb: impl Fn() -> Result<()>) -> Result<()> {
    let pools = Pools { max_size: 4, connect_timeout: Some(Duration::from_secs(30)) };
    let topology = Topology::builder(uri)?.pools(pools).start(runtime::tokio()?)?;
    for outcome in join_all((0..100).map(|_| ping(&topology))).await {
        if !outcome? {
            return Err("a ping has failed before any fault".into());
        }
    }
    disturb()?;
    while !ping(&topology).await? {}
    topology.close().await;
    Ok(())
}

/// Runs a ping; returns whether it succeeded.
async fn ping(topology: &Topology<Pool>) -> Result<bool> {
    let server = topology.select(&Criteria::write()).await?;
    let Ok(mut connection) = server.pool().check_out().await else {
        return Ok(false);
    };
    let command = bson::rawdoc! { "ping": 1, "$db": "admin" };
    let timeout = Some(Duration::from_secs(30));
    Ok(connection.run_command(command.as_bytes(), timeout).await.is_ok())
}

#[cfg(test)]
mod tests {
    use sdam::{Options, async_trait};
    use sdam_testkit::conformance::pools::{self, Claim, PoolUser};

    use super::*;

    struct User;

    #[async_trait]
    impl PoolUser for User {
        type Factory = Pools;
        type Connection = Connection;

        fn claims(&self) -> &[Claim] {
            &[Claim::Reuses, Claim::Pauses, Claim::MaxPoolSize, Claim::Fair]
        }

        fn factory(&self, options: &Options) -> Pools {
            Pools {
                max_size: options.pool.max_pool_size as usize,
                connect_timeout: Some(Duration::from_secs(10)),
            }
        }

        async fn check_out(&self, pool: &Pool) -> Result<Connection, Error> {
            pool.check_out().await
        }

        async fn run_command(&self, own: &mut Connection, command: &[u8]) -> Result<(), Error> {
            own.run_command(command, None).await.map(drop)
        }

        fn check_in(&self, _: &Pool, connection: Connection) {
            drop(connection);
        }
    }

    #[test]
    fn the_pool_keeps_the_contract_of_pools_and_what_it_claims() {
        pools::check(User);
    }

    #[test]
    fn operations_share_few_connections_and_go_on_after_a_failover() -> Result<()> {
        let set = Blueprint::replica_set(3).serve()?;
        let host = tokio::runtime::Runtime::new()?;
        host.block_on(run(set.uri(), || Ok(set.kill(Target::Primary)?)))
    }
}
