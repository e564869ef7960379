//! Errors of servers, as plain data.

mod retry;
mod source;

use alloc::{boxed::Box, sync::Arc};
use core::fmt;

pub use self::source::ErrorSource;
use crate::ids::TopologyVersion;

/// The label of an error due to load: the server could not accept the connection or command.
pub const SYSTEM_OVERLOADED_ERROR: &str = "SystemOverloadedError";
/// The label of an error after which the command may be retried.
pub const RETRYABLE_ERROR: &str = "RetryableError";
/// The label of an error after which a write with the number of a transaction may be retried.
pub const RETRYABLE_WRITE_ERROR: &str = "RetryableWriteError";

/// An error of an attempt, with labels that say how to go on: the server's, and those that the
/// client adds. A driver implements it for its own errors.
pub trait Labelled {
    /// Returns whether the error carries `label`.
    fn has_label(&self, label: &str) -> bool;
}

impl Labelled for ServerError {
    fn has_label(&self, label: &str) -> bool {
        self.has_label(label)
    }
}

/// The last error of a server: stored in its description, published in events, shown to users.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct ServerError {
    /// The kind of error; decides how it is handled.
    pub kind: ErrorKind,
    /// The stage of the connection when the error occurred.
    pub stage: Stage,
    /// The numeric code of a command error.
    pub code: Option<i32>,
    /// The name of [`code`](Self::code), such as `NotWritablePrimary`.
    pub code_name: Option<Box<str>>,
    /// The error labels, from the server or the connection pool.
    pub labels: Box<[Box<str>]>,
    /// The human-readable message, without address and stage.
    pub message: Box<str>,
    /// The topology version that came with a command error.
    pub topology_version: Option<TopologyVersion>,
    /// The error of the transport or the driver from which this one was made.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub source: ErrorSource,
}

/// The kind of a [`ServerError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum ErrorKind {
    /// The check was cancelled before it had an outcome: an operation found the server's
    /// connections broken, or the server left the topology. Appears in heartbeat events only.
    Cancelled,
    /// The server answered `ok: 0`, or an operation's reply carried an error.
    Command,
    /// The monitor of the server, or the opening of a connection, ended unexpectedly.
    Internal,
    /// The connection could not be opened or broke.
    Network,
    /// The peer's answer is not acceptable: malformed, oversized or unexpected; at [`Stage::Tls`],
    /// an untrusted certificate or host name.
    Protocol,
    /// The server's replica set name is not the configured one.
    SetName,
    /// A newer primary is known (SDAM: "primary marked stale").
    StalePrimary,
    /// The connection or reply took longer than allowed.
    Timeout,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Cancelled,
        Self::Command,
        Self::Internal,
        Self::Network,
        Self::Protocol,
        Self::SetName,
        Self::StalePrimary,
        Self::Timeout,
    ];

    /// Returns one lower-case word, for counters and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Command => "command",
            Self::Internal => "internal",
            Self::Network => "network",
            Self::Protocol => "protocol",
            Self::SetName => "set_name",
            Self::StalePrimary => "stale_primary",
            Self::Timeout => "timeout",
        }
    }
}

/// The stage of a connection to a server when an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Stage {
    /// Looking up the host name.
    Dns,
    /// Opening the connection.
    Connect,
    /// Reaching a proxy, or asking it for the connection.
    Proxy,
    /// Negotiating TLS.
    Tls,
    /// Sending hello or reading its reply.
    Hello,
    /// Authenticating.
    Auth,
    /// Running an operation on an established connection.
    Operation,
}

impl ServerError {
    /// Creates an error of `kind` at `stage` with a message and no other details.
    pub fn new(kind: ErrorKind, stage: Stage, message: impl Into<Box<str>>) -> Self {
        Self {
            kind,
            stage,
            code: None,
            code_name: None,
            labels: Box::default(),
            message: message.into(),
            topology_version: None,
            source: ErrorSource::default(),
        }
    }

    /// Returns whether the connection broke, timed out or had an unacceptable answer.
    pub fn is_network(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Protocol
        )
    }

    /// Returns whether the error is a time-out.
    pub fn is_timeout(&self) -> bool {
        self.kind == ErrorKind::Timeout
    }

    /// Returns whether the error carries `label`.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels.iter().any(|own| &**own == label)
    }

    /// Returns the change of the server's state that the error reports, if any (SDAM:
    /// "state change error").
    pub fn state_change(&self) -> Option<StateChange> {
        (self.kind == ErrorKind::Command)
            .then(|| StateChange::classify(self.code, &self.message))
            .flatten()
    }

    /// Returns the [`source`](Self::source), if it is an `E`: a driver's own error, which its
    /// transport or its report has kept.
    pub fn source_as<E: core::error::Error + 'static>(&self) -> Option<&E> {
        self.source.downcast_ref()
    }

    /// Wraps the error in an `Arc`.
    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ErrorKind::StalePrimary | ErrorKind::SetName => return f.write_str(&self.message),
            ErrorKind::Cancelled => write!(f, "cancelled at {}", self.stage)?,
            ErrorKind::Command => write!(f, "command error at {}", self.stage)?,
            ErrorKind::Internal => write!(f, "internal error at {}", self.stage)?,
            ErrorKind::Network => write!(f, "network error at {}", self.stage)?,
            ErrorKind::Protocol => write!(f, "protocol error at {}", self.stage)?,
            ErrorKind::Timeout => write!(f, "timeout at {}", self.stage)?,
        }
        match (self.code, &self.code_name) {
            (Some(code), Some(name)) => write!(f, " ({code} {name})")?,
            (Some(code), None) => write!(f, " ({code})")?,
            (None, Some(name)) => write!(f, " ({name})")?,
            (None, None) => {}
        }
        write!(f, ": {}", self.message)
    }
}

impl core::error::Error for ServerError {}

impl Stage {
    /// Every stage, in the order of a connection.
    pub const ALL: &'static [Self] = &[
        Self::Dns,
        Self::Connect,
        Self::Proxy,
        Self::Tls,
        Self::Hello,
        Self::Auth,
        Self::Operation,
    ];

    /// Returns whether the connection was not established yet (SDAM: "before handshake completes").
    /// The handshake comprises hello and authentication.
    #[doc(alias = "beforeHandshakeCompletes")]
    pub fn is_before_handshake_completes(self) -> bool {
        self < Self::Operation
    }

    /// Returns whether hello was not answered yet, so that nothing is known about the server, or
    /// about the service behind a load balancer.
    pub fn is_before_hello_completes(self) -> bool {
        self <= Self::Hello
    }

    /// Returns one lower-case word, for counters and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Proxy => "proxy",
            Self::Tls => "tls",
            Self::Hello => "hello",
            Self::Auth => "auth",
            Self::Operation => "operation",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A change of a server's state that an error reports (SDAM: "not writable primary" and
/// "node is recovering" errors).
#[doc(alias("isNotWritablePrimary", "isRecovering"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateChange {
    /// The server is no longer the primary.
    NotWritablePrimary,
    /// The server is recovering, or its replication state is changing.
    NodeIsRecovering,
    /// The server is recovering because it is shutting down.
    ShuttingDown,
}

impl StateChange {
    /// Classifies an error by `code` if there is one, else by `message` (SDAM:
    /// "the code takes precedence").
    pub fn classify(code: Option<i32>, message: &str) -> Option<Self> {
        match code {
            Some(10107 | 13435 | 10058) => Some(Self::NotWritablePrimary),
            Some(11602 | 13436 | 189) => Some(Self::NodeIsRecovering),
            Some(11600 | 91) => Some(Self::ShuttingDown),
            None if message.contains("not master or secondary")
                || message.contains("node is recovering") =>
            {
                Some(Self::NodeIsRecovering)
            }
            None if message.contains("not master") => Some(Self::NotWritablePrimary),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn codes_take_precedence_over_messages() {
        // I-30, I-31
        let check = |code, message, expected| {
            assert_eq!(
                StateChange::classify(code, message),
                expected,
                "{code:?} {message}"
            );
        };
        check(Some(10107), "", Some(StateChange::NotWritablePrimary));
        check(
            Some(13436),
            "not master",
            Some(StateChange::NodeIsRecovering),
        );
        check(Some(91), "", Some(StateChange::ShuttingDown));
        check(Some(11600), "", Some(StateChange::ShuttingDown));
        check(Some(1), "not master", None);
        check(None, "not master", Some(StateChange::NotWritablePrimary));
        check(
            None,
            "not master or secondary",
            Some(StateChange::NodeIsRecovering),
        );
        check(
            None,
            "the node is recovering",
            Some(StateChange::NodeIsRecovering),
        );
        check(None, "not primary", None);
    }

    #[test]
    fn display_names_kind_stage_code_and_text() {
        let mut error = ServerError::new(ErrorKind::Command, Stage::Hello, "boom");
        error.code = Some(91);
        error.code_name = Some("ShutdownInProgress".into());
        assert_eq!(
            error.to_string(),
            "command error at hello (91 ShutdownInProgress): boom"
        );
    }
}
