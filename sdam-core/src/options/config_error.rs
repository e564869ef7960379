//! What is wrong or doubtful about a configuration, as plain data.

use alloc::boxed::Box;
use core::fmt;

/// What stands in messages for a value that is, or may be a part of, a secret.
pub(crate) const HIDDEN: &str = "<hidden>";

/// A configuration that cannot be used.
///
/// Passwords, and texts that might be pieces of one, never appear in it. `Debug` shows the same text
/// as `Display`, for programs whose `main` returns it.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError(Complaint);

impl ConfigError {
    /// Says that `option` cannot have this `value`, for this `reason`, and what to write instead.
    ///
    /// The value may be empty where the trouble is its absence.
    pub fn new(
        option: impl Into<Box<str>>,
        value: impl Into<Box<str>>,
        reason: impl Into<Box<str>>,
        remedy: impl Into<Box<str>>,
    ) -> Self {
        Self(Complaint {
            option: option.into(),
            value: value.into(),
            reason: reason.into(),
            outcome: remedy.into(),
        })
    }

    /// The option, named as in connection strings, or the part of the string that is wrong.
    pub fn option(&self) -> &str {
        &self.0.option
    }

    /// The value as it was given; empty where there is none to show.
    pub fn value(&self) -> &str {
        &self.0.value
    }

    /// Why it cannot be used.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// What to write instead.
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

/// A part of a configuration that is not as it should be, and is worked around.
///
/// The core has no log: the engine publishes each as an
/// [event](crate::event::EventKind::ConfigWarning) when a topology opens.
#[derive(Clone, PartialEq, Eq)]
pub struct Warning(Complaint);

impl Warning {
    /// Says that `option` should not have this `value`, for this `reason`, and what happens
    /// instead.
    pub(crate) fn new(
        option: impl Into<Box<str>>,
        value: impl Into<Box<str>>,
        reason: impl Into<Box<str>>,
        consequence: impl Into<Box<str>>,
    ) -> Self {
        Self(Complaint {
            option: option.into(),
            value: value.into(),
            reason: reason.into(),
            outcome: consequence.into(),
        })
    }

    /// The option, named as in connection strings.
    pub fn option(&self) -> &str {
        &self.0.option
    }

    /// The value as it was given; empty where there is none to show.
    pub fn value(&self) -> &str {
        &self.0.value
    }

    /// What is wrong with it.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// What is done about it, such as that the option is ignored.
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

/// What errors and warnings have in common.
#[derive(Clone, PartialEq, Eq)]
struct Complaint {
    option: Box<str>,
    value: Box<str>,
    reason: Box<str>,
    /// What to do about it, or what is done about it.
    outcome: Box<str>,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.option)?;
        if !self.value.is_empty() {
            write!(f, " is `{}`", self.value)?;
        }
        write!(f, ": {}; {}", self.reason, self.outcome)
    }
}
