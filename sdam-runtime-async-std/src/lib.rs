//! The async-std runtime for sdam, for compatibility.
//!
//! async-std is no longer developed (RUSTSEC-2025-0052); new programs should use smol, which is
//! built on the same crates. This crate is for programs that still run on async-std.
//!
//! async-std has one runtime per process. It starts at first use and never shuts down, so the
//! clock, connections and tasks work on every thread and under every executor.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod dial;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_std::task;
use sdam_core::time::Instant;
use sdam_transport::{
    BoxFuture,
    runtime::{Backend, Runtime},
    spawn::SpawnBy,
    system::{self, Epoch, SystemClock},
};

use self::dial::AsyncStdDial;

/// Returns the async-std runtime of the process.
///
/// The random seed comes from the system's entropy.
pub fn runtime() -> Runtime {
    let clock = Arc::new(SystemClock::new(Epoch::begin(), sleep));
    let backend = Backend::of_sockets(AsyncStdDial, clock, system::entropy());
    // Dropping the join handle detaches the task.
    let spawner = SpawnBy { runtime: "async-std", spawn: |task| drop(task::spawn(task)) };
    Runtime::new(backend, Arc::new(spawner))
}

/// Sleeps until `deadline`. async-std's `sleep` takes a duration, so the remaining time is computed
/// when the future is first polled.
fn sleep(epoch: Epoch, deadline: Instant) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        while epoch.now() < deadline {
            task::sleep(epoch.until(deadline)).await;
        }
    })
}
