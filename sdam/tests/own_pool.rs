//! The pool of `sdam-pool` under a topology, on loopback sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use futures::future::join_all;
use sdam::{Criteria, Options, Topology};
use sdam_pool::{Error, Pool, Pools};
use sdam_sim::serve::ReplicaSet;

/// The time limit of every wait, for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);

fn start(uri: &str, host: &tokio::runtime::Runtime) -> Topology<Pool> {
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    let pools = Pools::new(&Options::parse(uri).unwrap()).unwrap();
    let builder = Topology::builder(uri).unwrap();
    builder.pools(pools).start(runtime).unwrap()
}

fn ping() -> RawDocumentBuf {
    rawdoc! { "ping": 1, "$db": "admin" }
}

async fn run_ping(topology: &Topology<Pool>) -> Result<(), Error> {
    let server = topology.select(&Criteria::write()).await.unwrap();
    let mut connection = server.pool().check_out().await?;
    let reply = connection
        .run_command(ping().as_bytes(), Some(PATIENCE))
        .await?;
    assert_eq!(reply.error, None);
    Ok(())
}

#[test]
fn many_operations_share_few_connections_and_survive_a_failover() {
    let host = tokio::runtime::Runtime::new().unwrap();
    let set = ReplicaSet::start(3).unwrap();
    let topology = start(&format!("{}&maxPoolSize=4", set.uri()), &host);
    host.block_on(async {
        let all = join_all((0..200).map(|_| run_ping(&topology))).await;
        all.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
        let server = topology.select(&Criteria::write()).await.unwrap();
        let stats = server.pool().stats();
        assert!(stats.opened <= 4, "{stats:?}");
        assert_eq!((stats.in_use, stats.waiting), (0, 0), "{stats:?}");
    });
    set.kill(set.primary().unwrap().unwrap()).unwrap();
    host.block_on(async {
        while run_ping(&topology).await.is_err() {}
        run_ping(&topology).await.unwrap();
        topology.close().await;
    });
}
