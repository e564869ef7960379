//! Errors of server selection.

use std::{fmt, sync::Arc};

use sdam_core::{event::SelectionFailure, options::ConfigError, topology::TopologyDescription};

use super::timeout::SelectionTimeout;
use crate::engine::pending::CLOSED;

/// An error from server selection.
///
/// `{}` prints one line; for a timeout, `{:#}` prints all details. `{:?}` prints the same as `{}`,
/// and `{:#?}` the same as `{:#}`.
#[derive(Clone)]
#[non_exhaustive]
pub enum SelectionError {
    /// No suitable server appeared in time.
    Timeout(Box<SelectionTimeout>),
    /// A server and the client have no wire version in common. Selections fail until that changes.
    Incompatible {
        /// The topology description at the time when the selection failed.
        description: Arc<TopologyDescription>,
    },
    /// The criteria are invalid: no server could ever match them.
    InvalidCriteria(ConfigError),
    /// No server was suitable at once, and the maximum number of selections is already waiting.
    TooManyWaiters {
        /// The limit, [`Options::max_waiters`](sdam_core::options::Options::max_waiters).
        limit: usize,
    },
    /// The topology was closed.
    Closed,
    /// The runtime has dropped the monitoring tasks although the topology was not closed, so no
    /// server can be found.
    RuntimeShutDown,
}

impl SelectionError {
    /// Returns whether no suitable server appeared in time.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout(_))
    }

    /// Returns whether the topology was closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }

    /// Returns whether the runtime was shut down before the topology was closed.
    ///
    /// Retrying cannot succeed; start a new topology on a running runtime.
    pub fn is_runtime_shut_down(&self) -> bool {
        matches!(self, Self::RuntimeShutDown)
    }

    pub(crate) fn failure(&self) -> SelectionFailure {
        match self {
            Self::Timeout(_) => SelectionFailure::Timeout,
            Self::Incompatible { .. } => SelectionFailure::Incompatible,
            Self::InvalidCriteria(_) => SelectionFailure::InvalidCriteria,
            Self::TooManyWaiters { .. } => SelectionFailure::TooManyWaiters,
            Self::Closed => SelectionFailure::Closed,
            Self::RuntimeShutDown => SelectionFailure::RuntimeShutDown,
        }
    }

    /// Returns the message for events and logs, without the selector and the topology description,
    /// for which events and logs have fields of their own (Server Selection: "Server Selection
    /// Failed Message").
    pub(crate) fn without_description(&self) -> String {
        match self {
            Self::Timeout(timeout) => timeout.without_description(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(timeout) => timeout.fmt(f),
            Self::Incompatible { description } => {
                f.write_str(description.compatibility_error().unwrap_or("incompatible server"))
            }
            Self::InvalidCriteria(error) => error.fmt(f),
            Self::TooManyWaiters { limit } => write!(
                f,
                "no server is suitable now, and {limit} selections already wait, which is the limit: \
                 raise `Options::max_waiters`, or run fewer operations at once"
            ),
            Self::Closed => f.write_str(CLOSED),
            Self::RuntimeShutDown => f.write_str(
                "the runtime has shut down, and no server is monitored any more: keep the runtime \
                 until the topology is closed, or start a new topology on a running one",
            ),
        }
    }
}

impl fmt::Debug for SelectionError {
    /// Prints the same text as `Display`, because `Debug` is what a program prints if its `main`
    /// returns the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for SelectionError {}
