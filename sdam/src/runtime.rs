//! Runtimes: one function for each that is enabled by a Cargo feature.
//!
//! A topology is started on a value that may come from anywhere; these functions make the usual
//! ones. Each exists only with its feature:
//!
//! | function | feature | works |
//! | --- | --- | --- |
//! | `tokio` | `runtime-tokio` | in the context of a tokio runtime |
//! | `smol` | `runtime-smol` | everywhere |
//! | `async_std` | `runtime-async-std` | everywhere |
//! | `blocking` | `blocking` | everywhere; for single-threaded mode |
//! | `current` | any of the first three | see there |
//!
//! The adapter crates offer more, such as a tokio runtime that is named by its handle.

#[cfg(test)]
mod tests;

#[cfg(any(
    feature = "runtime-tokio",
    feature = "runtime-smol",
    feature = "runtime-async-std"
))]
mod current;

#[cfg(any(
    feature = "runtime-tokio",
    feature = "runtime-smol",
    feature = "runtime-async-std"
))]
pub use current::{CurrentError, current};
#[cfg(feature = "runtime-tokio")]
pub use sdam_runtime_tokio::NoTokioContext;
#[cfg(feature = "blocking")]
use sdam_transport::runtime::Io;
#[cfg(any(
    feature = "runtime-tokio",
    feature = "runtime-smol",
    feature = "runtime-async-std"
))]
use sdam_transport::runtime::Runtime;

/// The tokio runtime in whose context this is called.
///
/// # Errors
///
/// There is none, or it was built without timers.
#[cfg(feature = "runtime-tokio")]
pub fn tokio() -> Result<Runtime, NoTokioContext> {
    sdam_runtime_tokio::current()
}

/// smol with its global executor.
#[cfg(feature = "runtime-smol")]
pub fn smol() -> Runtime {
    sdam_runtime_smol::runtime()
}

/// The async-std runtime of the process.
#[cfg(feature = "runtime-async-std")]
pub fn async_std() -> Runtime {
    sdam_runtime_async_std::runtime()
}

/// The sockets and the clock of the system, for single-threaded mode: nothing is ever spawned.
#[cfg(feature = "blocking")]
pub fn blocking() -> Io {
    sdam_runtime_blocking::io()
}
