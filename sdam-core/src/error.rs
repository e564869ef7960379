//! Errors from servers, connections and operations, as plain data.

mod kind;
#[cfg(test)]
mod tests;

use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};
use core::{error::Error as StdError, fmt};

pub(crate) use self::kind::StateChange;
pub use self::kind::{ErrorKind, ErrorOutcome, Stage};
use crate::{
    address::ServerAddress,
    ids::TopologyVersion,
    options::ConfigError,
    reply::{self, WriteError},
};

/// The label of an error due to overload: the server could not accept the connection or command.
pub const SYSTEM_OVERLOADED_ERROR: &str = "SystemOverloadedError";
/// The label of an error after which the command may be retried.
pub(crate) const RETRYABLE_ERROR: &str = "RetryableError";
/// The label of an error after which a write with a transaction number may be retried.
pub const RETRYABLE_WRITE_ERROR: &str = "RetryableWriteError";

/// The error code for a connection that has to be authenticated again.
pub const REAUTHENTICATION_REQUIRED: i32 = 391;

/// The error code for a command that exceeded `maxTimeMS`.
pub const MAX_TIME_MS_EXPIRED: i32 = 50;

/// An error from a server, a connection to it, the look-up of its name, or a command.
///
/// Programs can match on its [`kind`](Self::kind) and [`stage`](Self::stage), or call a predicate
/// such as [`is_timeout`](Self::is_timeout). Transports, resolvers, pools and clients return errors
/// of this type. A server's description contains its last error, and events contain errors, too.
///
/// `{}` prints one line: the command and the server if they are known, the kind, the stage, the
/// code, the attempted action and all causes. A program therefore need not print the errors that
/// [`source`](StdError::source) returns. `Debug` adds the [`remedy`](Self::remedy).
///
/// An error has the size of a pointer and is cheap to clone. Comparisons ignore sources, replies
/// and outcomes.
#[derive(Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
struct Inner {
    kind: ErrorKind,
    stage: Stage,
    code: Option<i32>,
    code_name: Option<Box<str>>,
    labels: Box<[Box<str>]>,
    /// A description of the attempted action and of all causes.
    message: Box<str>,
    topology_version: Option<TopologyVersion>,
    /// Not serialized, because the object that contains the error also contains the server's
    /// address.
    #[cfg_attr(feature = "serde", serde(skip))]
    context: Context,
    #[cfg_attr(feature = "serde", serde(skip))]
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The details that are omitted from errors in descriptions and events.
#[derive(Clone, Default, PartialEq, Eq)]
struct Context {
    address: Option<ServerAddress>,
    command: Option<FailedCommand>,
    reply: Option<Arc<[u8]>>,
    outcome: Option<ErrorOutcome>,
}

/// The command that failed with the error.
#[derive(Clone, PartialEq, Eq)]
struct FailedCommand {
    name: Box<str>,
    retries: u32,
    /// True if the time limit did not allow another attempt.
    is_late: bool,
}

impl Error {
    /// Creates an error of `kind` at `stage` with a message and no other details.
    pub fn new(kind: ErrorKind, stage: Stage, message: impl Into<Box<str>>) -> Self {
        Self(Arc::new(Inner {
            kind,
            stage,
            code: None,
            code_name: None,
            labels: Box::default(),
            message: message.into(),
            topology_version: None,
            context: Context::default(),
            source: None,
        }))
    }

    /// Creates a network error: a connection could not be opened, or broke.
    pub fn network(stage: Stage, message: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::Network, stage, message)
    }

    /// Creates a timeout error.
    pub fn timeout(stage: Stage, message: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::Timeout, stage, message)
    }

    /// Creates a protocol error: malformed bytes, a message out of order, or at [`Stage::Tls`] an
    /// untrusted certificate or host name.
    pub fn protocol(stage: Stage, message: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::Protocol, stage, message)
    }

    /// Creates the error for an authentication that the client cannot begin, or that the client
    /// ends because it rejects a reply. The message must not reveal secrets.
    pub fn auth(message: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::Command, Stage::Auth, message)
    }

    /// Sets the code of the server's error.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<Option<i32>>) -> Self {
        self.inner().code = code.into();
        self
    }

    /// Sets the name of the code, such as `NotWritablePrimary`.
    #[must_use]
    pub fn with_code_name<'n>(mut self, name: impl Into<Option<&'n str>>) -> Self {
        self.inner().code_name = name.into().map(Box::from);
        self
    }

    /// Adds `label`, unless the error carries it already.
    #[must_use]
    pub fn with_label(self, label: &str) -> Self {
        self.with_labels([label])
    }

    /// Adds each of `labels` that the error does not carry yet.
    #[must_use]
    pub fn with_labels(mut self, labels: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        let mut all = Vec::new();
        for label in labels {
            let label = label.into();
            if !self.has_label(&label) && !all.contains(&label) {
                all.push(label);
            }
        }
        if !all.is_empty() {
            let inner = self.inner();
            inner.labels = inner.labels.iter().cloned().chain(all).collect();
        }
        self
    }

    /// Sets the topology version that came with the server's error.
    #[must_use]
    pub fn with_topology_version(mut self, version: impl Into<Option<TopologyVersion>>) -> Self {
        self.inner().topology_version = version.into();
        self
    }

    /// Sets the address of the server, which is then included when the error is printed.
    #[must_use]
    pub fn with_address(mut self, address: &ServerAddress) -> Self {
        self.inner().context.address = Some(address.clone());
        self
    }

    /// Sets the server's reply that contains the error, a BSON document.
    #[must_use]
    pub fn with_reply(mut self, reply: impl Into<Arc<[u8]>>) -> Self {
        self.inner().context.reply = Some(reply.into());
        self
    }

    /// Sets the effect of the reported error on the topology.
    #[must_use]
    pub fn with_outcome(mut self, outcome: ErrorOutcome) -> Self {
        self.inner().context.outcome = Some(outcome);
        self
    }

    /// Sets the name of the failed command. The printed error then begins with this name.
    #[must_use]
    pub fn with_command(mut self, name: &str) -> Self {
        self.inner().context.command =
            Some(FailedCommand { name: name.into(), retries: 0, is_late: false });
        self
    }

    /// Sets the number of retries of the [command](Self::with_command).
    #[must_use]
    pub fn retried(mut self, retries: u32) -> Self {
        if let Some(command) = &mut self.inner().context.command {
            command.retries = retries;
        }
        self
    }

    /// Marks the error as a [timeout](Self::is_timeout), because the command's time limit did not
    /// allow another attempt (Client Side Operations Timeout: "Retryability").
    #[must_use]
    pub fn out_of_time(mut self) -> Self {
        if let Some(command) = &mut self.inner().context.command {
            command.is_late = true;
        }
        self
    }

    /// Removes the address, the command, the reply and the outcome, for descriptions and events,
    /// which name the server themselves and may be kept for a long time.
    #[must_use]
    pub fn without_context(mut self) -> Self {
        if self.0.context != Context::default() {
            self.inner().context = Context::default();
        }
        self
    }

    /// Stores `source`, and appends it and its causes to the message.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = source.into();
        let inner = self.inner();
        let causes = chain(&*source);
        inner.message = format!("{}{causes}", inner.message).into();
        inner.source = Some(source.into());
        self
    }

    /// Stores `source` without appending it to the message, which must describe it already.
    #[must_use]
    pub fn with_cause(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner().source = Some(source.into().into());
        self
    }

    /// Prefixes the message with `context`.
    #[must_use]
    pub fn within(mut self, context: &str) -> Self {
        let inner = self.inner();
        inner.message = format!("{context}: {}", inner.message).into();
        self
    }

    /// Replaces the stage.
    #[must_use]
    pub fn at(mut self, stage: Stage) -> Self {
        if self.stage() != stage {
            self.inner().stage = stage;
        }
        self
    }

    /// Returns the kind, which determines how the error is handled.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the stage of the connection at which the error occurred.
    pub fn stage(&self) -> Stage {
        self.0.stage
    }

    /// Returns the numeric code of the server's error.
    pub fn code(&self) -> Option<i32> {
        self.0.code
    }

    /// Returns the name of the [`code`](Self::code), such as `NotWritablePrimary`.
    pub fn code_name(&self) -> Option<&str> {
        self.0.code_name.as_deref()
    }

    /// Returns the labels from the server and those added by the client.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.labels.iter().map(|label| &**label)
    }

    /// Returns whether the error carries `label`.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels().any(|own| own == label)
    }

    /// Returns a description of the attempted action and all causes, or the server's message. It
    /// does not include the command, the server, the kind and the stage.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the topology version that came with the server's error.
    pub fn topology_version(&self) -> Option<TopologyVersion> {
        self.0.topology_version
    }

    /// Returns the address of the server. `None` if it is unknown, or if the error is part of a
    /// description or an event, which names the server itself.
    pub fn address(&self) -> Option<&ServerAddress> {
        self.0.context.address.as_ref()
    }

    /// Returns the name of the failed command. `None` if no command failed, or if the error is part
    /// of an event, which names the command itself.
    pub fn command(&self) -> Option<&str> {
        Some(&self.0.context.command.as_ref()?.name)
    }

    /// Returns the number of retries before the command failed with this error.
    pub fn retries(&self) -> u32 {
        self.0.context.command.as_ref().map_or(0, |command| command.retries)
    }

    /// Returns the server's reply that contains the error, a BSON document; `None` if there was no
    /// reply, or if the error is kept in a description or an event. Without a reply it is unknown
    /// whether a command took effect.
    pub fn reply(&self) -> Option<&[u8]> {
        self.0.context.reply.as_deref()
    }

    /// Returns the errors of individual writes, if the kind is [`ErrorKind::Write`].
    pub fn write_errors(&self) -> Vec<WriteError> {
        self.reply().map(reply::write_errors).unwrap_or_default()
    }

    /// Returns the write concern error in the reply, if the kind is [`ErrorKind::Write`]: the writes
    /// may not be durable, or may not have reached every required member.
    pub fn write_concern_error(&self) -> Option<Self> {
        reply::check(self.reply()?, self.stage()).ok()?
    }

    /// Returns the effect of the reported error on the topology; `None` if the error was not
    /// reported.
    pub fn outcome(&self) -> Option<ErrorOutcome> {
        self.0.context.outcome
    }

    /// Returns the error that was last passed to [`with_source`](Self::with_source) or
    /// [`with_cause`](Self::with_cause), if its type is `E`. Such an error comes from the operating
    /// system, a library or a driver.
    pub fn source_as<E: StdError + 'static>(&self) -> Option<&E> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// Returns whether the connection could not be opened, broke or timed out, or the peer's answer
    /// was unacceptable.
    pub fn is_network(&self) -> bool {
        matches!(self.kind(), ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Protocol)
    }

    /// Returns whether a time limit was exceeded: in server selection, in the wait queue, while
    /// connecting, while waiting for a reply, on the server (`MaxTimeMSExpired`), or before another
    /// attempt.
    pub fn is_timeout(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::SelectionTimeout
                | ErrorKind::Timeout
                | ErrorKind::TimeLimit
                | ErrorKind::WaitQueueTimeout
        ) || matches!(self.kind(), ErrorKind::Command | ErrorKind::Write)
            && self.code() == Some(MAX_TIME_MS_EXPIRED)
            || self.0.context.command.as_ref().is_some_and(|own| own.is_late)
    }

    /// Returns whether the server could not accept the connection or the command due to load.
    pub fn is_overload(&self) -> bool {
        self.has_label(SYSTEM_OVERLOADED_ERROR)
    }

    /// Returns the change of the server's state that the error reports, if any (SDAM:
    /// "state change error").
    pub(crate) fn state_change(&self) -> Option<StateChange> {
        (self.kind() == ErrorKind::Command)
            .then(|| StateChange::classify(self.code(), self.message()))
            .flatten()
    }

    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.0)
    }
}

impl PartialEq for Error {
    /// Compares errors, but ignores sources, replies and outcomes.
    fn eq(&self, other: &Self) -> bool {
        let (own, other) = (&*self.0, &*other.0);
        own.kind == other.kind
            && own.stage == other.stage
            && own.code == other.code
            && own.code_name == other.code_name
            && own.labels == other.labels
            && own.message == other.message
            && own.topology_version == other.topology_version
            && own.context.address == other.context.address
            && own.context.command == other.context.command
    }
}

impl Eq for Error {}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source: &(dyn StdError + 'static) = self.0.source.as_deref()?;
        Some(source)
    }
}

impl From<ConfigError> for Error {
    /// Creates an error for an invalid configuration, with the [`ConfigError`] as its source.
    fn from(error: ConfigError) -> Self {
        let message = "the configuration is invalid";
        Self::new(ErrorKind::Invalid, Stage::Dns, message).with_source(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_head(f)?;
        f.write_str(self.message())
    }
}

impl fmt::Debug for Error {
    /// Prints the error and its remedy, for programs whose `main` returns it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl Error {
    /// Returns the name of the kind to print before the message; `None` if the message suffices.
    fn kind_text(&self) -> Option<&'static str> {
        match self.kind() {
            ErrorKind::Cancelled => Some("cancelled"),
            ErrorKind::Command => Some("command error"),
            ErrorKind::Internal => Some("internal error"),
            ErrorKind::Network => Some("network error"),
            ErrorKind::Protocol => Some("protocol error"),
            ErrorKind::Timeout => Some("timeout"),
            ErrorKind::Write => Some("write error"),
            _ => None,
        }
    }

    /// Writes the command, the server, the kind, the stage and the code.
    fn fmt_head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind_text();
        match (&self.0.context.command, self.address()) {
            (Some(command), address) => command.fmt_head(f, address)?,
            (None, Some(address)) if kind.is_some() => write!(f, "{address}: ")?,
            (None, _) => {}
        }
        let Some(kind) = kind else { return Ok(()) };
        write!(f, "{kind} at {}", self.stage())?;
        match (self.code(), self.code_name()) {
            (Some(code), Some(name)) => write!(f, " ({code} {name})")?,
            (Some(code), None) => write!(f, " ({code})")?,
            (None, Some(name)) => write!(f, " ({name})")?,
            (None, None) => {}
        }
        f.write_str(": ")
    }
}

impl FailedCommand {
    fn fmt_head(&self, f: &mut fmt::Formatter<'_>, address: Option<&ServerAddress>) -> fmt::Result {
        write!(f, "`{}` failed", self.name)?;
        if let Some(address) = address {
            write!(f, " on {address}")?;
        }
        match self.retries {
            0 => {}
            1 => f.write_str(" after 1 retry")?,
            count => write!(f, " after {count} retries")?,
        }
        if self.is_late {
            f.write_str(", and the time limit allows no other attempt")?;
        }
        f.write_str(": ")
    }
}

/// Formats an error and all its causes, to be appended to a message.
fn chain(error: &(dyn StdError + 'static)) -> String {
    // An `Error` prints its causes itself.
    let causes = match error.downcast_ref::<Error>() {
        Some(_) => None,
        None => error.source().map(chain),
    };
    format!(": {error}{}", causes.unwrap_or_default())
}
