//! Functions that return runtimes, and the parts of a runtime of your own.
//!
//! A topology is started on a [`Runtime`](crate::Runtime) value, which consists of a
//! [`Transport`](crate::Transport), a [`Clock`](crate::Clock), a [`Spawner`](crate::Spawner) and,
//! if you want, a [`Resolver`](crate::Resolver). The functions below return the usual runtimes.
//! Each exists only with its feature:
//!
//! | function | feature | works |
//! | --- | --- | --- |
//! | `tokio` | `runtime-tokio` | in the context of a tokio runtime |
//! | `tokio_from_handle` | `runtime-tokio` | everywhere, on the runtime of a handle |
//! | `smol` | `runtime-smol` | everywhere |
//! | `smol_on` | `runtime-smol` | everywhere, on an executor of your own |
//! | `async_std` | `runtime-async-std` | everywhere |
//! | `blocking` | `blocking` | everywhere; for single-threaded mode |
//! | `current` | any of the first three | see its documentation |
//!
//! With the feature `srv`, the runtimes have a resolver, which queries the name servers of the
//! system. With the feature `tls`, they have a TLS library,
//! [`Rustls::ring`](https://docs.rs/sdam-tls).

pub use sdam_core::{
    srv::SrvRecords,
    time::{Instant, UnixTime},
};
pub use sdam_transport::{
    connect::{Wrap, Wrapped},
    layers::Translate,
    runtime::Backend,
    spawn::Task,
};

/// Returns the tokio runtime of the calling context.
///
/// # Errors
///
/// If the calling context has no tokio runtime, or that runtime was built without timers.
#[cfg(feature = "runtime-tokio")]
pub fn tokio() -> Result<crate::Runtime, crate::ConfigError> {
    Ok(equipped(sdam_runtime_tokio::current()?))
}

/// Returns the tokio runtime behind `handle`, see [`sdam_runtime_tokio::from_handle`].
///
/// # Errors
///
/// If tokio's timers are not enabled.
#[cfg(feature = "runtime-tokio")]
pub fn tokio_from_handle(
    handle: sdam_runtime_tokio::Handle,
) -> Result<crate::Runtime, crate::ConfigError> {
    Ok(equipped(sdam_runtime_tokio::from_handle(handle)?))
}

/// Returns the smol runtime with its global executor.
#[cfg(feature = "runtime-smol")]
pub fn smol() -> crate::Runtime {
    equipped(sdam_runtime_smol::runtime())
}

/// Returns the smol runtime, whose tasks run on `executor`, see [`sdam_runtime_smol::on`].
#[cfg(feature = "runtime-smol")]
pub fn smol_on(executor: &std::sync::Arc<sdam_runtime_smol::Executor<'static>>) -> crate::Runtime {
    equipped(sdam_runtime_smol::on(executor))
}

/// Returns the async-std runtime of the process.
#[cfg(feature = "runtime-async-std")]
pub fn async_std() -> crate::Runtime {
    equipped(sdam_runtime_async_std::runtime())
}

/// Returns the sockets and the clock of the system for single-threaded mode, which spawns nothing.
#[cfg(feature = "blocking")]
pub fn blocking() -> Backend {
    let mut backend = sdam_runtime_blocking::backend();
    add_tls(&mut backend);
    #[cfg(feature = "srv")]
    {
        let resolver = sdam_dns::DnsResolver::system().blocking();
        backend.resolver = Some(std::sync::Arc::new(resolver));
    }
    backend
}

/// Infers the runtime if exactly one is possible. Meant for binaries; libraries should leave the
/// choice to their users.
///
/// | enabled runtime features | result |
/// | --- | --- |
/// | one | that runtime; for tokio, the runtime of the calling context |
/// | tokio and others, in the context of a tokio runtime | that tokio runtime |
/// | several, in any other context | an error that names them |
///
/// Any other case is an error, too. Because other dependencies may enable further features, a
/// program that has chosen a runtime should call the function of that runtime instead.
///
/// # Errors
///
/// If several runtimes are possible, or if only tokio is enabled and the caller is not in the
/// context of a tokio runtime. A tokio runtime without timers does not count.
#[cfg(any(feature = "runtime-tokio", feature = "runtime-smol", feature = "runtime-async-std"))]
pub fn current() -> Result<crate::Runtime, crate::ConfigError> {
    choose(ENABLED)
}

/// The adapter of a runtime whose feature is enabled.
#[cfg(any(feature = "runtime-tokio", feature = "runtime-smol", feature = "runtime-async-std"))]
struct Adapter<R> {
    feature: &'static str,
    /// True if the adapter captures the runtime of the calling context; false if it works
    /// everywhere.
    needs_context: bool,
    /// Returns the runtime; `None` outside of its context.
    make: fn() -> Option<R>,
}

#[cfg(any(feature = "runtime-tokio", feature = "runtime-smol", feature = "runtime-async-std"))]
const ENABLED: &[Adapter<crate::Runtime>] = &[
    #[cfg(feature = "runtime-tokio")]
    Adapter { feature: "runtime-tokio", needs_context: true, make: || tokio().ok() },
    #[cfg(feature = "runtime-smol")]
    Adapter { feature: "runtime-smol", needs_context: false, make: || Some(smol()) },
    #[cfg(feature = "runtime-async-std")]
    Adapter { feature: "runtime-async-std", needs_context: false, make: || Some(async_std()) },
];

#[cfg(any(feature = "runtime-tokio", feature = "runtime-smol", feature = "runtime-async-std"))]
fn choose<R>(enabled: &[Adapter<R>]) -> Result<R, crate::ConfigError> {
    // A caller in a runtime's context has chosen that runtime.
    let mut contexts = enabled.iter().filter(|adapter| adapter.needs_context);
    if let Some(runtime) = contexts.find_map(|adapter| (adapter.make)()) {
        return Ok(runtime);
    }
    if let [only] = enabled {
        return (only.make)().ok_or_else(|| {
            let (reason, remedy) =
                ("not in the context of a tokio runtime", "call this inside `block_on` or a task");
            crate::ConfigError::new("runtime", "current", reason, remedy)
        });
    }
    let names: Vec<_> = enabled.iter().map(|adapter| adapter.feature).collect();
    let reason = format!("several runtimes are enabled ({})", names.join(", "));
    let remedy = "call the function of the intended one";
    Err(crate::ConfigError::new("runtime", "current", reason, remedy))
}

/// Adds the resolver and the TLS library, if the features for them are enabled.
#[cfg(any(feature = "runtime-tokio", feature = "runtime-smol", feature = "runtime-async-std"))]
fn equipped(mut runtime: crate::Runtime) -> crate::Runtime {
    add_tls(&mut runtime.backend);
    #[cfg(feature = "srv")]
    {
        runtime.backend.resolver = Some(std::sync::Arc::new(sdam_dns::DnsResolver::system()));
    }
    runtime
}

#[cfg(any(
    feature = "runtime-tokio",
    feature = "runtime-smol",
    feature = "runtime-async-std",
    feature = "blocking"
))]
fn add_tls(backend: &mut Backend) {
    #[cfg(feature = "tls")]
    {
        backend.tls = Some(std::sync::Arc::new(sdam_tls::Rustls::ring()));
    }
    #[cfg(not(feature = "tls"))]
    let _ = backend;
}

#[cfg(test)]
mod tests;
