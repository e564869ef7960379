//! The interface for drivers that look up SRV records and use pools themselves.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt;
use sdam::{Criteria, KnownServer, ServerAddress, Topology};
use sdam_testkit::RecordingPools;

use super::harness::{Harness, hosts};

fn addresses(topology: &Topology) -> Vec<ServerAddress> {
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
    let servers = topology.servers();
    let of = |server: &KnownServer<_>| server.address().clone();
    assert_eq!(servers.iter().map(of).collect::<Vec<_>>(), hosts);
    let selected = topology.try_select(&Criteria::write()).unwrap().unwrap();
    for server in &servers {
        let again = topology.server(server.address()).unwrap();
        assert_eq!(again.id(), server.id());
        assert_eq!(again.description(), server.description());
        let is_selected = server.id() == selected.id();
        let pool = server.pool().unwrap();
        assert_eq!(std::ptr::eq(pool, selected.pool()), is_selected);
        let state = topology.snapshot().server_by_id(server.id()).unwrap().operation_count();
        assert_eq!(state, u32::from(is_selected), "L-43");
    }
    assert!(topology.server(&ServerAddress::new("db.lan", 1)).is_none());
    topology.close().now_or_never();
    assert!(topology.servers().is_empty());
}

#[test]
fn a_server_whose_pool_factory_has_panicked_is_returned_without_pool() {
    let (mut harness, hosts) = (Harness::new(), hosts(2));
    let pools = RecordingPools::default();
    let topology = harness.start(&hosts[..1], |builder| builder.pools(pools.clone()));
    pools.break_at("create");
    let add = AssertUnwindSafe(|| topology.handle_srv_hosts(&hosts));
    assert!(catch_unwind(add).is_err());
    let has_pool = |server: &KnownServer<_>| server.pool().is_some();
    assert_eq!(topology.servers().iter().map(has_pool).collect::<Vec<_>>(), [true, false]);
}
