//! Infers the runtime from Cargo features and the calling context.

use std::fmt;

use sdam_transport::runtime::Runtime;

/// Infers the runtime if exactly one is possible. Meant for binaries; libraries should leave the
/// choice to their users.
///
/// | enabled runtime features | result |
/// | --- | --- |
/// | one | that runtime; for tokio, the runtime of the calling context |
/// | tokio and others, in the context of a tokio runtime | that tokio runtime |
/// | several, in any other context | [`CurrentError::Ambiguous`] |
///
/// Any other case is an error. Because other dependencies may enable further features, a program
/// that has chosen a runtime should call the function of that runtime instead.
///
/// # Errors
///
/// Returns [`CurrentError::Ambiguous`] in the case shown in the table, and
/// [`CurrentError::NotInContext`] if only tokio is enabled and the caller is in no context. A tokio
/// runtime without timers does not count as a context.
pub fn current() -> Result<Runtime, CurrentError> {
    choose(ENABLED)
}

/// The error that [`current`] returns if it cannot choose a runtime.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CurrentError {
    /// Only tokio is enabled, and the caller is not in the context of a tokio runtime.
    #[error("not in the context of a tokio runtime: call this inside of `block_on` or of a task")]
    NotInContext,
    /// Several runtimes are enabled.
    #[error(
        "several runtimes are enabled ({}): call the function of the intended one",
        .enabled.join(", ")
    )]
    Ambiguous {
        /// The features of the enabled runtimes.
        enabled: Box<[&'static str]>,
    },
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

pub(super) fn choose<R>(enabled: &[Adapter<R>]) -> Result<R, CurrentError> {
    // A caller in a runtime's context has chosen that runtime.
    let mut contexts = enabled.iter().filter(|adapter| adapter.needs_context);
    if let Some(runtime) = contexts.find_map(|adapter| (adapter.make)()) {
        return Ok(runtime);
    }
    match enabled {
        [only] => (only.make)().ok_or(CurrentError::NotInContext),
        _ => Err(CurrentError::Ambiguous {
            enabled: enabled.iter().map(|adapter| adapter.feature).collect(),
        }),
    }
}

impl fmt::Debug for CurrentError {
    /// Prints the same text as `Display`, because `Debug` is what a program prints if its `main`
    /// returns the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
