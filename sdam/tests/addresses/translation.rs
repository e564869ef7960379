//! Monitors members with unreachable names through a translation.

use futures::executor::block_on;
use sdam::{AddressTable, ThroughHost, Topology, Translate};
use sdam_sim::{
    Blueprint, MemberId, Sim,
    config::SetConfig,
    runtime::DnsFault,
    serve::{Builder, ReplicaSet},
};

use super::{PATIENCE, address, complete, on_every_runtime};

/// Runs a failover of `set`, whose three members have unknown names, under a topology that keeps
/// the names.
fn fail_over(runtime: sdam::Runtime, set: &ReplicaSet, uri: &str, translate: impl Translate) {
    let builder = Topology::builder(uri).unwrap().translate(translate);
    let topology = builder.start(runtime).unwrap();
    block_on(async {
        let (first, members) = topology.wait_for(complete, PATIENCE).await.unwrap();
        assert_eq!(members, 3);
        assert!(first.host().starts_with("mongo-"), "{first}");
        set.step_down().unwrap();
        let other = |snapshot: &_| complete(snapshot).filter(|(primary, _)| *primary != first);
        let (second, members) = topology.wait_for(other, PATIENCE).await.unwrap();
        assert_eq!(members, 3);
        assert!(second.host().starts_with("mongo-"), "{second}");
        topology.close().await;
    });
}

#[test]
fn a_set_with_unknown_names_fails_over_through_a_table_of_published_ports() {
    on_every_runtime(|runtime| {
        let name = |index, _| address(&format!("mongo-{index}.invalid:27017"));
        let set = ReplicaSet::build(Builder::replica_set(3).name(name)).unwrap();
        let table = AddressTable::from_iter(set.places().to_vec());
        let uri = "mongodb://mongo-0.invalid:27017,mongo-1.invalid:27017/?replicaSet=rs0";
        fail_over(runtime, &set, uri, table);
    });
}

#[test]
fn a_set_with_unknown_names_fails_over_through_a_host_that_keeps_the_ports() {
    on_every_runtime(|runtime| {
        let name = |index, port| address(&format!("mongo-{index}.invalid:{port}"));
        let set = ReplicaSet::build(Builder::replica_set(3).name(name)).unwrap();
        fail_over(runtime, &set, set.uri(), ThroughHost::new("127.0.0.1"));
    });
}

#[test]
fn a_seed_may_be_the_end_of_a_tunnel_if_the_table_has_all_members() {
    on_every_runtime(|runtime| {
        let name = |index, _| address(&format!("mongo-{index}.invalid:27017"));
        let set = ReplicaSet::build(Builder::replica_set(3).name(name)).unwrap();
        let table = AddressTable::from_iter(set.places().to_vec());
        let (_, tunnel) = &set.places()[0];
        let uri = format!("mongodb://{tunnel}/?replicaSet=rs0");
        fail_over(runtime, &set, &uri, table);
    });
}

#[test]
fn a_simulated_set_with_unknown_names_fails_over_through_a_table() {
    for seed in 0..20 {
        let names = ["mongo-0:27017", "mongo-1:27017", "mongo-2:27017"].map(address);
        let sim = Sim::new(
            seed,
            &Blueprint::replica_set(SetConfig::new("rs", names.clone())),
        );
        let mut table = Vec::new();
        for (index, name) in names.into_iter().enumerate() {
            sim.dns().set_fault(name.host(), Some(DnsFault::NoSuchName));
            let place = address(&format!("localhost:{}", 30001 + index));
            sim.network().forward(place.clone(), MemberId(index as u16));
            table.push((name, place));
        }
        sim.block_on(async {
            let uri = "mongodb://localhost:30001/?replicaSet=rs";
            let builder = Topology::builder(uri)
                .unwrap()
                .translate(AddressTable::from_iter(table));
            let topology = builder.start(sim.runtime()).unwrap();
            let (first, members) = topology.wait_for(complete, PATIENCE).await.unwrap();
            assert_eq!(members, 3, "seed {seed}");
            sim.kill(sim.status().primary().unwrap().id).unwrap();
            let other = |snapshot: &sdam::Snapshot| {
                let primary = snapshot.description().primary()?;
                (primary.address != first).then_some(())
            };
            topology.wait_for(other, PATIENCE).await.unwrap();
            topology.close().await;
        });
        assert_eq!(sim.dns().lookups("mongo-0"), 0, "only places are looked up");
    }
}
