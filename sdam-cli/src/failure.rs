//! The error that is reported if a program cannot start.

use std::{
    fmt::{self, Display},
    io::{self, Write},
};

use crate::exit::Exit;

/// The exit code and the error message.
#[derive(Debug)]
pub(crate) struct Failure(Exit, String);

/// Prints the message.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.1)
    }
}

impl Failure {
    /// Creates the error for invalid arguments.
    pub(crate) fn config(error: impl Display) -> Self {
        Self(Exit::CONFIGURATION, error.to_string())
    }

    /// Creates the error for any other problem.
    pub(crate) fn other(error: impl Display) -> Self {
        Self(Exit::FAILED, error.to_string())
    }

    /// Creates the error for a program that cannot listen on `address`, which was given by
    /// `option`.
    #[cfg(feature = "export")]
    pub(crate) fn listen(option: &str, address: std::net::SocketAddr, error: &io::Error) -> Self {
        use io::ErrorKind;

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

    /// Prints the message and returns the exit code.
    #[expect(clippy::unnecessary_wraps, reason = "the result of programs that also write")]
    pub(crate) fn report(self, remarks: &mut impl Write) -> io::Result<Exit> {
        // Ignore a failed write, because it must not change the exit code.
        let _ = writeln!(remarks, "error: {}", self.1);
        Ok(self.0)
    }
}
