//! The async-std runtime for sdam, for compatibility.
//!
//! async-std is no longer developed (RUSTSEC-2025-0052); new programs do better with smol, which has
//! the same foundations. This crate is for those that still run on it.
//!
//! async-std is one runtime per process, which starts when it is first used and never shuts down.
//! So everything here works from every thread and under every executor.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod dial;
mod spawner;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sdam_transport::{
    clock::Clock,
    net::NetTransport,
    runtime::{Io, Runtime},
    system,
};

use self::{clock::AsyncStdClock, dial::AsyncStdDial, spawner::AsyncStdSpawner};

/// The async-std runtime of the process.
///
/// The seed comes from the system's entropy.
pub fn runtime() -> Runtime {
    let clock: Arc<dyn Clock> = Arc::new(AsyncStdClock::new());
    let transport = NetTransport::new(AsyncStdDial, Arc::clone(&clock));
    let io = Io::new(clock, Arc::new(transport), system::entropy());
    Runtime::new(io, Arc::new(AsyncStdSpawner))
}
