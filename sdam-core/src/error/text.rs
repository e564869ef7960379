//! Formats errors.

use core::fmt;

use super::{Error, ErrorKind, FailedCommand};
use crate::address::ServerAddress;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_head(f)?;
        f.write_str(self.message())
    }
}

impl fmt::Debug for Error {
    /// Prints the error and its remedy, for programs whose `main` returns it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl Error {
    /// Returns the name of the kind to print before the message; `None` if the message suffices.
    fn kind_text(&self) -> Option<&'static str> {
        match self.kind() {
            ErrorKind::Cancelled => Some("cancelled"),
            ErrorKind::Command => Some("command error"),
            ErrorKind::Internal => Some("internal error"),
            ErrorKind::Network => Some("network error"),
            ErrorKind::Protocol => Some("protocol error"),
            ErrorKind::Timeout => Some("timeout"),
            ErrorKind::Write => Some("write error"),
            _ => None,
        }
    }

    /// Writes the command, the server, the kind, the stage and the code.
    fn fmt_head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind_text();
        match (&self.0.context.command, self.address()) {
            (Some(command), address) => command.fmt_head(f, address)?,
            (None, Some(address)) if kind.is_some() => write!(f, "{address}: ")?,
            (None, _) => {}
        }
        let Some(kind) = kind else { return Ok(()) };
        write!(f, "{kind} at {}", self.stage())?;
        match (self.code(), self.code_name()) {
            (Some(code), Some(name)) => write!(f, " ({code} {name})")?,
            (Some(code), None) => write!(f, " ({code})")?,
            (None, Some(name)) => write!(f, " ({name})")?,
            (None, None) => {}
        }
        f.write_str(": ")
    }
}

impl FailedCommand {
    fn fmt_head(&self, f: &mut fmt::Formatter<'_>, address: Option<&ServerAddress>) -> fmt::Result {
        write!(f, "`{}` failed", self.name)?;
        if let Some(address) = address {
            write!(f, " on {address}")?;
        }
        match self.retries {
            0 => {}
            1 => f.write_str(" after 1 retry")?,
            count => write!(f, " after {count} retries")?,
        }
        if self.is_late {
            f.write_str(", and the time limit allows no other attempt")?;
        }
        f.write_str(": ")
    }
}
