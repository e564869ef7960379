//! The error of a program that cannot start its work.

use std::{
    fmt::Display,
    io::{self, Write},
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

    /// Adds the name of the deployment, if it has one.
    pub(crate) fn of(self, deployment: Option<&str>) -> Self {
        match deployment {
            Some(name) => Self(self.0, format!("{name}: {}", self.1)),
            None => self,
        }
    }

    /// Returns the message.
    pub(crate) fn report(self, remarks: &mut impl Write) -> io::Result<Exit> {
        writeln!(remarks, "error: {}", self.1)?;
        Ok(self.0)
    }
}
