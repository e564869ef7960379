//! Runtimes, one function for each Cargo feature.
//!
//! A topology is started on a [`Runtime`] value. These functions
//! make the usual ones. Each exists only with its feature:
//!
//! | function | feature | works |
//! | --- | --- | --- |
//! | `tokio` | `runtime-tokio` | in the context of a tokio runtime |
//! | `tokio_from_handle` | `runtime-tokio` | everywhere, on the runtime of a handle |
//! | `smol` | `runtime-smol` | everywhere |
//! | `smol_on` | `runtime-smol` | everywhere, on an executor of your own |
//! | `async_std` | `runtime-async-std` | everywhere |
//! | `blocking` | `blocking` | everywhere; for single-threaded mode |
//! | `current` | any of the first three | see there |
//!

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
#[cfg(feature = "runtime-smol")]
pub use sdam_runtime_smol::on as smol_on;
#[cfg(feature = "runtime-tokio")]
pub use sdam_runtime_tokio::{NoTimers, NoTokioContext, from_handle as tokio_from_handle};
#[cfg(feature = "blocking")]
use sdam_transport::runtime::Io;
#[cfg(any(
    feature = "runtime-tokio",
    feature = "runtime-smol",
    feature = "runtime-async-std"
))]
use sdam_transport::runtime::Runtime;

/// Returns the tokio runtime of the calling context.
///
/// # Errors
///
/// If there is none, or it was built without timers.
#[cfg(feature = "runtime-tokio")]
pub fn tokio() -> Result<Runtime, NoTokioContext> {
    sdam_runtime_tokio::current()
}

/// Returns the smol runtime with its global executor.
#[cfg(feature = "runtime-smol")]
pub fn smol() -> Runtime {
    sdam_runtime_smol::runtime()
}

/// Returns the async-std runtime of the process.
#[cfg(feature = "runtime-async-std")]
pub fn async_std() -> Runtime {
    sdam_runtime_async_std::runtime()
}

/// Returns the sockets and the clock of the system for single-threaded mode, which spawns nothing.
#[cfg(feature = "blocking")]
pub fn blocking() -> Io {
    sdam_runtime_blocking::io()
}
