use alloc::boxed::Box;

use crate::names::names;

/// The server selection that an event reports. Created once for each selection that has listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "camelCase"))]
pub struct Selection {
    /// The complete read preference, or a note that the selector is custom.
    pub selector: Box<str>,
    /// The name of the operation's command, such as `find`.
    pub operation: Option<Box<str>>,
    /// The driver's operation id, if it assigns one.
    pub operation_id: Option<i64>,
}

impl Selection {
    /// Creates a selection with this `selector`, for an unknown operation.
    pub fn new(selector: impl Into<Box<str>>) -> Self {
        Self { selector: selector.into(), operation: None, operation_id: None }
    }

    /// Sets the name and number of the operation.
    #[must_use]
    pub fn with_operation(mut self, operation: impl Into<Box<str>>, id: Option<i64>) -> Self {
        self.operation = Some(operation.into());
        self.operation_id = id;
        self
    }
}

names! {
    /// The reason why a server selection failed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    #[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
    pub enum SelectionFailure {
        /// `serverSelectionTimeoutMS` has passed.
        Timeout = "timeout",
        /// The client and a server have no wire version in common.
        Incompatible = "incompatible",
        /// The read preference does not fit the deployment.
        InvalidCriteria = "invalid_criteria",
        /// No server was suitable at once, and too many selections were already waiting.
        TooManyWaiters = "too_many_waiters",
        /// The topology was closed.
        Closed = "closed",
        /// The runtime shut down before the topology was closed.
        RuntimeShutDown = "runtime_shut_down",
        /// The caller cancelled the selection.
        Cancelled = "cancelled",
    }
}
