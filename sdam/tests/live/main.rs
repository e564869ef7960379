//! Tests with real servers and failovers, which check the observable changes and their order.
//!
//! `SDAM_LIVE_VERSION` (4.2, 4.4, 5.0, 6.0) and `SDAM_LIVE_RUNTIME` (tokio, smol, async-std) select
//! the server and the runtime; `cargo xtask test --live-matrix` runs all supported combinations.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic fails the test")]

mod authentication;
#[cfg(feature = "blocking")]
mod blocking;
#[cfg(feature = "client")]
mod client;
mod failover;
mod observer;
mod pools;
mod prose;
mod selecting;
#[cfg(feature = "client")]
mod silence;
mod tls;

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use bson::{Document, doc};
use futures::executor::block_on;
use sdam::{
    Criteria, Error, Event, EventKind, Interest, ReadMode, Runtime, SelectionError, ServerType,
    Topology, TopologyBuilder, TopologyDescription, TopologyType,
    error::{ErrorOutcome, Stage},
};
use sdam_live::{
    Certificates, FailCommand, MemberSpec, Mongod, ReplicaSet, ServerTls, Version, or_skip,
};
use sdam_pool::{Pool, Pools};
use sdam_sim::oracle::PoolCall;
use sdam_testkit::{RecordingPool, RecordingPools};
use sdam_tls::Rustls;

use crate::{
    failover::is_complete,
    observer::{Observer, count},
};

/// The time limit of every wait, long enough for a machine under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// A runtime and the value that keeps it running.
struct Host {
    runtime: Runtime,
    _tokio: Option<tokio::runtime::Runtime>,
}

impl Host {
    /// Starts the runtime named by `SDAM_LIVE_RUNTIME`, or tokio.
    fn start() -> Self {
        let name = std::env::var("SDAM_LIVE_RUNTIME").unwrap_or_else(|_| "tokio".to_owned());
        match name.as_str() {
            "tokio" => {
                let tokio = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()
                    .unwrap();
                let runtime = sdam_runtime_tokio::from_handle(tokio.handle().clone()).unwrap();
                Self { runtime, _tokio: Some(tokio) }
            }
            // The timers, sockets and executors of these runtimes are global to the process.
            "smol" => Self::of_process(sdam_runtime_smol::runtime()),
            "async-std" => Self::of_process(sdam_runtime_async_std::runtime()),
            other => panic!("SDAM_LIVE_RUNTIME={other}: one of tokio, smol, async-std"),
        }
    }

    /// Adds TLS, implemented by the given provider.
    fn with_tls(mut self, provider: Rustls) -> Self {
        self.runtime.backend.tls = Some(Arc::new(provider));
        self
    }

    fn of_process(runtime: Runtime) -> Self {
        Self { runtime, _tokio: None }
    }
}

/// Starts a replica set of three members that elects quickly; `None` if no server is available.
fn replica_set() -> Option<ReplicaSet> {
    let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new()];
    or_skip(ReplicaSet::start(version(), &members)).unwrap()
}

/// Starts one server. Returns `None` if no server is available.
fn standalone() -> Option<Mongod> {
    or_skip(Mongod::start(version())).unwrap()
}

/// Returns the version named by `SDAM_LIVE_VERSION`; `None` for any version.
fn version() -> Option<Version> {
    std::env::var("SDAM_LIVE_VERSION").ok().map(|version| version.parse().unwrap())
}
