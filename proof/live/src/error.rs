//! Errors of test servers.

use std::fmt;
use std::io;
use std::time::Duration;

use bson::Document;

/// The error of starting or using a server.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The server is not available on this machine, so the test cannot run; see
    /// [`or_skip`](crate::or_skip).
    Unavailable(Unavailable),
    /// A server answered a command with `ok: 0`.
    Command(Box<CommandError>),
    /// A socket, file or process operation failed; the text describes it.
    Io(String, io::Error),
    /// A reply was not a valid OP_MSG, or lacks a mandatory field.
    Protocol(String),
    /// A server process exited unexpectedly; the text includes the end of its log.
    Exited(String),
    /// A wait timed out.
    TimedOut {
        /// The awaited event.
        awaited: String,
        /// The duration of the wait.
        waited: Duration,
        /// The last error during the wait.
        last: Option<Box<Error>>,
    },
    /// The operation is not possible in the current state, such as signalling a dead server.
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(unavailable) => unavailable.fmt(f),
            Self::Command(error) => error.fmt(f),
            Self::Io(doing, source) => write!(f, "{doing}: {source}"),
            Self::Protocol(text) | Self::Exited(text) | Self::State(text) => f.write_str(text),
            Self::TimedOut { awaited, waited, last } => {
                write!(f, "timed out after {} s waiting for {awaited}", waited.as_secs())?;
                last.as_ref().map_or(Ok(()), |last| write!(f, "; last: {last}"))
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<Unavailable> for Error {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable)
    }
}

impl From<CommandError> for Error {
    fn from(error: CommandError) -> Self {
        Self::Command(Box::new(error))
    }
}

/// A server is not available on this machine; the reason names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The missing item and the remedy, in one or two sentences.
    pub reason: String,
}

impl Unavailable {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a server is not available: {}", self.reason)
    }
}

impl std::error::Error for Unavailable {}

/// A reply with `ok: 0`.
#[derive(Clone, Debug, PartialEq)]
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

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, code, code_name, message, .. } = self;
        write!(f, "{command} failed: {message} ({code_name}, {code})")
    }
}

impl std::error::Error for CommandError {}
