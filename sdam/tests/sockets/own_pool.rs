//! Pools with sockets of the loopback interface.

use bson::rawdoc;
use sdam::{Criteria, Error, ErrorKind, Options, SelectedServer, Topology};
use sdam_pool::{Pool, Pools};
use sdam_sim::serve::ReplicaSet;

use crate::{PATIENCE, on, tokio};

async fn primary(topology: &Topology<Pool>) -> SelectedServer<Pool> {
    topology.select(&Criteria::write()).await.unwrap()
}

async fn ping_primary(topology: &Topology<Pool>) -> Result<(), Error> {
    let mut connection = primary(topology).await.pool().check_out().await?;
    let ping = rawdoc! { "ping": 1, "$db": "admin" };
    let reply = connection.run_command(ping.as_bytes(), Some(PATIENCE));
    reply.await.map(drop)
}

fn start(uri: &str, host: &tokio::runtime::Runtime) -> Topology<Pool> {
    let pools = Pools::new(&Options::parse(uri).unwrap()).unwrap();
    let builder = Topology::builder(uri).unwrap().pools(pools);
    builder.start(on(host)).unwrap()
}

#[test]
fn a_check_out_after_the_runtime_has_ended_fails_and_a_check_in_is_possible() {
    let host = tokio();
    let set = ReplicaSet::start(1).unwrap();
    let topology = start(set.uri(), &host);
    let (pool, connection) = host.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        let connection = pool.check_out().await.unwrap();
        (pool, connection)
    });
    drop(host);
    let outcome = futures::executor::block_on(pool.check_out());
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::RuntimeShutDown);
    drop(connection);
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.waiting), (0, 0), "{stats:?}");
}
