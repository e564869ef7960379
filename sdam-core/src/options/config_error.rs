//! Configuration errors and warnings, as plain data.

use alloc::boxed::Box;
use core::fmt;

/// A configuration that cannot be used.
///
/// It never contains passwords, or texts that might be pieces of one. `Debug` prints the same text
/// as `Display`, for programs that return it from `main`.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError(Parts);

impl ConfigError {
    /// Creates the error that `option` cannot have this `value`, with the `reason` and a remedy.
    ///
    /// The value may be empty where its absence is the error.
    pub fn new(
        option: impl Into<Box<str>>,
        value: impl Into<Box<str>>,
        reason: impl Into<Box<str>>,
        remedy: impl Into<Box<str>>,
    ) -> Self {
        Self(Parts {
            option: option.into(),
            value: value.into(),
            reason: reason.into(),
            outcome: remedy.into(),
        })
    }

    /// Returns the option, named as in connection strings, or the invalid part of the string.
    pub fn option(&self) -> &str {
        &self.0.option
    }

    /// Returns the value as it was given; empty if there is none to show.
    pub fn value(&self) -> &str {
        &self.0.value
    }

    /// Returns why the value cannot be used.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Returns what to write instead.
    pub fn remedy(&self) -> &str {
        &self.0.outcome
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl core::error::Error for ConfigError {}

/// An invalid or ineffective part of a configuration that does not prevent its use.
///
/// The core has no log: the engine publishes each warning as an
/// [event](crate::event::EventKind::ConfigWarning) when a topology opens.
#[derive(Clone, PartialEq, Eq)]
pub struct Warning(Parts);

impl Warning {
    /// Creates the warning that `option` should not have this `value`, with the `reason` and the
    /// consequence.
    pub fn new(
        option: impl Into<Box<str>>,
        value: impl Into<Box<str>>,
        reason: impl Into<Box<str>>,
        consequence: impl Into<Box<str>>,
    ) -> Self {
        Self(Parts {
            option: option.into(),
            value: value.into(),
            reason: reason.into(),
            outcome: consequence.into(),
        })
    }

    /// Returns the option, named as in connection strings.
    pub fn option(&self) -> &str {
        &self.0.option
    }

    /// Returns the value as it was given; empty if there is none to show.
    pub fn value(&self) -> &str {
        &self.0.value
    }

    /// Returns what is wrong with it.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Returns the consequence, such as that the option is ignored.
    pub fn consequence(&self) -> &str {
        &self.0.outcome
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The parts that errors and warnings share.
#[derive(Clone, PartialEq, Eq)]
struct Parts {
    option: Box<str>,
    value: Box<str>,
    reason: Box<str>,
    /// The remedy or the consequence.
    outcome: Box<str>,
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.option)?;
        if !self.value.is_empty() {
            write!(f, " is `{}`", self.value)?;
        }
        write!(f, ": {}; {}", self.reason, self.outcome)
    }
}
