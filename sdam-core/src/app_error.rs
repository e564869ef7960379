//! What operations and connection pools report about a server (SDAM: "Error handling").

use crate::{
    error::{ErrorKind, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR, Stage},
    ids::{Generation, ObjectId},
};

/// An error that a pooled connection met, in the words of whoever met it.
#[derive(Clone, Copy, Debug)]
pub struct AppError<'a> {
    /// The generation the connection was opened under; for a connection that could not be opened,
    /// the pool's generation when the attempt began.
    pub generation: Generation,
    /// The service behind a load balancer that the connection belongs to; else `None`.
    pub service_id: Option<ObjectId>,
    /// How far the connection had come.
    pub phase: Phase,
    /// What happened.
    pub cause: Cause<'a>,
    /// The `maxWireVersion` of the connection's own handshake; 0 if it never got that far.
    pub max_wire_version: i32,
}

/// How far a pooled connection had come when its error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// TCP, TLS and hello.
    BeforeHello,
    /// After hello, during authentication.
    BeforeHandshake,
    /// The connection is established.
    AfterHandshake,
}

/// What happened to a pooled connection.
///
/// What the pool itself refuses is no such thing, see [`PoolError`](crate::pool::PoolError).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Cause<'a> {
    /// The connection could not be opened, broke or timed out.
    ///
    /// [`of_connection`](Self::of_connection) says which labels the pool gives it.
    Network {
        /// Whether it was a time-out.
        timeout: bool,
        /// The labels the pool gave it.
        labels: &'a [&'a str],
        /// The text for people.
        message: &'a str,
    },
    /// The peer's answer could not be accepted: broken framing, a message longer than the connection
    /// accepts, a reply out of turn, a certificate that is not to be trusted.
    ///
    /// SDAM speaks of network errors only, so on an established connection this says nothing about
    /// the server: the connection alone is closed. A connection that was not established because of
    /// it marks the server Unknown and clears the pool, as every failure without labels does.
    Protocol {
        /// The text for people.
        message: &'a str,
    },
    /// The BSON document the server answered with, whatever it says; it is searched for errors that
    /// matter here (`ok: 0`, `writeConcernError`, `$err`, never `writeErrors`).
    Reply(&'a [u8]),
    /// Authentication failed, by any means.
    Auth {
        /// The text for people.
        message: &'a str,
    },
}

impl<'a> Cause<'a> {
    /// The labels of an I/O error or time-out while a connection is opened: an overloaded server
    /// keeps its place in the topology, and the operation may be tried again.
    pub const OVERLOAD_LABELS: &'static [&'static str] =
        &[SYSTEM_OVERLOADED_ERROR, RETRYABLE_ERROR];

    /// What a pool reports of a connection that failed by an error of this kind at this stage, when
    /// it had come as far as `phase` (SDAM: "Connection Pool Backpressure").
    ///
    /// | error | cause | labels |
    /// | --- | --- | --- |
    /// | [`Network`](ErrorKind::Network), [`Timeout`](ErrorKind::Timeout) | [`Network`](Self::Network) | [`OVERLOAD_LABELS`](Self::OVERLOAD_LABELS) in [`Phase::BeforeHello`], except of [`Stage::Dns`] and [`Stage::Proxy`] |
    /// | any other | [`Protocol`](Self::Protocol) | none |
    ///
    /// So a look-up, a proxy or a certificate that fails is no sign of overload, and neither is
    /// whatever happens during authentication and later; an end of file within the TLS or the hello
    /// exchange is one.
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

    /// The labels that the pool gives the error; what a server has sent has its own.
    pub fn labels(&self) -> &'a [&'a str] {
        match *self {
            Self::Network { labels, .. } => labels,
            Self::Protocol { .. } | Self::Reply(_) | Self::Auth { .. } => &[],
        }
    }
}

/// What became of a reported error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorOutcome {
    /// The server is no part of the topology any more, or the topology is closed.
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
