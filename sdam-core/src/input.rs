//! The inputs of a deployment.

use alloc::boxed::Box;
use core::time::Duration;

use crate::{
    address::ServerAddress,
    error::Error,
    hello::HelloReply,
    ids::{Generation, ObjectId, ServerId},
    options::Srv,
    report::ErrorReport,
    srv::SrvRecords,
    time::Instant,
};

/// An input of [`Deployment::handle`](crate::deployment::Deployment::handle).
///
/// Recordings contain inputs as the feature `serde` serializes them.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all_fields = "camelCase", deny_unknown_fields)
)]
pub enum Input {
    /// Opens the topology: publishes the opening events and opens the seeds. Later repetitions are
    /// ignored.
    Open,
    /// Closes the topology: ends every heartbeat, closes every connection and pool, publishes the
    /// closing events and ignores all later inputs.
    Close,
    /// The deadline of the timer is reached. Answers that have arrived are passed before, so that a
    /// reply that waits in a socket since the host was suspended counts.
    ///
    /// Passed too early it has no effect.
    Due {
        /// The timer.
        timer: Timer,
        /// True if selections are waiting, so that an idle server is checked as soon as
        /// `minHeartbeatFrequencyMS` allows.
        wanted: bool,
    },
    /// A connection is open.
    Connected {
        /// The connection.
        conn: ConnId,
    },
    /// A reply has arrived.
    Reply {
        /// The connection.
        conn: ConnId,
        /// The instant at which the request was written, or reading began without one.
        sent: Instant,
        /// The instant at which the reply had arrived.
        at: Instant,
        /// The reply. The document is only needed on a connection for checks.
        reply: HelloReply,
        /// True if the server will send another reply without a request.
        more_to_come: bool,
    },
    /// A connection could not be opened, or broke.
    ///
    /// An error of kind [`Internal`](crate::error::ErrorKind::Internal) tells that the transport has
    /// panicked. A check then makes its server Unknown, the pool is not cleared, and the next check
    /// begins `minHeartbeatFrequencyMS` later.
    Failed {
        /// The connection.
        conn: ConnId,
        /// The instant of the failure.
        at: Instant,
        /// The error.
        error: Error,
    },
    /// The task that watched the server was dropped by its runtime, so no answer of its connections
    /// will come. The server is Unknown from now on and is not checked again.
    Deserted {
        /// The server.
        server: ServerId,
    },
    /// An immediate check of the server is requested.
    #[doc(alias = "requestImmediateCheck")]
    CheckRequested {
        /// The server.
        server: ServerId,
    },
    /// The caller needs a server or checks, in [inline mode](crate::deployment::Deployment::with_scans), as for
    /// the next four inputs. The request ends with [`Finish`](crate::deployment::Output::Finish).
    Scan(ScanRequest),
    /// The answer to [`Choose`](crate::deployment::Output::Choose).
    Chosen {
        /// The suitable server, if there is one.
        server: Option<ServerId>,
        /// The time for which its connection has been idle; `None` if there is none.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::optional_nanos"))]
        idle: Option<Duration>,
    },
    /// The answer to [`Probe`](crate::deployment::Output::Probe): any reply, or the error. The connection is
    /// closed after an error.
    Probed {
        /// The server.
        server: ServerId,
        /// The error, if there was no reply.
        outcome: Result<(), Error>,
    },
    /// The connection was closed between two checks by an operation that shares it. This says
    /// nothing about the server.
    ConnectionLost {
        /// The connection.
        conn: ConnId,
    },
    /// An operation that shares the connection has authenticated on it. The connection then
    /// survives an overloaded server's refusal to answer a check (SDAM: "SystemOverloadedError").
    Authenticated {
        /// The connection.
        conn: ConnId,
    },
    /// A pooled connection has been opened and its handshake was answered.
    ///
    /// Behind a load balancer the connection is counted for the service in the reply, and its
    /// generation is from now on that of the [service](crate::deployment::Deployment::generation).
    Handshake {
        /// The server of the connection.
        server: ServerId,
        /// The generation the connection was opened under; ignored behind a load balancer.
        generation: Generation,
        /// The reply. An error has no effect: it is reported as [`Error`](Self::Error).
        reply: HelloReply,
    },
    /// A connection to a service behind a load balancer was closed. Its handshake was an earlier
    /// input. The service is forgotten with its last connection (CMAP: "Load Balancer Mode").
    ServiceConnectionClosed {
        /// The load balancer.
        server: ServerId,
        /// The service.
        #[cfg_attr(feature = "serde", serde(rename = "serviceId"))]
        service: ObjectId,
        /// The generation of the connection.
        generation: Generation,
    },
    /// An error of an operation or of a pool; the same as
    /// [`handle_error`](crate::deployment::Deployment::handle_error), whose result is lost.
    Error {
        /// The server.
        server: ServerId,
        /// The error.
        report: ErrorReport,
    },
    /// The look-up of the SRV record has ended.
    LookedUp(Result<SrvRecords, Error>),
    /// The hosts of an SRV record that the caller has looked up and validated. They are sampled by
    /// `srvMaxHosts`.
    Hosts(Box<[ServerAddress]>),
    /// A driver has checked the server by its own means.
    ///
    /// A reply has the effects of a handshake on a new connection. An error is that of a failed check.
    Played {
        /// The server.
        server: ServerId,
        /// The reply, or the error.
        outcome: Result<HelloReply, Error>,
        /// The round-trip time of the reply.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        rtt: Duration,
    },
}

/// A timer of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Timer {
    /// The timer of a server's checks and measurements.
    Server(ServerId),
    /// The timer of the look-ups of the SRV record.
    Srv,
    /// The timer of the request in inline mode, which has no others.
    Scan,
}

/// Identifies an attempt to connect and the resulting connection. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct ConnId {
    /// The server.
    pub server: ServerId,
    /// The purpose of the connection.
    pub role: Role,
    /// The number of the attempt for this server and role, from 1.
    pub number: u64,
}

/// The purpose of a connection to a monitored server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub enum Role {
    /// Checks of the server.
    Check,
    /// Measurements of round-trip times, while checks wait for changes (Server Monitoring:
    /// "Measuring RTT").
    Ping,
}

/// A request of a client without background tasks. It replaces the one before, of which only the
/// check or probe in progress is ended first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub enum ScanRequest {
    /// An operation needs a server.
    Select {
        /// `serverSelectionTimeoutMS`; has no effect with `serverSelectionTryOnce`.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        timeout: Duration,
    },
    /// All servers must be checked, whether or not a scan is due.
    Scan,
    /// Only this server must be checked (SDAM: "Checking a single server").
    Check {
        /// The server's id.
        server: ServerId,
    },
    /// Only the checks requested by errors must run now.
    Settle,
}

/// An input with all that a replay needs: the event [`Input`](crate::event::EventKind::Input).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RecordedInput {
    /// The time at which the deployment handled the input.
    pub now: Instant,
    /// The input.
    pub input: Input,
    /// The setup of the deployment, with [`Input::Open`].
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub setup: Option<Setup>,
}

/// The properties of a deployment that decide its checks and look-ups, besides the options that
/// decide its topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Setup {
    /// The seed of its random numbers.
    pub seed: u64,
    /// `heartbeatFrequencyMS`.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub heartbeat_frequency: Duration,
    /// `minHeartbeatFrequencyMS`.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub min_heartbeat_frequency: Duration,
    /// `connectTimeoutMS`.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::optional_nanos"))]
    pub connect_timeout: Option<Duration>,
    /// True if it streams where a server supports that.
    pub streaming: bool,
    /// True if a failed check of a known server is retried before it counts.
    pub retry_before_unknown: bool,
    /// The options of scans, in inline mode.
    pub scans: Option<ScanSetup>,
    /// `srvMaxHosts`.
    pub max_hosts: usize,
    /// The SRV record that it polls.
    pub srv: Option<Srv>,
}

/// The options of scans in inline mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct ScanSetup {
    /// `heartbeatFrequencyMS`: the time for which the outcome of a scan is valid.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub frequency: Duration,
    /// `serverSelectionTryOnce`.
    pub try_once: bool,
    /// `socketCheckIntervalMS`.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub socket_check_interval: Duration,
    /// True if a server is checked at once after its "not writable primary" error.
    pub immediate_check: bool,
}
