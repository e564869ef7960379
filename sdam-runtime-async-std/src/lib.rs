//! The async-std runtime for sdam, for compatibility.
//!
//! async-std is no longer developed (RUSTSEC-2025-0052); new programs should use smol, which is
//! built on the same crates. This crate is for programs that still run on async-std.
//!
//! async-std has one runtime per process. It starts at first use and never shuts down, so the
//! clock, connections and tasks work on every thread and under every executor.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod dial;
mod spawner;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sdam_transport::{
    runtime::{Backend, Runtime},
    system,
};

use self::{clock::AsyncStdClock, dial::AsyncStdDial, spawner::AsyncStdSpawner};

/// Returns the async-std runtime of the process.
///
/// The random seed comes from the system's entropy.
pub fn runtime() -> Runtime {
    let clock = Arc::new(AsyncStdClock::new());
    let backend = Backend::of_sockets(AsyncStdDial, clock, system::entropy());
    Runtime::new(backend, Arc::new(AsyncStdSpawner))
}
