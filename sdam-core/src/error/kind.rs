//! Kinds of errors.

/// The kind of an [`Error`](super::Error).
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
    /// The server answered `ok: 0`, or an operation's reply contained an error. At
    /// [`Stage::Auth`](super::Stage::Auth), also: the client cannot authenticate, or rejects the
    /// server's reply.
    Command,
    /// The server's monitor, or an attempt to connect, ended unexpectedly.
    Internal,
    /// A clear of the pool interrupted the connection, in use or being established
    /// ([`interrupt_in_use`](crate::pool::PoolClear::interrupt_in_use)).
    Interrupted,
    /// The configuration or the command is invalid, so nothing was sent. The source of an invalid
    /// configuration is a [`ConfigError`](crate::options::ConfigError).
    Invalid,
    /// The connection could not be opened or broke.
    Network,
    /// The pool was cleared: it is paused, or the waiting check-out was cancelled
    /// (PoolClearedError).
    #[doc(alias = "PoolClearedError")]
    PoolCleared,
    /// The pool is closed (PoolClosedError).
    #[doc(alias = "PoolClosedError")]
    PoolClosed,
    /// The pool has been paused since it was created: no check of its server has succeeded yet.
    PoolNotReady,
    /// The peer's answer is unacceptable: malformed, oversized or unexpected. At
    /// [`Stage::Tls`](super::Stage::Tls): the certificate or the host name is not trusted.
    Protocol,
    /// The runtime ended before the pool, the client or the topology was closed.
    RuntimeShutDown,
    /// No server could be selected for the command, which was not sent. The source says why.
    Selection,
    /// No suitable server appeared in time for the command, which was not sent. The source contains
    /// the diagnostics.
    SelectionTimeout,
    /// The server's replica set name is not the configured one.
    SetName,
    /// A newer primary is known (SDAM: "primary marked stale").
    StalePrimary,
    /// The time limit of the operation has passed, or is too short for a round trip to the server.
    /// The command was not sent.
    TimeLimit,
    /// The connection or reply took longer than allowed.
    Timeout,
    /// No connection of the pool became available in time (WaitQueueTimeoutError).
    #[doc(alias = "WaitQueueTimeoutError")]
    WaitQueueTimeout,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Cancelled,
        Self::Command,
        Self::Internal,
        Self::Interrupted,
        Self::Invalid,
        Self::Network,
        Self::PoolCleared,
        Self::PoolClosed,
        Self::PoolNotReady,
        Self::Protocol,
        Self::RuntimeShutDown,
        Self::Selection,
        Self::SelectionTimeout,
        Self::SetName,
        Self::StalePrimary,
        Self::TimeLimit,
        Self::Timeout,
        Self::WaitQueueTimeout,
    ];

    /// Returns one lower-case word, for counters and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Command => "command",
            Self::Internal => "internal",
            Self::Interrupted => "interrupted",
            Self::Invalid => "invalid",
            Self::Network => "network",
            Self::PoolCleared => "pool_cleared",
            Self::PoolClosed => "pool_closed",
            Self::PoolNotReady => "pool_not_ready",
            Self::Protocol => "protocol",
            Self::RuntimeShutDown => "runtime_shut_down",
            Self::Selection => "selection",
            Self::SelectionTimeout => "selection_timeout",
            Self::SetName => "set_name",
            Self::StalePrimary => "stale_primary",
            Self::TimeLimit => "time_limit",
            Self::Timeout => "timeout",
            Self::WaitQueueTimeout => "wait_queue_timeout",
        }
    }
}
