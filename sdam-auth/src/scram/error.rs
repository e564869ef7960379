use sdam_core::error::Error;
use std::fmt;

use super::{MAX_ITERATIONS, MIN_ITERATIONS};

/// The reason why a SCRAM conversation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScramError {
    /// This attribute of a server message is malformed.
    Malformed(&'static str),
    /// The server's nonce does not begin with the client's, or adds nothing to it.
    Nonce,
    /// The server requests this number of iterations.
    Iterations(u32),
    /// The password contains characters that SASLprep prohibits.
    Password,
    /// The server reports this error.
    Server(Box<str>),
    /// The server did not prove that it knows the user's keys.
    Signature,
}

impl fmt::Display for ScramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(name) => {
                write!(f, "the server's SCRAM message is malformed at `{name}`")
            }
            Self::Nonce => {
                f.write_str("the server's SCRAM message does not belong to the client's")
            }
            Self::Iterations(count) => write!(
                f,
                "the server asks for {count} SCRAM iterations: {MIN_ITERATIONS} to \
                 {MAX_ITERATIONS} are accepted"
            ),
            Self::Password => f.write_str(
                "the password contains characters that SCRAM-SHA-256 prohibits: set another one",
            ),
            Self::Server(error) => {
                write!(f, "the server ends the SCRAM conversation: {error}")
            }
            Self::Signature => f.write_str(
                "the server has not proved that it knows the user: it may be another server",
            ),
        }
    }
}

impl std::error::Error for ScramError {}

impl From<ScramError> for Error {
    fn from(error: ScramError) -> Self {
        Self::auth(error.to_string())
    }
}
