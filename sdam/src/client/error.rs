use std::fmt;

use sdam_core::{
    address::ServerAddress,
    document::MalformedDocument,
    error::{Error, ErrorKind, Labelled, RETRYABLE_WRITE_ERROR, SYSTEM_OVERLOADED_ERROR, Stage},
    event::CommandInfo,
};
use sdam_transport::pool::CommandReply;

use super::Command;
use crate::select::error::SelectionError;

/// The code of an error because of `maxTimeMS`.
pub(super) const MAX_TIME_MS_EXPIRED: i32 = 50;

pub(super) const NO_WRITES_PERFORMED: &str = "NoWritesPerformed";

/// The error of a command. Its effects on the topology have run.
///
/// `{}` is one line with the name of the command, the server and the number of retries.
#[derive(Clone)]
pub struct CommandError(Box<Parts>);

#[derive(Clone)]
struct Parts {
    kind: CommandErrorKind,
    command: Box<str>,
    address: Option<ServerAddress>,
    labels: Vec<Box<str>>,
    reply: Option<Box<[u8]>>,
    retries: u32,
    is_late: bool,
}

/// The cause of a failed command.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CommandErrorKind {
    /// No server could be selected. The command was not sent.
    Selection(SelectionError),
    /// The pool had no connection to give, or a clear has interrupted the connection.
    Pool(Error),
    /// The connection could not be established, or it broke: also by a message that cannot be the
    /// reply.
    Connection(Error),
    /// The server has answered with an error.
    Reply(Error),
    /// The time limit of the operation has passed, or is too short for a round trip to the server.
    /// The command was not sent.
    TimedOut,
    /// The command is no BSON document. It was not sent.
    Malformed(MalformedDocument),
    /// The runtime of the pool has ended before the client was closed.
    RuntimeShutDown,
}

impl CommandError {
    pub(super) fn new(command: &Command<'_>, kind: CommandErrorKind) -> Self {
        let labels = match &kind {
            CommandErrorKind::Connection(error) | CommandErrorKind::Reply(error) => {
                error.labels().map(Box::from).collect()
            }
            _ => Vec::new(),
        };
        Self(Box::new(Parts {
            kind,
            command: CommandInfo::name_of(command.document).into(),
            address: None,
            labels,
            reply: None,
            retries: 0,
            is_late: false,
        }))
    }

    pub(super) fn selection(command: &Command<'_>, error: SelectionError) -> Self {
        Self::new(command, CommandErrorKind::Selection(error))
    }

    pub(super) fn pool(command: &Command<'_>, error: Error) -> Self {
        let reply = error.reply().map(Box::from);
        let kind = match error.kind() {
            ErrorKind::RuntimeShutDown => CommandErrorKind::RuntimeShutDown,
            _ if reply.is_some() => CommandErrorKind::Reply(error.without_context()),
            _ if error.stage() == Stage::CheckOut || error.kind() == ErrorKind::Interrupted => {
                CommandErrorKind::Pool(error)
            }
            _ => CommandErrorKind::Connection(error.without_context()),
        };
        let mut own = Self::new(command, kind);
        own.0.reply = reply;
        own
    }

    /// Creates the error of an error in a `reply` with `ok: 1`.
    pub(super) fn in_reply(command: &Command<'_>, error: Error, reply: &CommandReply) -> Self {
        let mut own = Self::new(command, CommandErrorKind::Reply(error));
        own.0.reply = Some(reply.body().into());
        own
    }

    pub(super) fn at(mut self, address: &ServerAddress) -> Self {
        self.0.address = Some(address.clone());
        self
    }

    pub(super) fn after(mut self, retries: u32) -> Self {
        self.0.retries = retries;
        self
    }

    /// Records whether there was no time left for another attempt.
    pub(super) fn late(mut self, is_late: bool) -> Self {
        self.0.is_late = is_late;
        self
    }

    pub(super) fn add_label(&mut self, label: &str) {
        if !self.has_label(label) {
            self.0.labels.push(label.into());
        }
    }

    pub(super) fn is_overload(&self) -> bool {
        self.has_label(SYSTEM_OVERLOADED_ERROR)
    }

    /// Returns what the command failed with.
    pub fn kind(&self) -> &CommandErrorKind {
        &self.0.kind
    }

    /// Returns the name of the command.
    pub fn command(&self) -> &str {
        &self.0.command
    }

    /// Returns the server of the failed attempt; `None` if none was selected.
    pub fn address(&self) -> Option<&ServerAddress> {
        self.0.address.as_ref()
    }

    /// Returns the labels: those of the server's reply, and those that the client has added.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.0.labels.iter().map(|label| &**label)
    }

    /// Returns whether the error carries `label`.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels().any(|own| own == label)
    }

    /// Returns the error of the server or of the connection to it, if it is one.
    pub fn server_error(&self) -> Option<&Error> {
        match &self.0.kind {
            CommandErrorKind::Connection(error) | CommandErrorKind::Reply(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the code of the server's error.
    pub fn code(&self) -> Option<i32> {
        self.server_error()?.code()
    }

    /// Returns the reply with the error, a BSON document, if there was one.
    pub fn body(&self) -> Option<&[u8]> {
        self.0.reply.as_deref()
    }

    /// Returns how many times the command was retried.
    pub fn retries(&self) -> u32 {
        self.0.retries
    }

    /// Returns whether time has run out: for the selection, in the wait queue, at connecting, for the
    /// reply, at the server (`MaxTimeMSExpired`), or for another attempt.
    pub fn is_timeout(&self) -> bool {
        self.0.is_late
            || match &self.0.kind {
                CommandErrorKind::TimedOut => true,
                CommandErrorKind::Reply(error) => error.code() == Some(MAX_TIME_MS_EXPIRED),
                CommandErrorKind::Selection(error) => error.is_timeout(),
                CommandErrorKind::Pool(error) | CommandErrorKind::Connection(error) => {
                    error.is_timeout()
                }
                _ => false,
            }
    }

    /// Returns whether a read may be run again after this error; see
    /// [`Error::is_retryable_read`]. [`Client::run`](super::Client::run) has done so already.
    pub fn is_retryable_read(&self) -> bool {
        match &self.0.kind {
            CommandErrorKind::Pool(error) => error.is_retryable_pool(),
            CommandErrorKind::Connection(error) | CommandErrorKind::Reply(error) => {
                error.is_retryable_read()
            }
            _ => false,
        }
    }

    /// Returns whether a write with the number of a transaction may be run again after this error,
    /// on a server with this greatest wire version; see [`Error::is_retryable_write`].
    /// [`Client::run`](super::Client::run) has done so already.
    pub fn is_retryable_write(&self, max_wire_version: i32) -> bool {
        self.has_label(RETRYABLE_WRITE_ERROR)
            || match &self.0.kind {
                CommandErrorKind::Pool(error) => error.is_retryable_pool(),
                CommandErrorKind::Connection(error) | CommandErrorKind::Reply(error) => {
                    error.is_retryable_write(max_wire_version)
                }
                _ => false,
            }
    }

    /// Returns whether any command may be run again after this error and a backoff; see
    /// [`Error::is_retryable_overload`]. [`Client::run`](super::Client::run) has done so
    /// already.
    pub fn is_retryable_overload(&self) -> bool {
        self.server_error()
            .is_some_and(Error::is_retryable_overload)
    }

    /// Returns whether the connection could not be established, or broke.
    pub fn is_network(&self) -> bool {
        matches!(&self.0.kind, CommandErrorKind::Connection(error) if error.is_network())
    }
}

impl Labelled for CommandError {
    fn has_label(&self, label: &str) -> bool {
        self.has_label(label)
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.0;
        write!(f, "`{}` failed", parts.command)?;
        if let Some(address) = &parts.address {
            write!(f, " on {address}")?;
        }
        match parts.retries {
            0 => {}
            1 => f.write_str(" after 1 retry")?,
            count => write!(f, " after {count} retries")?,
        }
        f.write_str(": ")?;
        match &parts.kind {
            CommandErrorKind::Selection(error) => error.fmt(f),
            CommandErrorKind::Pool(error)
            | CommandErrorKind::Connection(error)
            | CommandErrorKind::Reply(error) => error.fmt(f),
            CommandErrorKind::Malformed(error) => error.fmt(f),
            CommandErrorKind::TimedOut => {
                f.write_str("the time limit is too short for a round trip to the server")
            }
            CommandErrorKind::RuntimeShutDown => {
                f.write_str("the runtime has shut down before the client was closed")
            }
        }?;
        if parts.is_late {
            f.write_str("; the time limit allows no other attempt")?;
        }
        Ok(())
    }
}

impl fmt::Debug for CommandError {
    /// Prints the `Display` text, for programs whose `main` returns the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CommandError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            CommandErrorKind::Selection(error) => Some(error),
            CommandErrorKind::Pool(error)
            | CommandErrorKind::Connection(error)
            | CommandErrorKind::Reply(error) => Some(error),
            CommandErrorKind::Malformed(error) => Some(error),
            CommandErrorKind::RuntimeShutDown | CommandErrorKind::TimedOut => None,
        }
    }
}
