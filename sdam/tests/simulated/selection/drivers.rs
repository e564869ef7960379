//! The interface for drivers that look up SRV records and use pools themselves.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt;
use sdam::{Criteria, PoolHandle, ServerAddress, Topology};
use sdam_testkit::RecordingPools;

use super::harness::{Harness, hosts};

fn addresses<P: PoolHandle>(topology: &Topology<P>) -> Vec<ServerAddress> {
    let snapshot = topology.snapshot();
    let servers = snapshot.description().servers();
    servers.iter().map(|one| one.address.clone()).collect()
}

#[test]
fn a_replica_set_takes_no_hosts_of_an_srv_record() {
    // SRV records are not polled for a replica set (N-20).
    let hosts = hosts(3);
    let mut harness = Harness::with_replica_set(&hosts);
    let topology = harness.start(&hosts, |builder| {
        builder.options(|options| options.replica_set = Some("rs".into()))
    });
    let version = topology.snapshot().version();
    topology.handle_srv_hosts(&hosts[..1]);
    assert_eq!(addresses(&topology), hosts);
    assert_eq!(topology.snapshot().version(), version);
}

#[test]
fn every_server_is_returned_with_the_pool_that_a_selection_returns() {
    let hosts = hosts(3);
    let mut harness = Harness::with_replica_set(&hosts);
    let pools = RecordingPools::default();
    let topology = harness.start(&hosts, |builder| builder.pools(pools.clone()));
    let snapshot = topology.snapshot();
    assert_eq!(addresses(&topology), hosts);
    let selected = topology.try_select(&Criteria::write()).unwrap().unwrap();
    for server in snapshot.servers() {
        let description = server.description();
        let again = snapshot.server(&description.address).unwrap();
        assert_eq!(again.description(), description);
        let is_selected = description.id == selected.id();
        let pool = topology.pool(&server).unwrap();
        assert_eq!(std::ptr::eq(pool, selected.pool()), is_selected);
        let state = snapshot.server_by_id(description.id).unwrap().operation_count();
        assert_eq!(state, u32::from(is_selected), "L-43");
    }
    assert!(snapshot.server(&ServerAddress::new("db.lan", 1)).is_none());
    topology.close().now_or_never();
    assert_eq!(topology.snapshot().servers().len(), 0);
}

#[test]
fn a_server_whose_pool_factory_has_panicked_is_returned_without_pool() {
    let (mut harness, hosts) = (Harness::new(), hosts(2));
    let pools = RecordingPools::default();
    let topology = harness.start(&hosts[..1], |builder| builder.pools(pools.clone()));
    pools.break_at("create");
    let add = AssertUnwindSafe(|| topology.handle_srv_hosts(&hosts));
    assert!(catch_unwind(add).is_err());
    let snapshot = topology.snapshot();
    let has_pool = snapshot.servers().map(|server| topology.pool(&server).is_some());
    assert_eq!(has_pool.collect::<Vec<_>>(), [true, false]);
}
