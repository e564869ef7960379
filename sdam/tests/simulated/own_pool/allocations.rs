//! Measures the cost of checking out an idle connection and checking it in again.

use futures::FutureExt;
use sdam_sim::{Blueprint, config::SetConfig, runtime::Sim};

use super::{builder, primary};

#[test]
fn a_check_out_of_an_idle_connection_and_its_check_in_allocate_nothing() {
    // Without a sink, a check-out of an idle connection allocates nothing (P-51).
    let hosts = [sdam::ServerAddress::new("a", 27017)];
    let sim = Sim::new(1, &Blueprint::replica_set(SetConfig::new("rs", hosts)));
    let topology = builder(&sim.uri()).start(sim.runtime()).unwrap();
    let pool = sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        drop(pool.check_out().await.unwrap());
        pool
    });
    let pair = || drop(pool.check_out().now_or_never().unwrap().unwrap());
    let allocations = allocation_counter::measure(|| (0..100).for_each(|_| pair()));
    assert_eq!(allocations.count_total, 0);
    sim.block_on(topology.close());
}
