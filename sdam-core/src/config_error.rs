//! Configuration errors and warnings, as plain data.

use alloc::boxed::Box;
use core::fmt;

/// The error for an unusable configuration.
///
/// It never contains passwords, or text that might be part of one. `Debug` prints the same text as
/// `Display`, for programs that return it from `main`.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError(Box<Parts>);

impl ConfigError {
    /// Creates an error stating that `option` cannot have this `value`, with the `reason` and a
    /// `remedy`.
    ///
    /// `value` may be empty if the problem is a missing value.
    pub fn new(
        option: impl Into<Box<str>>,
        value: impl Into<Box<str>>,
        reason: impl Into<Box<str>>,
        remedy: impl Into<Box<str>>,
    ) -> Self {
        Self(Box::new(Parts {
            option: option.into(),
            value: value.into(),
            reason: reason.into(),
            outcome: remedy.into(),
        }))
    }

    /// Returns the name of the option as it is spelled in connection strings, the invalid part of
    /// the string, or `runtime`.
    pub fn option(&self) -> &str {
        &self.0.option
    }

    /// Returns the value as it was given, or an empty string if no value can be shown.
    pub fn value(&self) -> &str {
        &self.0.value
    }

    /// Returns a description of the problem with the value.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Returns the suggested remedy.
    pub fn remedy(&self) -> &str {
        &self.0.outcome
    }
}

impl core::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A warning about a part of the configuration that is invalid or has no effect, although the
/// configuration as a whole can be used.
///
/// The core does not log: the engine publishes each warning as an
/// [event](crate::event::EventKind::ConfigWarning) when a topology opens.
#[derive(Clone, PartialEq, Eq)]
pub struct Warning(Box<Parts>);

impl Warning {
    /// Creates a warning stating that `option` should not have this `value`, with the `reason` and
    /// the `consequence`.
    pub fn new(
        option: impl Into<Box<str>>,
        value: impl Into<Box<str>>,
        reason: impl Into<Box<str>>,
        consequence: impl Into<Box<str>>,
    ) -> Self {
        let ConfigError(parts) = ConfigError::new(option, value, reason, consequence);
        Self(parts)
    }

    /// Returns the name of the option as it is spelled in connection strings.
    pub fn option(&self) -> &str {
        &self.0.option
    }

    /// Returns the value as it was given, or an empty string if no value can be shown.
    pub fn value(&self) -> &str {
        &self.0.value
    }

    /// Returns a description of the problem with the value.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Returns the consequence, for instance that the option is ignored.
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
        fmt::Display::fmt(self, f)
    }
}

/// The fields shared by errors and warnings.
#[derive(Clone, PartialEq, Eq)]
struct Parts {
    option: Box<str>,
    value: Box<str>,
    reason: Box<str>,
    /// The remedy of an error, or the consequence of a warning.
    outcome: Box<str>,
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", Escaped(&self.option))?;
        if !self.value.is_empty() {
            write!(f, " is `{}`", Escaped(&self.value))?;
        }
        write!(f, ": {}; {}", Escaped(&self.reason), Escaped(&self.outcome))
    }
}

/// Text with its control characters escaped, so that a line break at the end of a value is visible
/// and the message stays on one line.
pub(crate) struct Escaped<'t>(pub(crate) &'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.split_inclusive(char::is_control) {
            let (text, last) = match part.chars().last().filter(|last| last.is_control()) {
                Some(last) => (part.get(..part.len() - last.len_utf8()), Some(last)),
                None => (Some(part), None),
            };
            f.write_str(text.unwrap_or_default())?;
            if let Some(last) = last {
                write!(f, "{}", last.escape_default())?;
            }
        }
        Ok(())
    }
}
