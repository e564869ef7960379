//! One pool for each tenant over one topology, whose servers are monitored only once.
//!
//! `cargo run -p sdam-examples --example tenants`. It simulates a replica set.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{
    StreamExt as _,
    channel::mpsc::{UnboundedSender, unbounded},
};
use sdam::{
    Authenticator, ConfigError, Criteria, Options, PoolClear, PoolContext, PoolFactory, PoolHandle,
    Topology,
    pool::{Pool, Pools},
    runtime::{self, Task},
    sim::Blueprint,
};
use sdam_core::event::NoEvents;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Creates the pools of each server.
#[derive(Debug)]
struct PerTenant(Pools);

/// The pools of one server, each of which is created when its tenant first uses it.
#[derive(Debug)]
struct Tenants {
    context: PoolContext,
    factory: Pools,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pools: BTreeMap<String, Pool>,
    /// Passes the tasks of new pools to the task that runs them; `None` once the server has left.
    tasks: Option<UnboundedSender<Task>>,
    /// The last clear of all pools. It contains the generation at which a new pool begins.
    cleared: Option<PoolClear>,
    is_ready: bool,
    is_closed: bool,
}

impl PoolFactory for PerTenant {
    type Pool = Tenants;

    fn create(&self, context: PoolContext) -> Tenants {
        Tenants { context, factory: self.0.clone(), state: Mutex::default() }
    }

    fn check(&self, options: &Options, own: Option<&dyn Authenticator>) -> Result<(), ConfigError> {
        self.0.check(options, own)
    }
}

impl Tenants {
    /// Returns the pool of `tenant`. Puts a new pool into the same state as the other pools.
    fn of(&self, tenant: &str) -> Pool {
        let mut state = self.state();
        if let Some(pool) = state.pools.get(tenant) {
            return pool.clone();
        }
        // Events support only one pool per server, so the pools of tenants publish no events.
        let mut context = self.context.clone();
        context.events = Arc::new(NoEvents);
        let pool = self.factory.create(context);
        if let Some((tasks, task)) = state.tasks.as_ref().zip(pool.background()) {
            let _ = tasks.unbounded_send(task);
        }
        if let Some(clear) = &state.cleared {
            pool.clear(clear);
        }
        if state.is_ready {
            pool.ready();
        }
        if state.is_closed {
            pool.close();
        }
        state.pools.insert(tenant.to_owned(), pool.clone());
        pool
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolHandle for Tenants {
    fn ready(&self) {
        let mut state = self.state();
        state.is_ready = true;
        state.pools.values().for_each(Pool::ready);
    }

    fn clear(&self, clear: &PoolClear) {
        let mut state = self.state();
        // A clear of one service behind a load balancer does not pause the pools.
        if clear.service_id.is_none() {
            state.is_ready = false;
            state.cleared = Some(clear.clone());
        }
        state.pools.values().for_each(|pool| pool.clear(clear));
    }

    fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.tasks = None;
        state.pools.values().for_each(Pool::close);
    }

    /// Runs the tasks of all pools, so that closing the topology waits for them.
    fn background(&self) -> Option<Task> {
        let (sender, tasks) = unbounded::<Task>();
        self.state().tasks = Some(sender);
        Some(Task::new("tenants", tasks.for_each_concurrent(None, |task| task)))
    }
}

async fn run(uri: &str) -> Result<()> {
    let pools = PerTenant(Pools::new());
    let topology = Topology::builder(uri)?.pools(pools).start(runtime::tokio()?)?;
    let primary = topology.select(&Criteria::write()).await?;
    let ping = bson::rawdoc! { "ping": 1, "$db": "admin" };
    for tenant in ["north", "south", "north"] {
        let pool = primary.pool().of(tenant);
        pool.check_out().await?.run_command(ping.as_bytes(), None).await?;
        println!("{tenant}: {:?}", pool.stats());
    }
    topology.close().await;
    Ok(())
}

fn main() -> Result<()> {
    let set = Blueprint::replica_set(3).serve()?;
    tokio::runtime::Runtime::new()?.block_on(run(set.uri()))
}

#[cfg(test)]
mod tests {
    use sdam::{
        Error, ErrorKind, async_trait,
        error::{ErrorReport, Stage},
        pool::PooledConnection,
        sim::{Blueprint, Sim},
    };
    use sdam_testkit::conformance::pools::{self, Claim, PoolUser};

    use super::*;

    #[test]
    fn the_example_runs() -> Result<()> {
        main()
    }

    #[test]
    fn a_clear_and_the_end_reach_the_pools_of_all_tenants_even_new_ones() -> Result<()> {
        let sim = Sim::new(1, &Blueprint::replica_set(3));
        sim.block_on(async {
            let pools = PerTenant(Pools::new());
            let topology = Topology::builder(&sim.uri())?.pools(pools).start(sim.runtime())?;
            let primary = topology.select(&Criteria::write()).await?;
            let monitors = sim.connections();
            let [north, south] = ["north", "south"].map(|tenant| primary.pool().of(tenant));
            let used = north.check_out().await?;
            assert_eq!((north.stats().in_use, south.stats().in_use), (1, 0));
            assert_eq!(sim.connections(), monitors + 1, "only pools have a cost for each tenant");

            let broken = Error::network(Stage::Operation, "reset");
            let report = ErrorReport::new(used.generation(), broken);
            topology.reporter(primary.id()).handle_error(&report);
            drop(used);
            let late = primary.pool().of("late");
            for pool in [&north, &south, &late] {
                let refused = pool.check_out().await.map(drop).map_err(|error| error.kind());
                assert_eq!(refused, Err(ErrorKind::PoolCleared));
            }

            let primary = topology.select(&Criteria::write()).await?;
            for tenant in ["north", "south", "late", "later"] {
                let connection = primary.pool().of(tenant).check_out().await?;
                assert_eq!(connection.generation(), primary.generation(), "{tenant}");
            }

            topology.close().await;
            assert_eq!((sim.tasks(), sim.connections()), (0, 0), "the end waits for all pools");
            for tenant in ["north", "after the end"] {
                let refused = primary.pool().of(tenant).check_out().await;
                assert_eq!(refused.map(drop).map_err(|e| e.kind()), Err(ErrorKind::PoolClosed));
            }
            Ok(())
        })
    }

    /// Uses the pool of a tenant.
    struct User;

    #[async_trait]
    impl PoolUser for User {
        type Factory = PerTenant;
        type Connection = PooledConnection;

        fn claims(&self) -> &[Claim] {
            &[Claim::Reuses, Claim::Pauses, Claim::LoadBalanced]
        }

        fn factory(&self, _: &sdam::Options) -> PerTenant {
            PerTenant(Pools::new())
        }

        async fn check_out(&self, pool: &Tenants) -> Result<PooledConnection, Error> {
            pool.of("north").check_out().await
        }

        async fn run_command(
            &self,
            own: &mut PooledConnection,
            command: &[u8],
        ) -> Result<(), Error> {
            own.run_command(command, None).await.map(drop)
        }

        fn check_in(&self, _: &Tenants, connection: PooledConnection) {
            drop(connection);
        }
    }

    #[test]
    fn the_pool_of_a_tenant_keeps_the_contract_of_pools() {
        pools::check(User);
    }
}
