//! Checks that the runtime fulfils the contracts of the runtime interfaces, and runs a topology on
//! it.

#![cfg(target_os = "linux")]

use futures::executor::block_on;
use sdam::Topology;
use sdam_examples_monoio::Monoio;
use sdam_select::criteria::Criteria;
use sdam_sim::serve::ReplicaSet;
use sdam_transport::conformance;

#[test]
fn a_single_threaded_runtime_keeps_its_contracts() {
    let monoio = Monoio::start();
    conformance::runtime(&monoio.runtime);
    conformance::shutdown(&monoio.runtime.clone(), || monoio.end().unwrap());
}

#[test]
fn a_topology_on_monoio_finds_its_primary() {
    let simulated = ReplicaSet::start(3).unwrap();
    let monoio = Monoio::start();
    let builder = Topology::builder(simulated.uri()).unwrap();
    let topology = builder.start(monoio.runtime.clone()).unwrap();
    let selected = block_on(topology.select(&Criteria::write())).unwrap();
    let description = topology.snapshot().description().clone();
    assert_eq!(description.primary().map(|server| &server.address), Some(selected.address()));
    block_on(topology.close());
    monoio.end().unwrap();
}
