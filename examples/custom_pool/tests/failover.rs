//! Runs a topology that uses the pool, and takes it through a failover.

use std::{error::Error, time::Duration};

use futures::future::join_all;
use sdam::{Criteria, Topology, runtime, sim::ReplicaSet};
use sdam_examples_custom_pool::{Pool, Pools};

/// Runs a ping; returns whether it succeeded.
async fn ping(topology: &Topology<Pool>) -> Result<bool, Box<dyn Error>> {
    let server = topology.select(&Criteria::write()).await?;
    let Ok(mut connection) = server.pool().check_out().await else {
        return Ok(false);
    };
    let command = bson::rawdoc! { "ping": 1, "$db": "admin" };
    let timeout = Some(Duration::from_secs(30));
    let reply = connection.run_command(command.as_bytes(), timeout).await;
    Ok(reply.is_ok())
}

#[test]
fn operations_share_few_connections_and_go_on_after_a_failover() -> Result<(), Box<dyn Error>> {
    let set = ReplicaSet::start(3)?;
    let pools = Pools { max_size: 4, connect_timeout: Some(Duration::from_secs(30)) };
    tokio::runtime::Runtime::new()?.block_on(async {
        let builder = Topology::builder(set.uri())?.pools(pools);
        let topology = builder.start(runtime::tokio()?)?;
        for outcome in join_all((0..100).map(|_| ping(&topology))).await {
            assert!(outcome?);
        }
        set.kill(set.primary()?.ok_or("there is no primary")?)?;
        while !ping(&topology).await? {}
        assert!(ping(&topology).await?);
        topology.close().await;
        Ok(())
    })
}
