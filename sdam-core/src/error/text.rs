//! Texts of errors.

use core::fmt;

use super::{Error, ErrorKind};

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kind) = self.kind_text() {
            self.fmt_head(f, kind)?;
        }
        f.write_str(self.message())?;
        match self.remedy() {
            Some(remedy) if f.alternate() => write!(f, "; {remedy}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    /// Prints the `Display` text with the remedy, for programs whose `main` returns the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl Error {
    /// Returns how the text begins; `None` if the message says everything.
    fn kind_text(&self) -> Option<&'static str> {
        match self.kind() {
            ErrorKind::Cancelled => Some("cancelled"),
            ErrorKind::Command => Some("command error"),
            ErrorKind::Internal => Some("internal error"),
            ErrorKind::Network => Some("network error"),
            ErrorKind::Protocol => Some("protocol error"),
            ErrorKind::Timeout => Some("timeout"),
            ErrorKind::Interrupted
            | ErrorKind::PoolCleared
            | ErrorKind::PoolClosed
            | ErrorKind::PoolNotReady
            | ErrorKind::RuntimeShutDown
            | ErrorKind::SetName
            | ErrorKind::StalePrimary
            | ErrorKind::WaitQueueTimeout => None,
        }
    }

    /// Writes the server, the kind, the stage and the code.
    fn fmt_head(&self, f: &mut fmt::Formatter<'_>, kind: &str) -> fmt::Result {
        if let Some(address) = self.address() {
            write!(f, "{address}: ")?;
        }
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
