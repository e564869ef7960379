//! Tests topologies on loopback sockets: with simulated deployments, with hostile servers, with
//! real name servers and proxies, and in blocking mode.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod addresses;
#[cfg(feature = "blocking")]
mod blocking;
mod dns;
mod hostile;
mod lifecycle;
#[cfg(target_os = "linux")]
mod vanished;

use std::{net::TcpStream, sync::Arc, thread, time::Duration};

use bson::{RawDocumentBuf, rawdoc};
use futures::{StreamExt, executor::block_on};
use sdam::{
    Connection, Criteria, Error, ErrorKind, EventKind, Runtime, ServerAddress, ServerType,
    Snapshot, Topology, TopologyBuilder, Transport,
    error::{ErrorOutcome, Stage},
    events::EventName,
};
use sdam_events::channel::unbounded;
use sdam_live::{Socks, or_skip};
use sdam_pool::{Pool, Pools};
use sdam_sim::{Blueprint, Served};

/// The time limit of every wait, long enough for a machine under load.
const PATIENCE: Duration = Duration::from_secs(60);

fn tokio() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn on(tokio: &tokio::runtime::Runtime) -> Runtime {
    sdam_runtime_tokio::from_handle(tokio.handle().clone()).unwrap()
}

/// Runs `test` on every runtime with background tasks.
fn on_every_runtime(test: impl Fn(Runtime)) {
    let tokio = tokio();
    test(on(&tokio));
    test(sdam_runtime_smol::runtime());
    test(sdam_runtime_async_std::runtime());
}
