//! Errors of test servers.

use std::io;
use std::time::Duration;

use bson::Document;

/// An error that occurred when a server was started or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server is not available on this machine, so the test cannot run; see
    /// [`or_skip`](crate::or_skip).
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// A server answered a command with `ok: 0`.
    #[error(transparent)]
    Command(Box<CommandError>),
    /// An operation on a socket, file or process failed. The string describes the operation.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// A reply was not a valid OP_MSG, or lacks a mandatory field.
    #[error("{0}")]
    Protocol(String),
    /// A server process exited unexpectedly. The message includes the end of the server's log.
    #[error("{0}")]
    Exited(String),
    /// A wait timed out.
    #[error(
        "timed out after {} s waiting for {awaited}{}",
        waited.as_secs(),
        last.as_ref().map(|last| format!("; last: {last}")).unwrap_or_default()
    )]
    TimedOut {
        /// The awaited event.
        awaited: String,
        /// The duration of the wait.
        waited: Duration,
        /// The last error during the wait.
        last: Option<Box<Error>>,
    },
    /// The operation is not possible in the current state. For example, a dead server cannot be
    /// signalled.
    #[error("{0}")]
    State(String),
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io(doing, source)
    }

    /// Returns the error code of the server's reply, if there is one.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Command(error) => Some(error.code),
            Self::TimedOut { last, .. } => last.as_ref().and_then(|last| last.code()),
            _ => None,
        }
    }
}

impl From<CommandError> for Error {
    fn from(error: CommandError) -> Self {
        Self::Command(Box::new(error))
    }
}

/// A server is not available on this machine; the reason names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a server is not available: {reason}")]
pub struct Unavailable {
    /// The missing item and the remedy, in one or two sentences.
    pub reason: String,
}

impl Unavailable {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// A reply with `ok: 0`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{command} failed: {message} ({code_name}, {code})")]
pub struct CommandError {
    /// The command's name.
    pub command: String,
    /// The server's error code; 0 if the reply has none.
    pub code: i32,
    /// The name of the code, such as `NotWritablePrimary`.
    pub code_name: String,
    /// The server's message.
    pub message: String,
    /// The whole reply, with `errorLabels` and `topologyVersion`.
    pub reply: Document,
}

impl CommandError {
    pub(crate) fn from_reply(command: &str, reply: Document) -> Self {
        let text = |key| reply.get_str(key).unwrap_or_default().to_owned();
        Self {
            command: command.to_owned(),
            code: reply.get_i32("code").unwrap_or_default(),
            code_name: text("codeName"),
            message: text("errmsg"),
            reply,
        }
    }
}
