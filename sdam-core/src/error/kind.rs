//! The kinds and stages of errors, the effects of reported ones, and the remedies.

use super::{Error, REAUTHENTICATION_REQUIRED};

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
