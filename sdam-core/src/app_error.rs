//! Errors of servers that operations and connection pools report (SDAM: "Error handling").

use crate::{
    error::{ErrorKind, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR, Stage},
    ids::{Generation, ObjectId},
};

/// An error on a pooled connection, as the operation or the pool reports it.
#[derive(Clone, Copy, Debug)]
pub struct AppError<'a> {
    /// The generation the connection was opened under; for a connection that could not be opened,
    /// the pool's generation when the attempt began.
    pub generation: Generation,
    /// The service behind a load balancer that the connection belongs to; else `None`.
    pub service_id: Option<ObjectId>,
    /// How far the connection had come.
    pub phase: Phase,
    /// The cause of the error.
    pub cause: Cause<'a>,
    /// The `maxWireVersion` of the connection's own handshake; 0 if it never got that far.
    pub max_wire_version: i32,
}

/// How far a pooled connection had come when its error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// During TCP, TLS or hello.
    BeforeHello,
    /// After hello, during authentication.
    BeforeHandshake,
    /// The connection is established.
    AfterHandshake,
}

/// The cause of an error on a pooled connection.
///
/// Check-out errors are not application errors, see [`PoolError`](crate::pool::PoolError).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Cause<'a> {
    /// The connection could not be opened, broke or timed out.
    ///
    /// [`of_connection`](Self::of_connection) defines which labels the pool adds.
    Network {
        /// Whether it was a time-out.
        timeout: bool,
        /// The labels that the pool added.
        labels: &'a [&'a str],
        /// The human-readable message.
        message: &'a str,
    },
    /// The peer's answer was not acceptable: broken framing, a message longer than the connection
    /// accepts, an unexpected reply or an untrusted certificate.
    ///
    /// SDAM covers network errors only, so on an established connection this does not affect the
    /// server: only the connection is closed. While the connection is being established, it marks
    /// the server Unknown and clears the pool, as every failure without labels does.
    Protocol {
        /// The human-readable message.
        message: &'a str,
    },
    /// The BSON document of the server's reply, successful or not. It is searched for errors that
    /// matter here (`ok: 0`, `writeConcernError`, `$err`, never `writeErrors`).
    Reply(&'a [u8]),
    /// Authentication failed, with any mechanism.
    Auth {
        /// The human-readable message.
        message: &'a str,
    },
}

impl<'a> Cause<'a> {
    /// The labels of an I/O error or time-out while a connection is opened: an overloaded server
    /// is not marked Unknown by default, and the operation may be retried.
    pub const OVERLOAD_LABELS: &'static [&'static str] =
        &[SYSTEM_OVERLOADED_ERROR, RETRYABLE_ERROR];

    /// Returns the cause that a pool reports for a connection that failed in `phase` with an error
    /// of this kind at this stage (SDAM: "Connection Pool Backpressure").
    ///
    /// | error | cause | labels |
    /// | --- | --- | --- |
    /// | [`Network`](ErrorKind::Network), [`Timeout`](ErrorKind::Timeout) | [`Network`](Self::Network) | [`OVERLOAD_LABELS`](Self::OVERLOAD_LABELS) in [`Phase::BeforeHello`], except of [`Stage::Dns`] and [`Stage::Proxy`] |
    /// | any other | [`Protocol`](Self::Protocol) | none |
    ///
    /// A failed look-up, proxy or certificate is not a sign of overload, and neither is any error
    /// during authentication or later. An end of file during the TLS or hello exchange is one.
    pub fn of_connection(phase: Phase, kind: ErrorKind, stage: Stage, message: &'a str) -> Self {
        let timeout = match kind {
            ErrorKind::Network => false,
            ErrorKind::Timeout => true,
            _ => return Self::Protocol { message },
        };
        let overload = phase == Phase::BeforeHello && !matches!(stage, Stage::Dns | Stage::Proxy);
        Self::Network {
            timeout,
            labels: if overload { Self::OVERLOAD_LABELS } else { &[] },
            message,
        }
    }

    /// Returns the labels that the pool added; a reply carries the labels of the server.
    pub fn labels(&self) -> &'a [&'a str] {
        match *self {
            Self::Network { labels, .. } => labels,
            Self::Protocol { .. } | Self::Reply(_) | Self::Auth { .. } => &[],
        }
    }
}

/// The effect of a reported error on the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorOutcome {
    /// The server is no longer part of the topology, or the topology is closed.
    UnknownServer,
    /// The connection's generation or the error's topology version is older than what is known.
    Stale,
    /// The error says nothing about the server's state.
    Irrelevant,
    /// The server was marked Unknown and its pool was left alone.
    MarkedUnknown,
    /// The server was marked Unknown and its pool was cleared.
    Cleared,
    /// The pool of the service behind the load balancer was cleared.
    ServiceCleared,
}
