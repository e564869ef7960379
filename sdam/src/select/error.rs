//! The errors of server selection, with all diagnostics of a selection that has timed out.

use std::{fmt, sync::Arc, time::Duration};

use sdam_core::{
    event::SelectionFailure, options::ConfigError, time::Instant, topology::TopologyDescription,
};
use sdam_events::history::Transition;
use sdam_select::{criteria::Criteria, diagnose::Diagnosis, error_text, explain::Explanation};

use crate::engine::{
    server::{ServerFailure, ServerFailures},
    snapshot::CLOSED,
};

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

/// The error from a selection that has timed out.
///
/// `{}` prints one line: the message that the Server Selection specification requires, the time
/// that the selection waited and the option that limited this time, and the most probable problem
/// with its remedy (L-80, L-81). `{:#}` also prints the criteria, each server with its state and
/// its first and last error, and all probable problems.
#[derive(Clone)]
#[non_exhaustive]
pub struct SelectionTimeout {
    /// The criteria of the selection.
    pub criteria: Criteria,
    /// The topology description at the time when the selection failed.
    pub description: Arc<TopologyDescription>,
    /// The result of applying the criteria to each server.
    pub explanation: Explanation,
    /// The errors of each server, in the same order as the servers in the description.
    pub failures: Box<[ServerFailures]>,
    /// The probable problems, the most fundamental first.
    pub diagnoses: Vec<Diagnosis>,
    /// The timeout of the selection; it has no effect with [`LimitSource::TryOnce`].
    pub timeout: Duration,
    /// The source of the timeout.
    pub limit_source: LimitSource,
    /// The time that the selection waited.
    pub waited: Duration,
    /// The time of the failure, as measured by the clock of the topology's runtime.
    pub at: Instant,
    /// The transitions before the failure, oldest first, if the topology keeps a
    /// [history](crate::TopologyBuilder::history).
    pub history: Vec<Transition>,
}

/// The source of a selection's time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitSource {
    /// The client's option `serverSelectionTimeoutMS`.
    ServerSelectionTimeout,
    /// The client's option `timeoutMS`, which was shorter.
    Timeout,
    /// The timeout of the call, which was shorter.
    Call,
    /// The client's option `serverSelectionTryOnce`: a selection of a single-threaded client fails
    /// after one scan, however long that takes.
    TryOnce,
}

impl SelectionTimeout {
    /// Returns the message for events and logs, without the selector and the topology description
    /// with the servers' errors, for which events and logs have fields of their own (Server
    /// Selection: "Server Selection Failed Message").
    fn without_description(&self) -> String {
        format!("no server was suitable; {}", Wait(self))
    }

    fn fmt_servers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{} on {}:", self.explanation.operation, self.explanation.topology_type)?;
        if let Some(refusal) = &self.explanation.refusal {
            write!(f, "\n  {refusal}")?;
        }
        for (server, failures) in self.explanation.servers.iter().zip(&self.failures) {
            write!(f, "\n  {server}")?;
            self.fmt_failures(f, failures)?;
        }
        Ok(())
    }

    fn fmt_failures(&self, f: &mut fmt::Formatter<'_>, failures: &ServerFailures) -> fmt::Result {
        match (&failures.first, &failures.last) {
            (Some(first), Some(last)) if first.error == last.error => {
                let (first, last) = (self.ago(first), self.ago(last));
                write!(f, "\n    first failed {first} ago, last {last} ago")
            }
            (first, last) => {
                if let Some(first) = first {
                    let ago = self.ago(first);
                    write!(f, "\n    first error, {ago} ago: {:#}", first.error)?;
                }
                if let Some(last) = last {
                    let ago = self.ago(last);
                    write!(f, "\n    last error, {ago} ago: {:#}", last.error)?;
                }
                Ok(())
            }
        }
    }

    fn ago(&self, failure: &ServerFailure) -> Seconds {
        Seconds(self.at.since(failure.at))
    }
}

impl fmt::Display for SelectionTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = error_text(&self.description, &self.criteria);
        write!(f, "{text}; {}", Wait(self))?;
        if !f.alternate() {
            return match self.diagnoses.first() {
                Some(diagnosis) => write!(f, ": {diagnosis}; {}", diagnosis.remedy()),
                None => Ok(()),
            };
        }
        self.fmt_servers(f)?;
        for diagnosis in &self.diagnoses {
            write!(f, "\nprobably: {diagnosis}\n  remedy: {}", diagnosis.remedy())?;
        }
        for (index, transition) in self.history.iter().enumerate() {
            let title = if index == 0 { "\nhistory:" } else { "" };
            write!(f, "{title}\n  {transition}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for SelectionTimeout {
    /// Prints the same text as `Display`, because `Debug` is what a program prints if its `main`
    /// returns the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServerSelectionTimeout => "serverSelectionTimeoutMS",
            Self::Timeout => "timeoutMS",
            Self::Call => "the timeout of the call",
            Self::TryOnce => "serverSelectionTryOnce",
        })
    }
}

/// Displays the time that a selection waited, and the source of its limit.
struct Wait<'t>(&'t SelectionTimeout);

impl fmt::Display for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(timeout) = self;
        if timeout.limit_source == LimitSource::TryOnce {
            let waited = Seconds(timeout.waited);
            write!(f, "gave up after one scan, {waited} ({})", timeout.limit_source)
        } else if timeout.timeout.is_zero() {
            write!(f, "did not wait ({} is 0)", timeout.limit_source)
        } else {
            let waited = Seconds(timeout.waited);
            write!(f, "gave up after {waited} ({})", timeout.limit_source)
        }
    }
}

/// Displays a duration in seconds, to the millisecond.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_millis() as f64 / 1e3)
    }
}
