//! Errors of servers reported by operations and connection pools (SDAM: "Error handling").

use alloc::borrow::Cow;
use core::error::Error;

use crate::{
    error::{ErrorSource, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR, Stage},
    ids::{Generation, ObjectId},
};

/// An error or a reply on a pooled connection, as reported by the operation or the pool.
///
/// A pool reports each of these events of a connection once:
///
/// | event | report | effect on the server |
/// | --- | --- | --- |
/// | the name is not found, or the proxy fails | [`network`](Self::network) or [`timeout`](Self::timeout) at [`Stage::Dns`] or [`Stage::Proxy`] | Unknown, pool cleared, check cancelled |
/// | connecting, TLS or hello breaks or takes too long | `network` or `timeout` at [`Stage::Connect`], [`Stage::Tls`] or [`Stage::Hello`] | none: it may be [overloaded](Self::labels) |
/// | the certificate is not trusted, or the peer does not speak the protocol | [`protocol`](Self::protocol) at `Stage::Tls` or `Stage::Hello` | Unknown, pool cleared, check cancelled |
/// | hello is answered with `ok: 0` | [`reply`](Self::reply) at `Stage::Hello`, or at [`Stage::Auth`] if the connection has a credential | Unknown, pool cleared, check cancelled (at a state change error requested); none if the server is overloaded |
/// | hello is answered with `ok: 1` | no error: [`Input::Handshake`](crate::machine::Input::Handshake) | as after a successful check |
/// | the connection breaks or takes too long during authentication | `network` or `timeout` at [`Stage::Auth`] | Unknown, pool cleared, check cancelled |
/// | authentication fails | [`auth`](Self::auth), or `reply` at `Stage::Auth` | Unknown, pool cleared, check cancelled |
/// | an established connection breaks | `network` at [`Stage::Operation`] | Unknown, pool cleared, check cancelled |
/// | a reply takes longer than the operation allows | `timeout` at `Stage::Operation` | none |
/// | a reply is malformed or too long | `protocol` at `Stage::Operation` | none |
/// | a command is answered, with or without error | `reply` at `Stage::Operation` | a state change error: Unknown, check requested, and at a shutdown the pool is cleared; any other reply: none |
/// | no connection can be checked out | none: see [`PoolError`](crate::pool::PoolError) | none |
/// | the pool itself closes a connection | none, but see [`Input::ServiceConnectionClosed`](crate::machine::Input::ServiceConnectionClosed) | none |
///
/// With [`handshake_errors_mark_unknown`](crate::options::Options::handshake_errors_mark_unknown),
/// overload errors mark the server Unknown, too. Behind a load balancer, the server never becomes
/// Unknown: an error that would clear the pool clears the connections to [its
/// service](Self::with_service). Before the reply to hello, which names the service, errors have no
/// effect. An error whose [generation](Self::generation) is older than the pool's is stale and has
/// no effect.
///
/// ```
/// use sdam_core::{app_error::AppError, error::Stage, ids::Generation};
///
/// // The connection of generation 3 broke after the pool's user had sent a command.
/// let generation = Generation::from_u64(3);
/// let error = AppError::network(generation, Stage::Operation, "connection reset by peer");
/// assert_eq!(error.labels(), [""; 0]);
///
/// // The server accepted the connection and closed it.
/// let error = AppError::network(generation, Stage::Hello, "end of file");
/// assert_eq!(error.labels(), ["SystemOverloadedError", "RetryableError"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct AppError<'a> {
    /// The generation under which the connection was opened. For a connection that could not be
    /// opened, the pool's generation at the start of the attempt.
    pub generation: Generation,
    /// The service behind a load balancer to which the connection belongs, if any.
    pub service_id: Option<ObjectId>,
    /// The stage that the connection had reached.
    pub stage: Stage,
    /// The cause of the error.
    pub cause: Cause<'a>,
    /// The `maxWireVersion` of the connection's own handshake. `None` means at least 8, as in every
    /// supported server.
    pub max_wire_version: Option<i32>,
    /// The reporter's own error; see [`with_source`](Self::with_source).
    #[cfg_attr(feature = "serde", serde(skip))]
    pub source: ErrorSource,
}

/// The cause of an error on a pooled connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "camelCase")
)]
pub enum Cause<'a> {
    /// The connection could not be opened, or it broke. Contains a human-readable message.
    Network(Cow<'a, str>),
    /// Opening the connection, or a reply, took too long. Contains a human-readable message.
    Timeout(Cow<'a, str>),
    /// The peer's answer was unacceptable: broken framing, a message above the connection's size
    /// limit, an unexpected reply or an untrusted certificate. Contains a human-readable message.
    ///
    /// SDAM covers only network errors, so on an established connection this does not affect the
    /// server: only the connection is closed. While the connection is being established, it marks
    /// the server Unknown and clears the pool, like every failure without labels.
    Protocol(Cow<'a, str>),
    /// The BSON document of the server's reply, successful or not. It is searched for relevant
    /// errors (`ok: 0`, `writeConcernError`, `$err`, never `writeErrors`).
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::base64"))]
    Reply(Cow<'a, [u8]>),
    /// Authentication failed, with any mechanism. Contains a human-readable message.
    Auth(Cow<'a, str>),
}

impl<'a> AppError<'a> {
    /// The labels of an I/O error or time-out while a connection is being opened: an overloaded
    /// server is not marked Unknown by default, and the operation may be retried.
    pub const OVERLOAD_LABELS: &'static [&'static str] =
        &[SYSTEM_OVERLOADED_ERROR, RETRYABLE_ERROR];

    /// Creates the error of a connection that could not be opened, or that broke.
    pub fn network(generation: Generation, stage: Stage, message: impl Into<Cow<'a, str>>) -> Self {
        Self::new(generation, stage, Cause::Network(message.into()))
    }

    /// Creates the error of a connection or a reply that took too long.
    pub fn timeout(generation: Generation, stage: Stage, message: impl Into<Cow<'a, str>>) -> Self {
        Self::new(generation, stage, Cause::Timeout(message.into()))
    }

    /// Creates the error of a peer with an [unacceptable](Cause::Protocol) answer.
    pub fn protocol(
        generation: Generation,
        stage: Stage,
        message: impl Into<Cow<'a, str>>,
    ) -> Self {
        Self::new(generation, stage, Cause::Protocol(message.into()))
    }

    /// Creates the report of a reply, the BSON document `reply`, with or without an error in it.
    pub fn reply(generation: Generation, stage: Stage, reply: impl Into<Cow<'a, [u8]>>) -> Self {
        Self::new(generation, stage, Cause::Reply(reply.into()))
    }

    /// Creates the error of a failed authentication.
    pub fn auth(generation: Generation, message: impl Into<Cow<'a, str>>) -> Self {
        Self::new(generation, Stage::Auth, Cause::Auth(message.into()))
    }

    /// Creates the error of a connection of `generation` that had reached `stage`.
    pub fn new(generation: Generation, stage: Stage, cause: Cause<'a>) -> Self {
        Self {
            generation,
            service_id: None,
            stage,
            cause,
            max_wire_version: None,
            source: ErrorSource::default(),
        }
    }

    /// Sets the service behind a load balancer to which the connection belongs: the `serviceId` of
    /// its handshake.
    #[must_use]
    pub fn with_service(mut self, service_id: impl Into<Option<ObjectId>>) -> Self {
        self.service_id = service_id.into();
        self
    }

    /// Sets the `maxWireVersion` of the connection's own handshake. It decides whether a server
    /// that is no longer primary has closed its connections.
    #[must_use]
    pub fn with_max_wire_version(mut self, max_wire_version: i32) -> Self {
        self.max_wire_version = Some(max_wire_version);
        self
    }

    /// Keeps the reporter's own error. [`source_as`](crate::error::ServerError::source_as) then
    /// returns it from the server's description and from
    /// [`PoolClear::cause`](crate::pool::PoolClear).
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = ErrorSource::new(source);
        self
    }

    /// Returns the labels that a pool adds to the error and that the failed operation's error gets
    /// as well (CMAP: "Connection Pool Backpressure").
    ///
    /// They are [`OVERLOAD_LABELS`](Self::OVERLOAD_LABELS) for [`Cause::Network`] and
    /// [`Cause::Timeout`] at [`Stage::Connect`], [`Stage::Tls`] and [`Stage::Hello`], including an
    /// end of file during the TLS or hello exchange; otherwise there are none. A failed look-up,
    /// proxy or certificate is not a sign of overload, and neither is any error during
    /// authentication or later. A reply carries the server's labels.
    pub fn labels(&self) -> &'static [&'static str] {
        let overload = matches!(self.cause, Cause::Network(_) | Cause::Timeout(_))
            && matches!(self.stage, Stage::Connect | Stage::Tls | Stage::Hello);
        if overload { Self::OVERLOAD_LABELS } else { &[] }
    }

    /// Converts to an error that owns its data, so that it can be stored or sent.
    pub fn into_owned(self) -> AppError<'static> {
        AppError {
            cause: self.cause.into_owned(),
            ..self
        }
    }
}

impl Cause<'_> {
    /// Converts to a cause that owns its data.
    pub fn into_owned(self) -> Cause<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Network(message) => Cause::Network(owned(message)),
            Self::Timeout(message) => Cause::Timeout(owned(message)),
            Self::Protocol(message) => Cause::Protocol(owned(message)),
            Self::Auth(message) => Cause::Auth(owned(message)),
            Self::Reply(reply) => Cause::Reply(Cow::Owned(reply.into_owned())),
        }
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
