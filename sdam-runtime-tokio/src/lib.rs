//! The tokio runtime for sdam.
//!
//! [`from_handle`] and [`current`] capture a [`Handle`] once; nothing looks for a runtime later.
//! So timers, connections and tasks work from every thread and under every executor, and a runtime
//! that has shut down is an error of a connection, not a panic.
//!
//! Time is the system's: tokio's paused clock has no influence on it. Tests that need virtual time
//! use a simulated runtime instead.

mod clock;
mod dial;
mod spawner;
#[cfg(test)]
mod tests;

use std::{fmt, panic, sync::Arc};

use sdam_transport::{
    clock::Clock,
    net::NetTransport,
    runtime::{Io, Runtime},
    system,
};
use tokio::runtime::Handle;

use self::{clock::TokioClock, dial::TokioDial, spawner::TokioSpawner};

/// The tokio runtime behind `handle`.
///
/// Everything happens there, wherever it is called from; nothing keeps the runtime alive.
/// The seed comes from the system's entropy.
///
/// # Panics
///
/// If tokio's timers are not enabled ([`enable_time`](tokio::runtime::Builder)).
/// Its I/O has to be enabled, too; without it every attempt to connect fails.
pub fn from_handle(handle: Handle) -> Runtime {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new(handle.clone()));
    let dial = TokioDial::new(handle.clone());
    let transport = NetTransport::new(dial, Arc::clone(&clock));
    let io = Io::new(clock, Arc::new(transport), system::entropy());
    Runtime::new(io, Arc::new(TokioSpawner::new(handle)))
}

/// The tokio runtime in whose context this is called, see [`from_handle`].
///
/// # Errors
///
/// [`NoTokioContext`] outside of one, and in one without timers.
pub fn current() -> Result<Runtime, NoTokioContext> {
    let handle = Handle::try_current().map_err(|_| NoTokioContext(Reason::Outside))?;
    // Tokio has no other way to tell whether there are timers.
    panic::catch_unwind(|| from_handle(handle)).map_err(|_| NoTokioContext(Reason::NoTimers))
}

/// There is no tokio runtime where one was to be captured, or it lacks what is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTokioContext(Reason);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Outside,
    NoTimers,
}

impl fmt::Display for NoTokioContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Reason::Outside => {
                "not in the context of a tokio runtime: call this inside `block_on` or a task, or \
                 pass a handle"
            }
            Reason::NoTimers => {
                "the tokio runtime has no timers: build it with `enable_all`, or `enable_time` and \
                 `enable_io`"
            }
        })
    }
}

impl std::error::Error for NoTokioContext {}
