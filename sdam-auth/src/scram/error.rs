use sdam_core::error::Error;

use super::{MAX_ITERATIONS, MIN_ITERATIONS};

/// The reason why a SCRAM conversation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ScramError {
    /// The named attribute of a server message is malformed.
    #[error("the server's SCRAM message is malformed at `{0}`")]
    Malformed(&'static str),
    /// The server's nonce does not begin with the client's nonce, or adds no characters to it.
    #[error("the server's SCRAM message does not belong to the client's")]
    Nonce,
    /// The server requests this number of iterations, which is outside the accepted range.
    #[error(
        "the server asks for {0} SCRAM iterations: {MIN_ITERATIONS} to {MAX_ITERATIONS} are \
         accepted"
    )]
    Iterations(u32),
    /// The password contains characters that SASLprep prohibits.
    #[error("the password contains characters that SCRAM-SHA-256 prohibits: set another one")]
    Password,
    /// The server reports this error.
    #[error("the server ends the SCRAM conversation: {0}")]
    Server(Box<str>),
    /// The server did not prove that it knows the user's keys.
    #[error("the server has not proved that it knows the user: it may be another server")]
    Signature,
}

impl From<ScramError> for Error {
    fn from(error: ScramError) -> Self {
        Self::auth(error.to_string())
    }
}
