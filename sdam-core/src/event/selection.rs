use alloc::boxed::Box;

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

/// The reason why a server selection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SelectionFailure {
    /// `serverSelectionTimeoutMS` has passed.
    Timeout,
    /// The client and a server have no wire version in common.
    Incompatible,
    /// The read preference does not fit the deployment.
    InvalidCriteria,
    /// No server was suitable at once, and too many selections were already waiting.
    TooManyWaiters,
    /// The topology was closed.
    Closed,
    /// The runtime shut down before the topology was closed.
    RuntimeShutDown,
    /// The caller cancelled the selection.
    Cancelled,
}

impl SelectionFailure {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
