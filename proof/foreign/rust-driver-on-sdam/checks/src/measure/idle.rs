//! The work of an idle client with three streaming servers.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    Quick,
    deployment::{Deployment, start},
    print,
    process::{cpu, micros, sleeps},
    server::Kind,
};
use crate::Result;

pub fn all(quick: Quick) -> Result<()> {
    let deployment = Deployment::start(Kind::ReplicaSet, 3)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(start(&deployment, None))?;
    // Waits for one heartbeat, after which all connections of the monitors are open.
    runtime.block_on(async { sleep(Duration::from_secs(11)).await });
    // The time is a multiple of the heartbeat interval of 10 s, so each round has the same number
    // of heartbeats.
    let time = Duration::from_secs(quick.or(10, 30));
    let (woken, used) = (sleeps()?, cpu()?);
    runtime.block_on(async { sleep(time).await });
    let (woken, used) = (sleeps()? - woken, cpu()?.saturating_sub(used));
    let seconds = time.as_secs_f64();
    print("idle/wakeups", "1/s", woken as f64 / seconds)?;
    print("idle/cpu", "us/s", micros(used) / seconds)?;
    runtime.block_on(client.shutdown().into_future());
    Ok(())
}
