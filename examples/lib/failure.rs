//! Why a program has nothing to do.

use std::{
    fmt::Display,
    io::{self, Write},
};

use crate::exit::Exit;

/// How the program ends, and what it says.
#[derive(Debug)]
pub(crate) struct Failure(Exit, String);

impl Failure {
    /// What the user asked for makes no sense.
    pub(crate) fn config(error: impl Display) -> Self {
        Self(Exit::CONFIGURATION, error.to_string())
    }

    /// Anything else.
    pub(crate) fn other(error: impl Display) -> Self {
        Self(Exit::FAILED, error.to_string())
    }

    /// Says what is wrong.
    pub(crate) fn report(self, remarks: &mut impl Write) -> io::Result<Exit> {
        writeln!(remarks, "error: {}", self.1)?;
        Ok(self.0)
    }
}
