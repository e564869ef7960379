//! The tokio runtime for sdam.
//!
//! [`from_handle`] and [`current`] store a [`Handle`]. No runtime context is needed afterwards, so
//! timers, connections and tasks work on every thread and under every executor. If the runtime has
//! shut down, opening a connection fails with an error instead of a panic.
//!
//! The clock is the system's clock, which tokio's paused time does not affect. Tests that need
//! virtual time use a simulated runtime instead.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod dial;
mod stream;
#[cfg(test)]
mod tests;

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use sdam_core::options::ConfigError;
use sdam_transport::{
    runtime::{Backend, Runtime},
    spawn::SpawnBy,
    system,
};
#[doc(no_inline)]
pub use tokio::runtime::Handle;

use self::dial::TokioDial;
pub use self::stream::TokioStream;

/// Returns the tokio runtime behind `handle`.
///
/// Tasks, timers and sockets run on that runtime, whichever thread uses them. The handle does not
/// keep the runtime alive. The random seed comes from the system's entropy.
///
/// A runtime without I/O ([`enable_io`](tokio::runtime::Builder)) is accepted; every connection
/// attempt then fails with an error that names the cause.
///
/// # Errors
///
/// If tokio's timers are not enabled. Tokio reports this only by panicking. The panic
/// is caught, but panic hooks still see it.
pub fn from_handle(handle: Handle) -> Result<Runtime, ConfigError> {
    let clock = panic::catch_unwind(AssertUnwindSafe(|| clock::of(handle.clone())));
    let clock = clock.map_err(|_| {
        let remedy = "build it with `enable_all`, or `enable_time` and `enable_io`";
        refuse("the runtime has no timers", remedy)
    })?;
    let dial = TokioDial { handle: handle.clone() };
    let backend = Backend::of_sockets(dial, clock, system::entropy());
    // Dropping the join handle detaches the task.
    let spawner = SpawnBy { runtime: "tokio", spawn: move |task| drop(handle.spawn(task)) };
    Ok(Runtime::new(backend, Arc::new(spawner)))
}

/// Returns the tokio runtime of the current context, see [`from_handle`].
///
/// # Errors
///
/// If there is no tokio context, or if the runtime has no timers.
pub fn current() -> Result<Runtime, ConfigError> {
    let handle = Handle::try_current().map_err(|_| {
        let remedy = "call this inside `block_on` or a task, or pass a handle";
        refuse("this is not in the context of a tokio runtime", remedy)
    })?;
    from_handle(handle)
}

fn refuse(reason: &str, remedy: &str) -> ConfigError {
    ConfigError::new("runtime", "tokio", reason, remedy)
}
