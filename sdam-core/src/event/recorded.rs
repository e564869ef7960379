use alloc::{boxed::Box, sync::Arc};

use crate::{
    address::ServerAddress,
    app_error::AppError,
    error::ServerError,
    ids::{Generation, ObjectId, ServerId},
    machine::Input,
    server::Rtt,
};

/// An input of a topology, recorded for replay.
///
/// Together with the replies in heartbeat events, the inputs determine the state of a topology
/// completely, so a recording of both can be replayed exactly.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RecordedInput {
    /// [`Input::Open`]
    Open,
    /// [`Input::Checked`]
    Checked {
        /// The id of the checked server.
        server: ServerId,
        /// The error. `None` for a success, whose reply is that of the server's latest
        /// `ServerHeartbeatSucceeded`.
        error: Option<Arc<ServerError>>,
        /// The server's round-trip times after the check.
        rtt: Option<Rtt>,
    },
    /// [`Input::Handshake`]
    Handshake {
        /// The id of the connection's server.
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
        /// The id of the server.
        server: ServerId,
        /// The error.
        error: AppError<'static>,
    },
    /// [`Input::Hosts`]
    Hosts(Box<[ServerAddress]>),
    /// [`Input::MonitorDied`]
    MonitorDied {
        /// The id of the monitored server.
        server: ServerId,
    },
    /// [`Input::Close`]
    Close,
}

impl RecordedInput {
    /// Records `input`. Returns `None` for a handshake, because its reply is already parsed;
    /// record that as [`Handshake`](Self::Handshake).
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

    /// Records an error of `server`.
    pub fn of_error(server: ServerId, error: &AppError<'_>) -> Self {
        Self::AppError {
            server,
            error: error.clone().into_owned(),
        }
    }
}
