//! The error of a program that cannot start its work.

use std::{
    fmt::Display,
    io::{self, ErrorKind, Write},
    net::SocketAddr,
};

use crate::exit::Exit;

/// Says why the file or stream `name` cannot be read, and what to do.
pub(crate) fn cannot_read(name: impl Display, error: &io::Error) -> String {
    let reason = match error.kind() {
        ErrorKind::NotFound => "there is no such file; check its name and folder",
        ErrorKind::PermissionDenied => {
            "this user may not read it; change its permissions, or use sudo"
        }
        ErrorKind::IsADirectory => "it is a folder; name a file in it",
        ErrorKind::InvalidData => "it is not text in UTF-8; name another file",
        _ => return format!("{name}: {error}"),
    };
    format!("{name}: {reason}")
}

/// Says why the file or stream `name` cannot be written, and what to do.
pub(crate) fn cannot_write(name: impl Display, error: &io::Error) -> String {
    let reason = match error.kind() {
        ErrorKind::NotFound => "its folder does not exist; create it, or name a file elsewhere",
        ErrorKind::NotADirectory => "a folder of its path is a file; name a file elsewhere",
        ErrorKind::PermissionDenied => "this user may not write it; name a file elsewhere",
        ErrorKind::IsADirectory => "it is a folder; name a file in it",
        ErrorKind::StorageFull => "no space is left on the device; make room, or write elsewhere",
        _ => return format!("{name}: {error}"),
    };
    format!("{name}: {reason}")
}

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
