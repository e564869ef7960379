//! The error of a program that cannot start its work.

use std::{
    fmt::Display,
    io::{self, ErrorKind, Write},
    net::SocketAddr,
};

use crate::exit::Exit;

/// The exit code and the message.
#[derive(Debug)]
pub(crate) struct Failure(Exit, String);

impl Failure {
    /// The arguments are invalid.
    pub(crate) fn config(error: impl Display) -> Self {
        Self(Exit::CONFIGURATION, error.to_string())
    }

    /// Any other error.
    pub(crate) fn other(error: impl Display) -> Self {
        Self(Exit::FAILED, error.to_string())
    }

    /// The address of `option` cannot be listened on.
    pub(crate) fn listen(option: &str, address: SocketAddr, error: &io::Error) -> Self {
        let reason = match error.kind() {
            ErrorKind::AddrInUse => "another program listens there; choose another port, or 0",
            ErrorKind::AddrNotAvailable => {
                "this host has no such address; 0.0.0.0 means all it has"
            }
            ErrorKind::PermissionDenied => "this user may not; choose a port from 1024 on",
            _ => return Self::other(format!("{option} {address}: cannot listen: {error}")),
        };
        Self::other(format!("{option} {address}: {reason}"))
    }

    /// Adds where the invalid value is, if it has such a name.
    pub(crate) fn of(self, origin: Option<String>) -> Self {
        match origin {
            Some(origin) => Self(self.0, format!("{origin}: {}", self.1)),
            None => self,
        }
    }

    /// Returns the message.
    pub(crate) fn report(self, remarks: &mut impl Write) -> io::Result<Exit> {
        writeln!(remarks, "error: {}", self.1)?;
        Ok(self.0)
    }
}
