use crate::{address::ServerAddress, ids::ServerId};

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
