//! Why a topology could not be started, and why no server was selected.

mod timeout;

use std::{fmt, sync::Arc};

use sdam_core::{options::ConfigError, topology::TopologyDescription};
use sdam_select::criteria::CriteriaError;
use sdam_transport::handshake::InvalidMetadata;

pub use self::timeout::{Bound, SelectionTimeout};

/// Why a topology could not be started.
///
/// `Debug` shows the same text as `Display`, for programs whose `main` returns it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// The options contradict each other or themselves.
    Config(ConfigError),
    /// What servers are to be told about the client cannot be told.
    Metadata(InvalidMetadata),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Metadata(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for StartError {}

impl From<ConfigError> for StartError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<InvalidMetadata> for StartError {
    fn from(error: InvalidMetadata) -> Self {
        Self::Metadata(error)
    }
}

/// Why no server was selected.
///
/// `{}` is one line; of a time-out, `{:#}` says everything that is known, in several lines. `{:?}`
/// and `{:#?}` print the same.
#[derive(Clone)]
#[non_exhaustive]
pub enum SelectionError {
    /// No suitable server appeared in time.
    Timeout(Box<SelectionTimeout>),
    /// A server speaks no wire version that the client speaks; selections fail until that changes.
    Incompatible {
        /// What was known.
        description: Arc<TopologyDescription>,
    },
    /// No server could ever meet the criteria.
    InvalidCriteria(CriteriaError),
    /// No server was suitable at once, and as many selections wait as may.
    TooManyWaiters {
        /// [`Options::max_waiters`](sdam_core::options::Options::max_waiters).
        limit: usize,
    },
    /// The topology was closed.
    Closed,
    /// The runtime has dropped the tasks that watch the servers, though the topology was not closed:
    /// no server would ever be found.
    RuntimeShutDown,
}

impl SelectionError {
    /// Whether the runtime has shut down before the topology was closed.
    ///
    /// Selecting again is in vain; a new topology on a runtime that runs is what helps.
    pub fn is_runtime_shut_down(&self) -> bool {
        matches!(self, Self::RuntimeShutDown)
    }
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(timeout) => timeout.fmt(f),
            Self::Incompatible { description } => f.write_str(
                description
                    .compatibility_error()
                    .unwrap_or("incompatible server"),
            ),
            Self::InvalidCriteria(error) => error.fmt(f),
            Self::TooManyWaiters { limit } => write!(
                f,
                "no server is suitable now, and {limit} selections wait for one, which is as many as \
                 may: raise `Options::max_waiters`, or run fewer operations at once"
            ),
            Self::Closed => {
                f.write_str("the topology is closed: start a new one to select servers")
            }
            Self::RuntimeShutDown => f.write_str(
                "the runtime has shut down, and no server is watched any more: keep the runtime \
                 until the topology is closed, or start a new topology on one that runs",
            ),
        }
    }
}

impl fmt::Debug for SelectionError {
    /// The text, as a program prints it that returns the error from `main`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for SelectionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InvalidCriteria(error) => Some(error),
            _ => None,
        }
    }
}
