//! A sharded cluster of four mongoses, and the DNS zone of the official tests.

use std::time::Duration;

use sdam::{Error, ScanTopology, ServerAddress, Topology, TopologyBuilder, TopologyDescription};
use sdam_sim::{Blueprint, runtime::Sim};

/// The host of all mongoses, which differ in their ports.
pub(crate) const HOST: &str = "localhost.test.build.10gen.cc";
/// The name of `test1`, the SRV record that most tests use.
pub(crate) const TEST1: &str = "_mongodb._tcp.test1.test.build.10gen.cc";
/// The interval between look-ups, `rescanSRVIntervalMS`, which is also the TTL of all records.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);

pub(crate) fn hosts(ports: &[u16]) -> Vec<ServerAddress> {
    let host = |port: &u16| ServerAddress::new(HOST, *port);
    ports.iter().map(host).collect()
}

/// Starts mongoses on the ports 27017 to 27020, the first two of which are in the record of
/// `test1`.
pub(crate) fn sharded(seed: u64) -> Sim {
    let mongoses = hosts(&[27017, 27018, 27019, 27020]);
    let sim = Sim::new(seed, &Blueprint::sharded(4).at(mongoses));
    set(&sim, TEST1, &[27017, 27018]);
    sim
}

/// Sets the SRV records of `name`, which then lead to these ports of the host.
pub(crate) fn set(sim: &Sim, name: &str, ports: &[u16]) {
    sim.dns().set_srv(name, INTERVAL, hosts(ports));
}

/// Returns the connection string for the host `name`, such as `test1`, without TLS.
pub(crate) fn uri(name: &str, options: &str) -> String {
    format!("mongodb+srv://{name}.test.build.10gen.cc/?tls=false&{options}")
}

pub(crate) fn resolve(sim: &Sim, uri: &str) -> Result<TopologyBuilder, Error> {
    sim.block_on(sdam::resolve(uri, &sim.runtime().backend)).map(TopologyBuilder::new)
}

/// Starts a topology with background monitors.
pub(crate) fn start(sim: &Sim, uri: &str) -> Topology {
    resolve(sim, uri).unwrap().start(sim.runtime()).unwrap()
}

/// Starts a single-threaded topology.
pub(crate) fn scan(sim: &Sim, uri: &str) -> ScanTopology {
    resolve(sim, uri).unwrap().scan(sim.runtime().backend).unwrap()
}

pub(crate) fn ports(description: &TopologyDescription) -> Vec<u16> {
    let servers = description.servers().iter();
    servers.filter_map(|server| server.address.port()).collect()
}
