//! What operations and connection pools report about a server (SDAM: "Error handling").

use crate::ids::{Generation, ObjectId};

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
    /// A pool adds the labels `SystemOverloadedError` and `RetryableError` to I/O errors and
    /// time-outs of the phase [`Phase::BeforeHello`], so that an overloaded server keeps its place
    /// in the topology; it adds none to failures of DNS, of certificates and of proxies (SDAM:
    /// "Connection Pool Backpressure").
    Network {
        /// Whether it was a time-out.
        timeout: bool,
        /// The labels the pool gave it.
        labels: &'a [&'a str],
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
