//! Infers the runtime from Cargo features and the calling context.

use sdam_core::options::ConfigError;
use sdam_transport::runtime::Runtime;

/// Infers the runtime if exactly one is possible. Meant for binaries; libraries should leave the
/// choice to their users.
///
/// | enabled runtime features | result |
/// | --- | --- |
/// | one | that runtime; for tokio, the runtime of the calling context |
/// | tokio and others, in the context of a tokio runtime | that tokio runtime |
/// | several, in any other context | an error that names them |
///
/// Any other case is an error, too. Because other dependencies may enable further features, a program
/// that has chosen a runtime should call the function of that runtime instead.
///
/// # Errors
///
/// If several runtimes are possible, or if only tokio is enabled and the caller is in no context. A
/// tokio runtime without timers does not count as a context.
pub fn current() -> Result<Runtime, ConfigError> {
    choose(ENABLED)
}

/// The adapter of a runtime whose feature is enabled.
pub(super) struct Adapter<R> {
    pub(super) feature: &'static str,
    /// True if the adapter captures the runtime of the calling context; false if it works
    /// everywhere.
    pub(super) needs_context: bool,
    /// Returns the runtime; `None` outside of its context.
    pub(super) make: fn() -> Option<R>,
}

const ENABLED: &[Adapter<Runtime>] = &[
    #[cfg(feature = "runtime-tokio")]
    Adapter { feature: "runtime-tokio", needs_context: true, make: || super::tokio().ok() },
    #[cfg(feature = "runtime-smol")]
    Adapter { feature: "runtime-smol", needs_context: false, make: || Some(super::smol()) },
    #[cfg(feature = "runtime-async-std")]
    Adapter {
        feature: "runtime-async-std",
        needs_context: false,
        make: || Some(super::async_std()),
    },
];

pub(super) fn choose<R>(enabled: &[Adapter<R>]) -> Result<R, ConfigError> {
    // A caller in a runtime's context has chosen that runtime.
    let mut contexts = enabled.iter().filter(|adapter| adapter.needs_context);
    if let Some(runtime) = contexts.find_map(|adapter| (adapter.make)()) {
        return Ok(runtime);
    }
    if let [only] = enabled {
        return (only.make)().ok_or_else(|| {
            let (reason, remedy) =
                ("not in the context of a tokio runtime", "call this inside `block_on` or a task");
            ConfigError::new("runtime", "current", reason, remedy)
        });
    }
    let names: Vec<_> = enabled.iter().map(|adapter| adapter.feature).collect();
    let reason = format!("several runtimes are enabled ({})", names.join(", "));
    let remedy = "call the function of the intended one";
    Err(ConfigError::new("runtime", "current", reason, remedy))
}
