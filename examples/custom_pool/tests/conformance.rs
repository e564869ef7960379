//! Checks that the pool fulfils the contract of the pool interface, and that it really has the
//! limitations that its documentation states.

use std::time::Duration;

use sdam::{
    Error, Options, async_trait,
    discovery::pool::PoolOptions,
    transport::conformance::pools::{self, Claim, PoolUser},
};
use sdam_examples_custom_pool::{Connection, Pool, Pools};

struct User;

#[async_trait]
impl PoolUser for User {
    type Factory = Pools;
    type Connection = Connection;

    fn claims(&self) -> &[Claim] {
        &[Claim::Reuses, Claim::Pauses, Claim::MaxPoolSize, Claim::Fair]
    }

    fn factory(&self, options: &Options) -> Pools {
        let options = PoolOptions::of(&options.driver).unwrap_or_default();
        Pools {
            max_size: options.max_pool_size as usize,
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
