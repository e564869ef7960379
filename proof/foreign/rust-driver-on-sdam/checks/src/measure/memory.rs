//! The memory of a client that monitors its servers, and of each additional server.

use std::time::{Duration, Instant};

use tokio::{runtime::Runtime, time::sleep};

use super::{
    Quick,
    deployment::{Deployment, NO_HEARTBEATS, start},
    print,
    process::allocated,
    server::Kind,
};
use crate::{Result, observer::DEADLINE};

/// The number of clients whose memory is measured together.
const CLIENTS: usize = 10;

pub fn all(quick: Quick) -> Result<()> {
    let few = per_client(Kind::ReplicaSet, 3, CLIENTS)?;
    print("memory/client_of_3_members", "KiB", few)?;
    let many = per_client(Kind::ReplicaSet, 50, CLIENTS)?;
    print("memory/further_member_of_50", "KiB", (many - few) / 47.0)?;
    let mongoses = quick.or(100, 1000);
    let most = per_client(Kind::Sharded, mongoses, 1)?;
    print("memory/client_of_1000_mongoses", "KiB", most)
}

/// Returns the allocated KiB per client.
fn per_client(kind: Kind, members: usize, number: usize) -> Result<f64> {
    let deployment = Deployment::start(kind, members)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Excludes one-time allocations of the process.
    let first = runtime.block_on(start(&deployment, Some(NO_HEARTBEATS)))?;
    let before = settled(&runtime)?;
    let clients = (0..number).map(|_| runtime.block_on(start(&deployment, Some(NO_HEARTBEATS))));
    let clients = clients.collect::<Result<Vec<_>>>()?;
    let after = settled(&runtime)?;
    drop((first, clients));
    Ok((after as f64 - before as f64) / 1024.0 / number as f64)
}

/// Returns the allocated bytes once they no longer change.
fn settled(runtime: &Runtime) -> Result<usize> {
    let begin = Instant::now();
    let mut bytes = allocated();
    loop {
        runtime.block_on(async { sleep(Duration::from_millis(300)).await });
        let now = allocated();
        if now == bytes {
            return Ok(now);
        }
        bytes = now;
        if begin.elapsed() > 4 * DEADLINE {
            return Err("the memory of idle clients does not settle".into());
        }
    }
}
