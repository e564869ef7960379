//! The kinds and stages of errors, the effects of reported errors on the topology, the remedies,
//! the errors of pools, and the errors after which an operation may be run again.

use alloc::{boxed::Box, format};

use super::{
    Error, REAUTHENTICATION_REQUIRED, RETRYABLE_ERROR, RETRYABLE_WRITE_ERROR,
    SYSTEM_OVERLOADED_ERROR,
};
use crate::address::ServerAddress;

/// The kind of an [`Error`](super::Error).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ErrorKind {
    /// The check was cancelled before it had an outcome: an operation found the server's
    /// connections broken, or the server left the topology. This kind appears only in heartbeat
    /// events.
    Cancelled,
    /// The server answered `ok: 0`, or an operation's reply contained an error. At
    /// [`Stage::Auth`], this kind also means that the client cannot
    /// authenticate, or rejects the server's reply.
    Command,
    /// The server's monitor, or an attempt to connect, ended unexpectedly.
    Internal,
    /// A clear of the pool interrupted the connection while it was in use or being established
    /// ([`interrupt_in_use`](crate::pool::PoolClear::interrupt_in_use)).
    Interrupted,
    /// The configuration or the command is invalid, so nothing was sent. The source of an
    /// invalid configuration is a [`ConfigError`](crate::options::ConfigError).
    Invalid,
    /// The connection could not be opened or broke.
    Network,
    /// The pool was cleared, so it is paused or the waiting check-out was cancelled
    /// (PoolClearedError).
    #[doc(alias = "PoolClearedError")]
    PoolCleared,
    /// The pool is closed (PoolClosedError).
    #[doc(alias = "PoolClosedError")]
    PoolClosed,
    /// The pool has been paused since it was created: no check of its server has succeeded yet.
    PoolNotReady,
    /// The peer's answer is unacceptable: malformed, oversized or unexpected. At
    /// [`Stage::Tls`], this kind means that the certificate or the host name
    /// is not trusted.
    Protocol,
    /// The runtime ended before the pool, the client or the topology was closed.
    RuntimeShutDown,
    /// No server could be selected, so the command was not sent. The source contains the
    /// reason.
    Selection,
    /// No suitable server appeared in time, so the command was not sent. The source contains
    /// the diagnostics.
    SelectionTimeout,
    /// The replica set name that the server reports differs from the configured one.
    SetName,
    /// A newer primary is known (SDAM: "primary marked stale").
    StalePrimary,
    /// The time limit of the operation has passed, or is too short for a round trip to the
    /// server. The command was not sent.
    TimeLimit,
    /// Opening the connection or waiting for the reply took longer than allowed.
    Timeout,
    /// No connection in the pool became available in time (WaitQueueTimeoutError).
    #[doc(alias = "WaitQueueTimeoutError")]
    WaitQueueTimeout,
    /// The server ran the command, but some of its writes failed, or their write concern could
    /// not be met. The error has the code and the labels of the first of these errors, and the
    /// [reply](super::Error::reply) with all of them.
    #[doc(alias("BulkWriteError", "WriteConcernError"))]
    Write,
}

impl ErrorKind {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The stage that a connection to a server had reached when an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Stage {
    /// Waiting for a connection from the pool.
    CheckOut,
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

impl Stage {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Stage {
    /// Returns whether the connection had not been established yet (SDAM: "before handshake
    /// completes"). The handshake comprises hello and authentication.
    #[doc(alias = "beforeHandshakeCompletes")]
    pub(crate) fn is_before_handshake_completes(self) -> bool {
        self < Self::Operation
    }

    /// Returns whether hello had not been answered yet. In that case, the server, or the service
    /// behind a load balancer, is unknown.
    pub fn is_before_hello_completes(self) -> bool {
        self <= Self::Hello
    }
}

/// The effect of a reported error on the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorOutcome {
    /// The server is no longer part of the topology, or the topology is closed.
    UnknownServer,
    /// The connection's generation or the error's topology version is outdated.
    Stale,
    /// The error says nothing about the server's state.
    Irrelevant,
    /// The server was marked Unknown, and its pool was not cleared.
    MarkedUnknown,
    /// The server was marked Unknown and its pool was cleared.
    Cleared,
    /// The pool of the service behind the load balancer was cleared.
    ServiceCleared,
}

impl Error {
    /// Returns advice for the user, derived from the kind and the stage. The error's message may be
    /// more specific.
    pub fn remedy(&self) -> Option<&'static str> {
        if self.is_overload() {
            return Some("the server is overloaded: run fewer operations at once");
        }
        if let Some(remedy) = self.code().and_then(of_code) {
            return Some(remedy);
        }
        match self.kind() {
            ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Protocol => self.of_connection(),
            ErrorKind::Command if self.stage() == Stage::Auth => Some(CREDENTIALS),
            ErrorKind::SetName => Some("correct `replicaSet`, or remove the server from the seeds"),
            ErrorKind::Interrupted | ErrorKind::PoolCleared | ErrorKind::PoolNotReady => {
                Some("run the operation again, if it may run twice")
            }
            ErrorKind::PoolClosed => Some("keep the client open until its operations have ended"),
            ErrorKind::RuntimeShutDown => Some("keep the runtime until the client is closed"),
            ErrorKind::WaitQueueTimeout => {
                Some("run fewer operations at once, or raise `maxPoolSize` or `waitQueueTimeoutMS`")
            }
            ErrorKind::TimeLimit => {
                Some("raise the time limit, or find out why the server is slow")
            }
            _ => None,
        }
    }

    fn of_connection(&self) -> Option<&'static str> {
        Some(match (self.stage(), self.kind()) {
            (Stage::Dns, _) => "check the host name and the name servers of this machine",
            (Stage::Connect, ErrorKind::Timeout) => {
                "check that no firewall drops the packets, or raise `connectTimeoutMS`"
            }
            (Stage::Connect, _) => "check that the server runs and listens at this address",
            (Stage::Proxy, _) => "check the address of the proxy, its user and its password",
            (Stage::Tls, ErrorKind::Protocol) => {
                "check the certificate, its authority (`tlsCAFile`) and the host name"
            }
            (Stage::Tls, _) => "check that the server uses TLS on this port",
            (Stage::Hello, ErrorKind::Protocol) => "check that a MongoDB server listens there",
            (Stage::Hello, _) => "check that the server responds, and that `tls` fits it",
            (Stage::Operation, ErrorKind::Timeout) => {
                "raise the time limit, or find out why the server is slow"
            }
            (Stage::CheckOut | Stage::Auth | Stage::Operation, _) => return None,
        })
    }
}

const CREDENTIALS: &str = "check the user, the password, `authSource` and `authMechanism`";

/// Returns the remedy for an error with this code from a server.
fn of_code(code: i32) -> Option<&'static str> {
    Some(match code {
        // AuthenticationFailed
        18 => CREDENTIALS,
        // Unauthorized
        13 => "log in, or grant the user a role that allows the command",
        // LoadBalancerSupportMismatch
        354 => {
            "set `loadBalanced=true` if the server is behind a load balancer, and remove it if not"
        }
        REAUTHENTICATION_REQUIRED => "log in again: the credentials of the connection have expired",
        // AtlasError
        8000 => "check the user and the password at the hosting service, and what its plan allows",
        // ShutdownInProgress, PrimarySteppedDown, InterruptedAtShutdown, InterruptedDueToReplStateChange
        91 | 189 | 11600 | 11602 => {
            "the server is shutting down or is no longer primary: run the operation again, if it may \
             run twice"
        }
        // NotWritablePrimary
        10107 => {
            "let the client find the primary (without `directConnection=true`), and run the \
             operation again"
        }
        // NotPrimaryNoSecondaryOk
        13435 => {
            "read with a `readPreference` that allows secondaries, or let the client find the \
             primary (without `directConnection=true`)"
        }
        // NotPrimaryOrSecondary
        13436 => {
            "wait until the member is primary or secondary again, or look at its state in \
             rs.status()"
        }
        _ => return None,
    })
}

/// Errors of connection pools (CMAP: "Connection Pool Errors").
///
/// The messages are those of the specification, capitalized as in its tests. The errors say nothing
/// about the server, so they are never reported to the topology. They carry no label: pools do not
/// know the option `retryWrites`, so a client with this option adds `RetryableWriteError` to the
/// retryable errors (Retryable Writes: "RetryableWriteError Labels").
impl Error {
    /// Creates the error for check-outs from a pool that was cleared because of `cause`, which
    /// becomes the source.
    pub fn pool_cleared(address: &ServerAddress, cause: &Self) -> Self {
        let text = format!(
            "Connection pool for {address} was cleared because another operation failed with"
        );
        Self::of_pool(ErrorKind::PoolCleared, address, text).with_source(cause.clone())
    }

    /// Creates the error for check-outs from a pool that has not been ready yet.
    pub fn pool_not_ready(address: &ServerAddress) -> Self {
        let text = format!("Connection pool for {address} is not ready yet");
        Self::of_pool(ErrorKind::PoolNotReady, address, text)
    }

    /// Creates the error for check-outs from a closed pool.
    pub fn pool_closed(address: &ServerAddress) -> Self {
        let text = "Attempted to check out a connection from closed connection pool";
        Self::of_pool(ErrorKind::PoolClosed, address, text)
    }

    /// Creates the error for a connection that became stale while it was opened, because the pool
    /// was cleared.
    pub fn stale_connection(address: &ServerAddress) -> Self {
        let text =
            format!("Connection pool for {address} was cleared while a connection was opened");
        Self::of_pool(ErrorKind::PoolCleared, address, text)
    }

    /// Creates the error for a connection that was interrupted because the server's monitor got no
    /// answer ([`interrupt_in_use`](crate::pool::PoolClear::interrupt_in_use)).
    pub fn interrupted(address: &ServerAddress) -> Self {
        let text = format!("Connection to {address} interrupted due to server monitor timeout");
        Self::of_pool(ErrorKind::Interrupted, address, text)
    }

    /// Creates the error for a check-out that has waited too long.
    pub fn wait_queue_timeout(address: &ServerAddress) -> Self {
        let text = "Timed out while checking out a connection from connection pool";
        Self::of_pool(ErrorKind::WaitQueueTimeout, address, text)
    }

    /// Creates the error for a check-out that has waited too long for a load balancer's pool.
    /// Cursors and transactions pin connections, so the message states how many connections are in
    /// use for each purpose (Load Balancers: "Wait Queue Timeout Errors").
    pub fn wait_queue_timeout_pinned(
        address: &ServerAddress,
        max_pool_size: u32,
        cursors: u32,
        transactions: u32,
        others: u32,
    ) -> Self {
        let text = format!(
            "Timeout waiting for connection from the connection pool. maxPoolSize: \
             {max_pool_size}, connections in use by cursors: {cursors}, connections in use by \
             transactions: {transactions}, connections in use by other operations: {others}"
        );
        Self::of_pool(ErrorKind::WaitQueueTimeout, address, text)
    }

    /// Creates the error for a check-out from a pool whose runtime has ended.
    pub fn pool_shut_down(address: &ServerAddress) -> Self {
        let text = "the runtime of the connection pool has shut down";
        Self::of_pool(ErrorKind::RuntimeShutDown, address, text)
    }

    /// Returns whether this is a temporary error from a pool, after which a retryable operation is
    /// retried.
    pub fn is_retryable_pool(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::PoolCleared | ErrorKind::PoolNotReady | ErrorKind::Interrupted
        )
    }

    fn of_pool(kind: ErrorKind, address: &ServerAddress, text: impl Into<Box<str>>) -> Self {
        let stage = match kind {
            ErrorKind::Interrupted => Stage::Operation,
            _ => Stage::CheckOut,
        };
        Self::new(kind, stage, text).with_address(address)
    }
}

/// The codes after which a write may be retried if the server is too old to label errors (Retryable
/// Writes: "RetryableWriteError Labels").
pub(super) const WRITE_CODES: [i32; 12] =
    [6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];

/// The code after which only reads may be retried (Retryable Reads: "Retryable Error").
const READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET: i32 = 134;

/// The wire version of MongoDB 4.4, the first version whose servers label their errors.
const LABELS_WIRE_VERSION: i32 = 9;

impl Error {
    /// Returns whether a read may be run again after this error (Retryable Reads: "Retryable
    /// Error"): the pool was not usable, the connection broke, or the server has changed its state
    /// or cannot reach another server.
    ///
    /// The options, the number of attempts and the time limit decide whether the read is actually
    /// retried.
    #[doc(alias = "retryReads")]
    pub fn is_retryable_read(&self) -> bool {
        self.is_network()
            || self.is_retryable_pool()
            || self.has_code(&WRITE_CODES)
            || self.has_code(&[READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET])
    }

    /// Returns whether a write with a [transaction](crate::session::Transaction) number may be run
    /// again after this error, on a server whose greatest wire version is `max_wire_version`
    /// (Retryable Writes: "RetryableWriteError Labels").
    ///
    /// True if the pool was not usable, if the connection broke, or if the server has labelled the
    /// error. Servers before 4.4 do not label errors, so the error's code decides in their case.
    /// However, a write must not be run again after a write concern error from an old mongos.
    /// The caller must check this, because this method does not know the type of the server.
    ///
    /// A write without a transaction number could take effect twice, so it is run again only after
    /// an [overload](Self::is_retryable_overload), or if it was not sent.
    #[doc(alias("retryWrites", "RetryableWriteError"))]
    pub fn is_retryable_write(&self, max_wire_version: i32) -> bool {
        let is_old = max_wire_version < LABELS_WIRE_VERSION;
        self.is_network()
            || self.is_retryable_pool()
            || self.has_label(RETRYABLE_WRITE_ERROR)
            || is_old && self.has_code(&WRITE_CODES)
    }

    /// Returns whether any command may be run again after this error and a backoff: the server was
    /// overloaded and did not begin the command (Client Backpressure: "Overload retry policy").
    pub fn is_retryable_overload(&self) -> bool {
        self.has_label(SYSTEM_OVERLOADED_ERROR) && self.has_label(RETRYABLE_ERROR)
    }

    fn has_code(&self, codes: &[i32]) -> bool {
        self.kind() == ErrorKind::Command && self.code().is_some_and(|code| codes.contains(&code))
    }
}

/// A change of a server's state that an error reports (SDAM: "not writable primary" and
/// "node is recovering" errors).
#[doc(alias("isNotWritablePrimary", "isRecovering"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub(crate) enum StateChange {
    /// The server is no longer the primary.
    NotWritablePrimary,
    /// The server is recovering, or its replication state is changing.
    NodeIsRecovering,
    /// The server is recovering because it is shutting down.
    ShuttingDown,
}

impl StateChange {
    /// Classifies an error by `code` if there is one, and otherwise by `message` (SDAM: "the code
    /// takes precedence").
    pub(crate) fn classify(code: Option<i32>, message: &str) -> Option<Self> {
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
