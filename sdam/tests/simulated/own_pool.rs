//! Tests of a topology that uses the pool of `sdam-pool`.

mod checking_out;
mod closing;
mod metadata;
mod overload;
mod panics;

use std::sync::atomic::{AtomicBool, Ordering};

use bson::rawdoc;
use futures::future::{join_all, poll_immediate};
use sdam::{SelectedServer, runtime::Task};
use sdam_core::error::ErrorKind;
use sdam_pool::PooledConnection;
use sdam_sim::{Action, action::Target};

use super::*;

/// The time limit of every wait, long enough for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);

fn builder(uri: &str) -> TopologyBuilder<Pool> {
    Topology::builder(uri).unwrap().pools(Pools::new())
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
    let mut fail = fail_command(commands, mode);
    fail.block = Some(block);
    let fail = Action::FailPoint(Target::Primary, Some(fail));
    sim.apply(&fail).unwrap();
}

/// A spawner that changes the tasks of pools.
struct PoolTasks<F>(Arc<dyn Spawner>, F);

impl<F: Fn(Task) -> Task + Send + Sync + 'static> Spawner for PoolTasks<F> {
    fn spawn(&self, task: Task) {
        let is_of_pool = task.name() == "sdam-pool";
        self.0.spawn(if is_of_pool { self.1(task) } else { task });
    }
}

sdam_core::opaque!(PoolTasks<F>);

/// Starts a topology whose pools run the tasks that `change` returns.
fn start_changed(
    sim: &Sim,
    options: &str,
    change: impl Fn(Task) -> Task + Send + Sync + 'static,
) -> Topology<Pool> {
    let mut runtime = sim.runtime();
    runtime.spawner = Arc::new(PoolTasks(runtime.spawner, change));
    builder(&format!("{}&{options}", sim.uri())).start(runtime).unwrap()
}
