//! The check loop of one server (Server Monitoring): its configuration, the timeouts of checks and
//! the waits between them, the negotiation of hello, and the limit on checks without a pause.

mod check;
mod transition;

use alloc::sync::Arc;
use core::time::Duration;

use self::check::Idle;
pub(crate) use self::check::{Check, CheckOutcome, Waiting};
use crate::{
    hello::{Handshake, Hello, HelloRequest},
    ids::TopologyVersion,
    options::{Detector, HandshakeOpcode, Options, ServerApi, ServerMonitoringMode},
    time::Instant,
};

/// The configuration shared by all monitors of a topology.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MonitorConfig {
    /// `heartbeatFrequencyMS`, at least `min_heartbeat_frequency`.
    pub heartbeat_frequency: Duration,
    /// `minHeartbeatFrequencyMS`, 500 ms outside tests.
    pub min_heartbeat_frequency: Duration,
    /// `connectTimeoutMS`, `None` for no limit.
    pub connect_timeout: Option<Duration>,
    /// True to stream if the server supports it, as decided by `serverMonitoringMode` and the
    /// platform.
    pub streaming: bool,
    /// The arguments of every connection's first hello.
    pub handshake: Arc<Handshake>,
    /// The declared stable API; if present, only `hello` is used.
    pub server_api: Option<Arc<ServerApi>>,
    /// The framing of the first legacy hello of a connection.
    pub handshake_opcode: HandshakeOpcode,
    /// True to retry a failed check of a known server on a new connection before reporting it.
    pub retry_before_unknown: bool,
    /// The detector of silent servers; `None` to wait for the time limit of checks.
    pub detector: Option<Detector>,
    /// The maximum random delay of background connections; see
    /// [`Options::spread`](crate::options::Options::spread).
    pub spread: Duration,
    /// The time from a server's first streaming check to the first measurement of its round-trip
    /// time on a second connection, 100 ms outside tests. The measurement can wait, because the
    /// first hello has already yielded a sample, and should not compete with the first operations.
    pub ping_delay: Duration,
}

/// The default of [`MonitorConfig::ping_delay`].
const PING_DELAY: Duration = Duration::from_millis(100);

impl MonitorConfig {
    /// Creates the configuration of monitors that send `handshake`. `faas` is true if the program
    /// runs on a FaaS platform (SDAM: "serverMonitoringMode").
    pub fn new(options: &Options, handshake: Arc<Handshake>, faas: bool) -> Self {
        Self {
            heartbeat_frequency: options.monitor_frequency(),
            min_heartbeat_frequency: options.deviations.min_heartbeat_frequency,
            connect_timeout: options.connect_timeout,
            streaming: match options.server_monitoring_mode {
                ServerMonitoringMode::Auto => !faas,
                ServerMonitoringMode::Stream => true,
                ServerMonitoringMode::Poll => false,
            },
            handshake,
            server_api: options.server_api.clone().map(Arc::new),
            handshake_opcode: options.handshake_opcode,
            retry_before_unknown: options.deviations.retry_before_unknown,
            detector: options.detector,
            spread: options.spread,
            ping_delay: PING_DELAY,
        }
    }
}

/// The maximum extension of a check after the host was suspended. A short extension suffices,
/// because a reply that arrived in the meantime is read at once, and a dead peer never answers.
const GRACE: Duration = Duration::from_secs(1);

impl MonitorConfig {
    /// Returns the timeout for opening a connection or waiting for a reply, which is longer by a
    /// heartbeat interval if the reply is `awaited` (Server Monitoring: "Socket timeout"). `None`
    /// for no limit.
    pub(crate) fn limit(&self, awaited: bool) -> Option<Duration> {
        let limit = self.connect_timeout?;
        Some(if awaited { limit.saturating_add(self.heartbeat_frequency) } else { limit })
    }

    /// Returns the normal time from the end of a check to the start of the next one.
    pub(crate) fn wait(&self) -> Duration {
        self.heartbeat_frequency.max(self.min_heartbeat_frequency)
    }

    /// Returns the extension of a deadline that was noticed too late because the host was
    /// suspended.
    fn grace(&self) -> Duration {
        self.connect_timeout.map_or(GRACE, |limit| limit.min(GRACE))
    }

    /// Returns the normal wait after a check that ended at `ended`.
    fn pause(&self, ended: Instant) -> Idle {
        Idle { ended, until: ended + self.wait(), is_first: false }
    }

    /// Returns the minimum wait after a check that ended at `now`.
    fn soon(&self, now: Instant) -> Idle {
        Idle { ended: now, until: now + self.min_heartbeat_frequency, is_first: false }
    }

    /// Returns the earliest time at which a requested check may begin; the first check may begin at
    /// once.
    fn earliest(&self, idle: Idle) -> Instant {
        let wait = if idle.is_first { Duration::ZERO } else { self.min_heartbeat_frequency };
        idle.ended + wait
    }

    /// Returns the wait `idle`, shortened because a check was requested at `now` (Server
    /// Monitoring: "minHeartbeatFrequencyMS").
    fn hastened(&self, idle: Idle, now: Instant) -> Idle {
        let earliest = now.max(self.earliest(idle));
        Idle { until: idle.until.min(earliest), ..idle }
    }
}

/// The times of a request and of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    /// The instant at which the request was written.
    pub(crate) sent: Instant,
    /// The instant at which the answer arrived.
    pub(crate) at: Instant,
}

impl Trip {
    /// Creates a trip and clamps inconsistent instants, so that the answer arrives neither after
    /// `now` nor before its request.
    pub(crate) fn new(sent: Instant, at: Instant, now: Instant) -> Self {
        let at = at.min(now);
        Self { sent: sent.min(at), at }
    }

    pub(crate) fn duration(self) -> Duration {
        self.at.since(self.sent)
    }

    /// Returns whether the answer arrived after `deadline`.
    pub(crate) fn is_late(self, deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|deadline| deadline < self.at)
    }

    /// Returns the time from the request to the answer, or to `deadline` if that is earlier.
    pub(crate) fn within(self, deadline: Option<Instant>) -> Duration {
        let end = deadline.map_or(self.at, |deadline| deadline.min(self.at));
        end.since(self.sent)
    }
}

/// The negotiated hello command and opcode of one connection (Server Monitoring: "helloOk").
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(crate) enum Negotiation {
    /// No reply has arrived yet.
    #[default]
    Handshake,
    /// The result of the negotiation, according to the last reply.
    Agreed {
        /// True to send `hello` instead of legacy hello.
        modern: bool,
        /// True if the server is too old for OP_MSG.
        op_query: bool,
    },
}

/// The first wire version with OP_MSG (MongoDB 3.6).
const OP_MSG_WIRE_VERSION: i32 = 6;

impl Negotiation {
    /// Returns the negotiation after a successful reply.
    pub(crate) fn after(hello: &Hello, config: &MonitorConfig) -> Self {
        Self::Agreed {
            modern: hello.hello_ok || config.server_api.is_some(),
            op_query: config.handshake_opcode == HandshakeOpcode::OpQuery
                && hello.wire_versions.max < OP_MSG_WIRE_VERSION,
        }
    }

    /// Returns a hello request that the server answers at once.
    pub(crate) fn request(self, config: &MonitorConfig) -> HelloRequest {
        let server_api = config.server_api.clone();
        match self {
            Self::Handshake => HelloRequest::handshake(
                Arc::clone(&config.handshake),
                server_api,
                config.handshake_opcode,
            ),
            Self::Agreed { modern, op_query } => {
                HelloRequest::poll(modern, server_api).with_op_query(op_query)
            }
        }
    }

    /// Returns an awaitable hello request. The server replies when its topology version differs
    /// from `version` or after a heartbeat interval, and then continues to stream replies.
    fn awaitable_request(self, config: &MonitorConfig, version: TopologyVersion) -> HelloRequest {
        let modern = matches!(self, Self::Agreed { modern: true, .. });
        let server_api = config.server_api.clone();
        HelloRequest::awaitable(modern, server_api, version, config.heartbeat_frequency)
    }
}

/// Counts the checks that begin without a pause: those after a streamed reply, and the retries
/// after a network error from a known server.
///
/// Server Monitoring requires that neither kind of check waits, and in normal operation none does.
/// The limit bounds the load that a server can cause by pushing replies incessantly, or a proxy by
/// breaking each connection after its first replies.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// The time at which a full burst is available again.
    rested: Instant,
}

/// The maximum number of checks that follow each other without a pause. In a failover or a
/// reconfiguration, a member pushes only a handful of replies.
const BURST: u32 = 50;

/// The time after which one more check may begin without a pause.
const INTERVAL: Duration = Duration::from_millis(50);

impl Pace {
    /// Counts a check that ended at `now`. Returns whether the next one may begin at once.
    fn admits(&mut self, now: Instant) -> bool {
        self.rested = self.rested.max(now) + INTERVAL;
        self.rested.since(now) <= BURST * INTERVAL
    }
}
