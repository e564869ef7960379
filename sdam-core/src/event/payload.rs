//! The contents of events about checks, connections, selections and commands.

use alloc::{boxed::Box, sync::Arc};
use core::time::Duration;

use super::EventKind;
use crate::{
    address::ServerAddress,
    document::{Fields, SharedDocument},
    error::{Error, ErrorKind},
    ids::{ObjectId, ServerId},
};

/// The check that a heartbeat event reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Heartbeat {
    /// The server id.
    pub server: ServerId,
    /// The server's address.
    pub address: ServerAddress,
    /// The connection that carries the check.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub connection: ConnectionId,
    /// True if the server may delay its reply until something changes.
    pub awaited: bool,
}

impl Heartbeat {
    /// Creates the check of `server` at `address` on `connection`.
    pub fn new(
        server: ServerId,
        address: ServerAddress,
        connection: ConnectionId,
        awaited: bool,
    ) -> Self {
        Self { server, address, connection, awaited }
    }
}

/// The ids that the driver and the server have assigned to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ConnectionId {
    /// The client's number for the connection. Each monitor and each pool counts its connections
    /// from 1, so it is unique only within one pool or one monitor.
    #[cfg_attr(feature = "serde", serde(rename = "driverConnectionId"))]
    pub driver: u64,
    /// The server's number for the connection, taken from the first reply on it; `None` until then.
    #[cfg_attr(feature = "serde", serde(rename = "serverConnectionId"))]
    pub server: Option<i64>,
}

/// The reason why a pool closed a connection (CMAP: "Events").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "camelCase")]
pub enum ConnectionClosedReason {
    /// The pool was cleared after the connection had been created.
    Stale,
    /// The connection was unused for longer than `maxIdleTimeMS`.
    Idle,
    /// The connection broke, or could not be established.
    Error,
    /// The pool was closed.
    PoolClosed,
}

impl ConnectionClosedReason {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl ConnectionClosedReason {
    /// Returns the sentence that explains the reason in log messages.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Stale => "Connection became stale because the pool was cleared",
            Self::Idle => {
                "Connection has been available but unused for longer than the configured max idle \
                 time"
            }
            Self::Error => "An error occurred while using the connection",
            Self::PoolClosed => "Connection pool was closed",
        }
    }
}

/// The reason why a check-out failed (CMAP: "Events").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "camelCase")]
pub enum CheckOutFailure {
    /// No connection became available in time.
    Timeout,
    /// The pool is closed.
    PoolClosed,
    /// A connection could not be established, or the pool was cleared.
    ConnectionError,
    /// The caller dropped the check-out. The specification has no such reason.
    Cancelled,
}

impl CheckOutFailure {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl CheckOutFailure {
    /// Returns the sentence that explains the reason in log messages.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Timeout => "Wait queue timeout elapsed without a connection becoming available",
            Self::PoolClosed => "Connection pool was closed",
            Self::ConnectionError => "An error occurred while trying to establish a new connection",
            Self::Cancelled => "The caller has cancelled the check-out",
        }
    }
}

/// The server selection that an event reports. Created once for each selection whose events are
/// wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "camelCase"))]
pub struct Selection {
    /// The complete read preference, or a note that the selector is custom.
    pub selector: Box<str>,
    /// The name of the operation's command, such as `find`.
    pub operation: Option<Box<str>>,
    /// The driver's operation id, if it assigns one.
    pub operation_id: Option<i64>,
}

impl Selection {
    /// Creates a selection with this `selector`, for an unknown operation.
    pub fn new(selector: impl Into<Box<str>>) -> Self {
        Self { selector: selector.into(), operation: None, operation_id: None }
    }
}

/// The reason why a server selection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SelectionFailure {
    /// `serverSelectionTimeoutMS` has passed.
    Timeout,
    /// The client and a server have no wire version in common.
    Incompatible,
    /// The read preference does not fit the deployment.
    InvalidCriteria,
    /// No server was suitable at once, and too many selections were already waiting.
    TooManyWaiters,
    /// The topology was closed.
    Closed,
    /// The runtime shut down before the topology was closed.
    RuntimeShutDown,
    /// The caller cancelled the selection.
    Cancelled,
}

impl SelectionFailure {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The names and ids of a command, shared by its events (Command Logging and Monitoring).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "camelCase"))]
pub struct CommandInfo {
    /// The name of the command, which is the first key of its document.
    #[cfg_attr(feature = "serde", serde(rename = "commandName"))]
    pub name: Box<str>,
    /// The database on which the command is run.
    #[cfg_attr(feature = "serde", serde(rename = "databaseName"))]
    pub database: Box<str>,
    /// The client's number for the command, the same in all its events.
    pub request_id: i32,
    /// The number of the operation, which links all commands and selections of the operation.
    pub operation_id: Option<i64>,
    /// The server id.
    pub server: ServerId,
    /// The server's address.
    pub address: ServerAddress,
    /// The connection.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub connection: ConnectionId,
    /// The service behind a load balancer.
    pub service_id: Option<ObjectId>,
    /// True if the command contains credentials, so that events contain neither the command nor its
    /// reply.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub is_sensitive: bool,
}

impl CommandInfo {
    /// Describes `command`, a BSON document, on a connection of `server` at `address`.
    pub fn new(
        command: &[u8],
        database: &str,
        request_id: i32,
        (server, address): (ServerId, ServerAddress),
        connection: ConnectionId,
    ) -> Self {
        let (name, is_sensitive) = classify(command);
        Self {
            name: name.into(),
            database: database.into(),
            request_id,
            operation_id: None,
            server,
            address,
            connection,
            service_id: None,
            is_sensitive,
        }
    }

    /// Returns the name of a command, its first key; empty if it has none.
    pub fn name_of(command: &[u8]) -> &str {
        classify(command).0
    }

    /// Returns the event for the start of the command.
    pub fn started(self: &Arc<Self>, command: &[u8]) -> EventKind {
        EventKind::CommandStarted { command: Arc::clone(self), document: self.shown(command) }
    }

    /// Returns the event for an answer with `ok: 1`.
    pub fn succeeded(self: &Arc<Self>, duration: Duration, reply: &[u8]) -> EventKind {
        EventKind::CommandSucceeded {
            command: Arc::clone(self),
            duration,
            reply: self.shown(reply),
        }
    }

    /// Returns the event for a failure of the command.
    pub fn failed(self: &Arc<Self>, duration: Duration, failure: Error) -> EventKind {
        EventKind::CommandFailed {
            command: Arc::clone(self),
            duration,
            // Only errors from the server are redacted (Command Logging and Monitoring).
            failure: if self.is_sensitive && failure.kind() == ErrorKind::Command {
                redacted(&failure)
            } else {
                failure.without_context()
            },
        }
    }

    /// Returns the document to show in an event; empty if the command is sensitive.
    fn shown(&self, document: &[u8]) -> SharedDocument {
        const EMPTY: &[u8] = &[5, 0, 0, 0, 0];
        if self.is_sensitive { EMPTY } else { document }.into()
    }
}

/// Returns the name of a command, and whether it is sensitive (Command Logging and Monitoring:
/// "Security").
fn classify(command: &[u8]) -> (&str, bool) {
    const ALWAYS: [&str; 9] = [
        "authenticate",
        "saslStart",
        "saslContinue",
        "getnonce",
        "createUser",
        "updateUser",
        "copydbgetnonce",
        "copydbsaslstart",
        "copydb",
    ];
    let (mut name, mut speculates) = (None, false);
    let read = Fields::of(command).and_then(|mut fields| {
        fields.try_for_each(|field| {
            let key = field?.key();
            name.get_or_insert(key);
            speculates |= key == "speculativeAuthenticate";
            Ok(())
        })
    });
    let name = name.unwrap_or_default();
    let is = |own: &str| name.eq_ignore_ascii_case(own);
    let is_hello = is("hello") || is("isMaster");
    // A malformed command may contain anything, so it is treated as sensitive.
    let is_sensitive =
        read.is_err() || ALWAYS.iter().any(|own| is(own)) || (is_hello && speculates);
    (name, is_sensitive)
}

/// Returns the error without its message, reply and source, which may quote the command.
fn redacted(error: &Error) -> Error {
    Error::new(error.kind(), error.stage(), "REDACTED")
        .with_code(error.code())
        .with_code_name(error.code_name())
        .with_labels(error.labels())
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::{document::DocumentWriter, error::Stage};

    fn info(command: &[u8]) -> Arc<CommandInfo> {
        let server = (ServerId::from_u64(1), ServerAddress::new("a", 27017));
        let connection = ConnectionId { driver: 3, server: Some(4) };
        Arc::new(CommandInfo::new(command, "db", 7, server, connection))
    }

    fn command(name: &str, more: &str) -> Box<[u8]> {
        let mut document = DocumentWriter::new();
        document.int32(name, 1);
        document.int32(more, 1);
        document.finish().into()
    }

    #[test]
    fn sensitive_commands_are_redacted_and_others_are_not() {
        let check = |name: &str, more: &str, is_sensitive: bool| {
            let document = command(name, more);
            let info = info(&document);
            assert_eq!(&*info.name, name);
            assert_eq!(info.is_sensitive, is_sensitive, "{name} {more}");
            let empty = DocumentWriter::new().finish();
            let shown = if is_sensitive { &empty[..] } else { &document };
            let (started, duration) = (info.started(&document), Duration::ZERO);
            let text = if is_sensitive { "{}" } else { &*format!(r#"{{"{name}":1,"{more}":1}}"#) };
            assert!(
                format!("{started:?}").ends_with(&format!("document: {text} }}")),
                "{started:?}"
            );
            assert!(
                matches!(started, EventKind::CommandStarted { document, .. } if *document == *shown)
            );
            let succeeded = info.succeeded(duration, &document);
            assert!(
                matches!(succeeded, EventKind::CommandSucceeded { reply, .. } if *reply == *shown)
            );
            let error = Error::auth("wrong password").with_code(18).with_reply(&*document);
            let EventKind::CommandFailed { failure, .. } = info.failed(duration, error) else {
                panic!("another event");
            };
            assert_eq!(failure.code(), Some(18));
            assert_eq!(failure.message() == "REDACTED", is_sensitive);
            assert_eq!(failure.reply(), None);
            let broken = Error::new(ErrorKind::Network, Stage::Operation, "closed");
            let failed = info.failed(duration, broken);
            assert!(
                matches!(failed, EventKind::CommandFailed { failure, .. } if failure.message() == "closed")
            );
        };
        let names = "authenticate saslStart saslContinue getnonce createUser updateUser \
                     copydbgetnonce copydbsaslstart copydb SASLSTART";
        for name in names.split(' ') {
            check(name, "x", true);
        }
        for hello in ["hello", "isMaster", "ismaster"] {
            check(hello, "speculativeAuthenticate", true);
            check(hello, "helloOk", false);
        }
        check("find", "speculativeAuthenticate", false);
        check("insert", "documents", false);
    }

    #[test]
    fn a_malformed_command_is_redacted() {
        assert!(info(&[1, 2, 3]).is_sensitive);
    }
}
