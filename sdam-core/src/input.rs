//! The inputs of the topology machine, and their recorded form.

use alloc::boxed::Box;

use crate::{
    address::ServerAddress,
    document::SharedDocument,
    error::Error,
    hello::Hello,
    ids::{Generation, ObjectId, ServerId},
    report::ErrorReport,
    server::Rtt,
};

/// An input of the topology machine.
#[derive(Debug)]
pub enum Input<'a> {
    /// Opens the topology: publishes the opening events and opens the seeds. Repetitions are
    /// ignored.
    Open,
    /// A check has ended.
    Checked {
        /// The id of the checked server.
        server: ServerId,
        /// The reply or the error.
        outcome: Result<Hello, Error>,
        /// The server's round-trip times after the check; present if the check succeeded.
        rtt: Option<Rtt>,
    },
    /// A pooled connection was opened and its handshake was answered.
    ///
    /// Behind a load balancer, the connection is counted for the service in the reply, and takes
    /// the generation of that [service](crate::machine::TopologyMachine::generation).
    Handshake {
        /// The id of the connection's server.
        server: ServerId,
        /// The generation under which the connection was opened; ignored behind a load balancer.
        generation: Generation,
        /// The reply.
        hello: Hello,
        /// The server's round-trip times, as measured by its monitor.
        rtt: Option<Rtt>,
    },
    /// A connection to a service behind a load balancer was closed, after its handshake had been
    /// passed as an input. The service is forgotten with its last connection (CMAP: "Load Balancer
    /// Mode").
    ServiceConnectionClosed {
        /// The load balancer.
        server: ServerId,
        /// The service.
        service: ObjectId,
        /// The generation of the connection.
        generation: Generation,
    },
    /// The hosts from a look-up of the SRV record, already validated and
    /// [sampled](crate::topology::TopologyDescription::sample_hosts).
    Hosts(&'a [ServerAddress]),
    /// The check of a server has ended by a fault of this program: its transport has panicked, or
    /// its task was dropped. The next check, if there is one, comes no sooner than
    /// `minHeartbeatFrequencyMS` from now.
    MonitorDied {
        /// The id of the monitored server.
        server: ServerId,
    },
    /// Closes the topology: removes every server, publishes the closing events and ignores all
    /// later inputs.
    Close,
}

/// An input of a topology, recorded for replay.
///
/// Together with the replies in heartbeat events, the inputs completely determine the state of a
/// topology, so that a recording of both can be replayed exactly.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all_fields = "camelCase", deny_unknown_fields)
)]
pub enum RecordedInput {
    /// [`Input::Open`]
    Open,
    /// [`Input::Checked`]
    Checked {
        /// The id of the checked server.
        server: ServerId,
        /// The error; `None` for a success, whose reply is in the server's latest
        /// `ServerHeartbeatSucceeded`.
        error: Option<Error>,
        /// The server's round-trip times after the check.
        rtt: Option<Rtt>,
    },
    /// [`Input::Handshake`]
    Handshake {
        /// The id of the connection's server.
        server: ServerId,
        /// The generation under which the connection was opened.
        generation: Generation,
        /// The reply, a BSON document.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::base64"))]
        reply: SharedDocument,
        /// The server's round-trip times at that moment.
        rtt: Option<Rtt>,
    },
    /// [`Input::ServiceConnectionClosed`]
    ServiceConnectionClosed {
        /// The load balancer.
        server: ServerId,
        /// The service to which the connection led.
        #[cfg_attr(feature = "serde", serde(rename = "serviceId"))]
        service: ObjectId,
        /// The generation of the connection.
        generation: Generation,
    },
    /// An [`ErrorReport`]
    #[cfg_attr(feature = "serde", serde(rename = "AppError"))]
    Error {
        /// The id of the server.
        server: ServerId,
        /// The report.
        #[cfg_attr(feature = "serde", serde(rename = "error"))]
        report: ErrorReport,
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
    /// Records `input`. Returns `None` for a handshake, because its reply is already parsed; record
    /// it as [`Handshake`](Self::Handshake).
    pub fn of(input: &Input<'_>) -> Option<Self> {
        Some(match input {
            Input::Open => Self::Open,
            Input::Checked {
                server,
                outcome,
                rtt,
            } => Self::Checked {
                server: *server,
                error: outcome.as_ref().err().cloned(),
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
    pub fn of_error(server: ServerId, report: &ErrorReport) -> Self {
        Self::Error {
            server,
            report: report.clone(),
        }
    }
}
