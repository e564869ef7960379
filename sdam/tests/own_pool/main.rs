//! The pool of `sdam-pool` under a topology.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod allocations;
mod clears;
mod closing;
mod filling;
mod metadata;
mod overload;
mod panics;
mod simulated;
mod single_threaded;
mod sockets;

use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use sdam::{Criteria, Error, Options, SelectedServer, ServerAddress, Topology, TopologyBuilder};
use sdam_pool::{Pool, PooledConnection, Pools};
use sdam_sim::{Blueprint, config::SetConfig, runtime::Sim};

/// The time limit of every wait, for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);

fn simulation(seed: u64) -> Sim {
    let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
    Sim::new(seed, &Blueprint::replica_set(SetConfig::new("rs", hosts)))
}

fn builder(uri: &str) -> TopologyBuilder<Pool> {
    let pools = Pools::new(&Options::parse(uri).unwrap()).unwrap();
    Topology::builder(uri).unwrap().pools(pools)
}

fn ping() -> RawDocumentBuf {
    rawdoc! { "ping": 1, "$db": "admin" }
}

async fn primary(topology: &Topology<Pool>) -> SelectedServer<Pool> {
    topology.select(&Criteria::write()).await.unwrap()
}

async fn run_ping(connection: &mut PooledConnection) -> Result<(), Error> {
    let ping = ping();
    let reply = connection.run_command(ping.as_bytes(), Some(PATIENCE));
    reply.await.map(drop)
}

/// Selects the primary and runs a ping on a pooled connection.
async fn ping_primary(topology: &Topology<Pool>) -> Result<(), Error> {
    let server = primary(topology).await;
    run_ping(&mut server.pool().check_out().await?).await
}
