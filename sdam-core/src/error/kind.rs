//! Kinds of errors.

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
    /// [`Stage::Auth`](super::Stage::Auth), this kind also means that the client cannot
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
    /// [`Stage::Tls`](super::Stage::Tls), this kind means that the certificate or the host name
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
