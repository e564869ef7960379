//! The pool of `sdam-pool` on a runtime that ends.

use sdam::{Criteria, ErrorKind, Options, Topology};
use sdam_pool::Pools;
use sdam_sim::serve::ReplicaSet;

use crate::{on, tokio};

#[test]
fn a_check_out_after_the_runtime_has_ended_fails_and_a_check_in_is_possible() {
    let (set, host) = (ReplicaSet::start(1).unwrap(), tokio());
    let pools = Pools::new(&Options::parse(set.uri()).unwrap()).unwrap();
    let builder = Topology::builder(set.uri()).unwrap().pools(pools);
    let topology = builder.start(on(&host)).unwrap();
    let (pool, connection) = host.block_on(async {
        let server = topology.select(&Criteria::write()).await.unwrap();
        let pool = server.pool().clone();
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
