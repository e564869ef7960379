//! Checks that the guide's smallest pool fulfils the contract that applies to all pools.

#![expect(clippy::unwrap_used, reason = "the listing is short")]

use std::{sync::Mutex, time::Duration};

use sdam::{
    Error, ErrorKind, Established, Options, PoolClear, PoolContext, PoolFactory, PoolHandle,
    async_trait,
};
use sdam_testkit::conformance::pools::{self, Claim, PoolUser};

include!("guide/smallest.rs");

struct User;

#[async_trait]
impl PoolUser for User {
    type Factory = Pools;
    type Connection = Established;

    fn claims(&self) -> &[Claim] {
        &[Claim::Pauses]
    }

    fn factory(&self, _: &Options) -> Pools {
        Pools
    }

    async fn check_out(&self, pool: &Pool) -> Result<Established, Error> {
        pool.open().await
    }

    async fn run_command(&self, own: &mut Established, command: &[u8]) -> Result<(), Error> {
        let reply = own.run_command(command, None).await;
        reply.map(drop)
    }

    fn check_in(&self, _: &Pool, connection: Established) {
        connection.close();
    }
}

#[test]
fn the_smallest_pool_keeps_the_contract_of_pools() {
    pools::check(User);
}

#[test]
fn the_listing_of_the_guide_is_that_pool() {
    let guide = include_str!("../../docs/guide/src/pool.md");
    assert!(guide.contains(include_str!("guide/smallest.rs")));
}
