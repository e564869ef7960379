//! What can go wrong between a test and its servers.

use std::fmt;
use std::io;
use std::time::Duration;

use bson::Document;

/// Why a server could not be had, or did not do what was asked of it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no `mongod` here: the test cannot run, see [`or_skip`](crate::or_skip).
    Unavailable(Unavailable),
    /// A server answered a command with `ok: 0`.
    Command(Box<CommandError>),
    /// A socket, file or process operation failed; the text says which.
    Io(String, io::Error),
    /// A reply was no well-formed OP_MSG, or lacks what every such reply has.
    Protocol(String),
    /// A server process ended by itself; the text ends with the end of its log.
    Exited(String),
    /// What was waited for did not happen in time.
    TimedOut {
        /// What was waited for.
        awaited: String,
        /// How long.
        waited: Duration,
        /// What was seen last instead.
        last: Option<Box<Error>>,
    },
    /// What was asked for cannot be done in the present state, such as signalling a dead server.
    State(String),
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io(doing, source)
    }

    /// The server's error code, if a server answered with one.
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
            Self::TimedOut {
                awaited,
                waited,
                last,
            } => {
                write!(f, "waited {} s for {awaited}", waited.as_secs())?;
                last.as_ref()
                    .map_or(Ok(()), |last| write!(f, "; last: {last}"))
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

/// No `mongod` can be had on this machine; the reason names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// What is missing and what to do about it, in one or two sentences.
    pub reason: String,
}

impl Unavailable {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no mongod can be had: {}", self.reason)
    }
}

impl std::error::Error for Unavailable {}

/// A reply with `ok: 0`.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandError {
    /// The command's name.
    pub command: String,
    /// The server's error code; 0 where the reply has none.
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
        let Self {
            command,
            code,
            code_name,
            message,
            ..
        } = self;
        write!(f, "{command} failed: {message} ({code_name}, {code})")
    }
}

impl std::error::Error for CommandError {}
