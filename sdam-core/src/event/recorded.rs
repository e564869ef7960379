use alloc::{boxed::Box, sync::Arc};

use crate::{
    address::ServerAddress,
    app_error::{AppError, Cause, Phase},
    error::ServerError,
    ids::{Generation, ObjectId, ServerId},
    machine::Input,
    server::Rtt,
};

/// What a topology was told, kept so that it can be told again.
///
/// Together with the replies in heartbeat events this is everything that the state of a topology
/// depends on, so a recording of both can be replayed exactly.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RecordedInput {
    /// [`Input::Open`]
    Open,
    /// [`Input::Checked`]
    Checked {
        /// The incarnation that was checked.
        server: ServerId,
        /// What went wrong. `None` for a success: then the reply is the one of the server's latest
        /// `ServerHeartbeatSucceeded`.
        error: Option<Arc<ServerError>>,
        /// The server's round-trip times after the check.
        rtt: Option<Rtt>,
    },
    /// [`Input::Handshake`]
    Handshake {
        /// The incarnation the connection belongs to.
        server: ServerId,
        /// The generation the connection was opened under.
        generation: Generation,
        /// The reply, a BSON document.
        reply: Arc<[u8]>,
        /// The server's round-trip times at that moment.
        rtt: Option<Rtt>,
    },
    /// [`Input::ServiceConnectionClosed`]
    ServiceConnectionClosed {
        /// The load balancer.
        server: ServerId,
        /// The service the connection led to.
        service: ObjectId,
        /// The generation of the connection.
        generation: Generation,
    },
    /// An [`AppError`]
    AppError {
        /// The incarnation it belongs to.
        server: ServerId,
        /// The error.
        error: RecordedError,
    },
    /// [`Input::Hosts`]
    Hosts(Box<[ServerAddress]>),
    /// [`Input::MonitorDied`]
    MonitorDied {
        /// The incarnation it watched.
        server: ServerId,
    },
    /// [`Input::Close`]
    Close,
}

/// An [`AppError`] that owns what it speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedError {
    /// See [`AppError::generation`].
    pub generation: Generation,
    /// See [`AppError::service_id`].
    pub service_id: Option<ObjectId>,
    /// See [`AppError::phase`].
    pub phase: Phase,
    /// See [`AppError::max_wire_version`].
    pub max_wire_version: i32,
    /// See [`AppError::cause`].
    pub cause: RecordedCause,
}

/// A [`Cause`] that owns what it speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordedCause {
    /// [`Cause::Network`]
    Network {
        /// Whether it was a time-out.
        timeout: bool,
        /// The labels the pool gave it.
        labels: Box<[Box<str>]>,
        /// The text for people.
        message: Box<str>,
    },
    /// [`Cause::Protocol`]
    Protocol {
        /// The text for people.
        message: Box<str>,
    },
    /// [`Cause::Reply`]
    Reply(Box<[u8]>),
    /// [`Cause::Auth`]
    Auth {
        /// The text for people.
        message: Box<str>,
    },
}

impl RecordedInput {
    /// Keeps `input`; `None` for a handshake, whose reply is parsed already: that is made of the
    /// variant [`Handshake`](Self::Handshake).
    pub fn of(input: &Input<'_>) -> Option<Self> {
        Some(match input {
            Input::Open => Self::Open,
            Input::Checked {
                server,
                outcome,
                rtt,
            } => Self::Checked {
                server: *server,
                error: outcome.as_ref().err().cloned().map(Arc::new),
                rtt: *rtt,
            },
            Input::Handshake { .. } => return None,
            Input::ServiceConnectionClosed {
                server,
                service,
                generation,
            } => Self::ServiceConnectionClosed {
                server: *server,
                service: *service,
                generation: *generation,
            },
            Input::Hosts(hosts) => Self::Hosts((*hosts).into()),
            Input::MonitorDied { server } => Self::MonitorDied { server: *server },
            Input::Close => Self::Close,
        })
    }

    /// Keeps an error of `server`.
    pub fn of_error(server: ServerId, error: &AppError<'_>) -> Self {
        let cause = match error.cause {
            Cause::Network {
                timeout,
                labels,
                message,
            } => RecordedCause::Network {
                timeout,
                labels: labels.iter().map(|label| (*label).into()).collect(),
                message: message.into(),
            },
            Cause::Protocol { message } => RecordedCause::Protocol {
                message: message.into(),
            },
            Cause::Reply(reply) => RecordedCause::Reply(reply.into()),
            Cause::Auth { message } => RecordedCause::Auth {
                message: message.into(),
            },
        };
        Self::AppError {
            server,
            error: RecordedError {
                generation: error.generation,
                service_id: error.service_id,
                phase: error.phase,
                max_wire_version: error.max_wire_version,
                cause,
            },
        }
    }
}
