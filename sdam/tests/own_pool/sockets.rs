//! Pools with sockets of the loopback interface.

use futures::future::join_all;
use sdam::{ErrorKind, Topology};
use sdam_pool::Pool;
use sdam_sim::serve::ReplicaSet;

use super::{builder, ping_primary, primary};

fn start(uri: &str, host: &tokio::runtime::Runtime) -> Topology<Pool> {
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    builder(uri).start(runtime).unwrap()
}

#[test]
fn many_operations_share_few_connections_and_go_on_after_a_failover() {
    // F-64
    let host = tokio::runtime::Runtime::new().unwrap();
    let set = ReplicaSet::start(3).unwrap();
    let topology = start(&format!("{}&maxPoolSize=4", set.uri()), &host);
    host.block_on(async {
        let all = join_all((0..200).map(|_| ping_primary(&topology))).await;
        all.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
        let stats = primary(&topology).await.pool().stats();
        assert!(stats.opened <= 4, "{stats:?}");
        assert_eq!((stats.in_use, stats.waiting), (0, 0), "{stats:?}");
    });
    set.kill(set.primary().unwrap().unwrap()).unwrap();
    host.block_on(async {
        while ping_primary(&topology).await.is_err() {}
        ping_primary(&topology).await.unwrap();
        topology.close().await;
    });
}

#[test]
fn a_check_out_after_the_runtime_has_ended_fails_and_a_check_in_is_possible() {
    let host = tokio::runtime::Runtime::new().unwrap();
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
