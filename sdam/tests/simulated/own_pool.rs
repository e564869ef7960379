//! Tests of a topology that uses the pool of `sdam-pool`.

mod allocations;
mod checking_out;
mod clears;
mod closing;
mod filling;
mod metadata;
mod overload;
mod panics;
mod single_threaded;

use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use sdam::{Criteria, Error, Interest, SelectedServer, Topology, TopologyBuilder};
use sdam_events::channel::{EventStream, unbounded};
use sdam_pool::{Pool, PooledConnection, Pools};
use sdam_sim::{
    Action,
    action::{FailCommand, Mode, Target},
    runtime::Sim,
};

use crate::simulation;

/// The time limit of every wait, long enough for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);

fn builder(uri: &str) -> TopologyBuilder<Pool> {
    let pools = Pools::new();
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

/// Starts a topology with these options and a sink that wants the events of `interest`.
fn observed(sim: &Sim, options: &str, interest: Interest) -> (Topology<Pool>, EventStream) {
    let (sink, events) = unbounded();
    let builder = builder(&format!("{}&{options}", sim.uri()));
    let builder = builder.sink(sink.interested_in(interest));
    (builder.start(sim.runtime()).unwrap(), events)
}

/// Advances the simulation by `time`.
async fn pass(sim: &Sim, time: Duration) {
    let clock = sim.runtime().backend.clock;
    clock.sleep_until(sim.now() + time).await;
}

/// Makes the primary delay `commands` by `block`.
fn block(sim: &Sim, commands: &[&str], mode: Mode, block: Duration) {
    let mut fail = FailCommand::default();
    fail.mode = mode;
    fail.commands = commands.iter().map(ToString::to_string).collect();
    fail.block = Some(block);
    let fail = Action::FailPoint(Target::Primary, Some(fail));
    sim.apply(&fail).unwrap();
}
