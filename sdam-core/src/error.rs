//! What went wrong with a server, as plain data.

use alloc::{boxed::Box, sync::Arc};
use core::fmt;

use crate::ids::TopologyVersion;

/// The label that says that a server could not take the connection or command because of load.
pub const SYSTEM_OVERLOADED_ERROR: &str = "SystemOverloadedError";
/// The label that says that the command may be tried again.
pub const RETRYABLE_ERROR: &str = "RetryableError";

/// The last error of a server: stored in its description, published in events, shown to users.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerError {
    /// What kind of error it is; decides what is done about it.
    pub kind: ErrorKind,
    /// How far the conversation had come.
    pub stage: Stage,
    /// The numeric code of a command error.
    pub code: Option<i32>,
    /// The name of [`code`](Self::code), such as `NotWritablePrimary`.
    pub code_name: Option<Box<str>>,
    /// The error labels, from the server or the connection pool.
    pub labels: Box<[Box<str>]>,
    /// The text for people, without address and stage.
    pub message: Box<str>,
    /// The topology version that came with a command error.
    pub topology_version: Option<TopologyVersion>,
}

/// What kind of error a [`ServerError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The check was given up before it had an outcome: an operation found the server's connections
    /// broken, or the server left the topology. Appears in heartbeat events only.
    Cancelled,
    /// The server answered `ok: 0`, or an operation's reply carried an error.
    Command,
    /// The monitor of the server ended unexpectedly.
    Internal,
    /// The connection could not be opened or broke.
    Network,
    /// The peer's answer cannot be accepted: malformed, oversized or out of turn; at
    /// [`Stage::Tls`] a certificate or host name that is not to be trusted.
    Protocol,
    /// The server's replica set name is not the one that is configured.
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

    /// The kind with this [`as_str`](Self::as_str).
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == word)
    }

    /// One lower-case word, for counters and records.
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

/// How far the conversation with the server had come when the error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// Looking up the host name.
    Dns,
    /// Opening the connection, where there is a proxy that to the proxy.
    Connect,
    /// Asking a proxy for the connection.
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
    /// An error of `kind` at `stage` with a text for people and nothing else.
    pub fn new(kind: ErrorKind, stage: Stage, message: impl Into<Box<str>>) -> Self {
        Self {
            kind,
            stage,
            code: None,
            code_name: None,
            labels: Box::default(),
            message: message.into(),
            topology_version: None,
        }
    }

    /// Whether the error came from the network: broken or timed out, not answered.
    pub fn is_network(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Protocol
        )
    }

    /// Whether the error is a time-out.
    pub fn is_timeout(&self) -> bool {
        self.kind == ErrorKind::Timeout
    }

    /// Whether the error carries `label`.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels.iter().any(|own| &**own == label)
    }

    /// What the error says about the server's state, if anything (SDAM: "state change error").
    pub fn state_change(&self) -> Option<StateChange> {
        (self.kind == ErrorKind::Command)
            .then(|| StateChange::classify(self.code, &self.message))
            .flatten()
    }

    /// The error, shared.
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
    /// Every stage, in the order of a conversation.
    pub const ALL: &'static [Self] = &[
        Self::Dns,
        Self::Connect,
        Self::Proxy,
        Self::Tls,
        Self::Hello,
        Self::Auth,
        Self::Operation,
    ];

    /// The stage with this [`as_str`](Self::as_str).
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|stage| stage.as_str() == word)
    }

    /// One lower-case word, for counters and records.
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

/// What an error says about the state its server is in (SDAM: "not writable primary" and "node is
/// recovering" errors).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateChange {
    /// The server is not the primary any more.
    NotWritablePrimary,
    /// The server is recovering, or its replication state is changing.
    NodeIsRecovering,
    /// The server is recovering because it is shutting down.
    ShuttingDown,
}

impl StateChange {
    /// Judges by `code` if there is one and else by `message` (SDAM: "the code takes precedence").
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
    fn codes_decide_and_messages_only_where_there_is_no_code() {
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
