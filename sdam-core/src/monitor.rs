//! The check loop of one server (Server Monitoring).

mod check;
#[cfg(feature = "model")]
mod key;
mod negotiation;
mod pace;
mod state;
#[cfg(test)]
mod tests;
mod timing;
mod transition;

use alloc::sync::Arc;
use core::time::Duration;

use crate::{
    hello::Handshake,
    options::{Detector, HandshakeOpcode, Options, ServerApi, ServerMonitoringMode},
};

pub(crate) use self::{
    check::{Check, Reply, Report},
    negotiation::Negotiation,
    state::Waiting,
    timing::Trip,
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
    /// first hello has already yielded a sample. The delay keeps the measurement out of the way of
    /// the first operations.
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
