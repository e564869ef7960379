//! Every knob of discovery, monitoring and selection, validated.

use alloc::{boxed::Box, collections::BTreeSet, sync::Arc, vec::Vec};
use core::time::Duration;

use crate::{
    address::ServerAddress,
    read_preference::ReadPreference,
    server::WireVersions,
    topology::TopologyType,
    uri::{PassThrough, Srv},
};

mod config_error;
mod set;
#[cfg(test)]
mod tests;
mod validate;

pub(crate) use config_error::HIDDEN;
pub use config_error::{ConfigError, Warning};

/// The shortest time between two checks of a server (SDAM: "minHeartbeatFrequencyMS").
pub const MIN_HEARTBEAT_FREQUENCY: Duration = Duration::from_millis(500);
/// How long a single-threaded client leaves a server alone after a network error (SDAM:
/// "cooldownMS").
pub const COOLDOWN: Duration = Duration::from_secs(5);
/// How often an idle primary writes, so that staleness can be told (Max Staleness:
/// "idleWritePeriodMS").
pub const IDLE_WRITE_PERIOD: Duration = Duration::from_secs(10);
/// The smallest limit on staleness (Max Staleness: "smallestMaxStalenessSeconds").
pub const SMALLEST_MAX_STALENESS: Duration = Duration::from_secs(90);
/// `heartbeatFrequencyMS` of clients with background monitors, if not configured.
pub const DEFAULT_HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(10);
/// `heartbeatFrequencyMS` of single-threaded clients, if not configured.
pub const DEFAULT_SCAN_FREQUENCY: Duration = Duration::from_secs(60);

/// What a topology is started with.
///
/// Values that a connection string can carry bear its names; durations of zero mean what the
/// specification says that they mean, given at each field. They come from [`Options::parse`] or
/// [`Options::new`], are changed field by field or with the `with_` methods, and are checked as a
/// whole by [`Options::validate`] when a topology is started.
///
/// Code counts more than the connection string, which counts more than a TXT record; see
/// [`uri`](crate::uri#precedence).
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub struct Options {
    /// The servers to begin with, in the order given. One that is named twice counts once.
    ///
    /// A few members of a replica set are enough: the others are discovered. Each seed is
    /// monitored, so a list of hundreds costs as many connections on every client.
    pub seeds: Vec<ServerAddress>,
    /// `directConnection`: whether to talk to the one seed only, whatever it is.
    pub direct_connection: Option<bool>,
    /// `loadBalanced`: whether the one seed is a load balancer.
    pub load_balanced: bool,
    /// `replicaSet`: the name of the replica set; enforced from the start.
    pub replica_set: Option<Arc<str>>,
    /// Overrides the topology type that the three options above lead to, unless it contradicts
    /// them. `LoadBalanced` comes from `load_balanced` only.
    pub initial_topology_type: Option<TopologyType>,
    /// `heartbeatFrequencyMS`: time between checks; at least 500 ms. `None`: the default, which
    /// depends on whether there are background monitors.
    pub heartbeat_frequency: Option<Duration>,
    /// `connectTimeoutMS`: for connecting and for each reply of a monitor; zero: no limit.
    pub connect_timeout: Duration,
    /// `serverMonitoringMode`: whether to let servers stream their changes.
    pub server_monitoring_mode: ServerMonitoringMode,
    /// `localThresholdMS`: how much slower than the fastest suitable server a server may be.
    pub local_threshold: Duration,
    /// `serverSelectionTimeoutMS`: how long a selection waits; zero: it does not wait at all.
    pub server_selection_timeout: Duration,
    /// `serverSelectionTryOnce`: single-threaded clients scan at most once per selection. `None`:
    /// not configured, which means yes.
    pub server_selection_try_once: Option<bool>,
    /// `socketCheckIntervalMS`: how long a connection of a single-threaded client may idle before
    /// it is probed.
    pub socket_check_interval: Duration,
    /// The default read preference of operations that may read from secondaries.
    pub read_preference: ReadPreference,
    /// How to choose among the servers in the latency window.
    pub selection_strategy: SelectionStrategy,
    /// `appName`: at most 128 bytes; part of the client metadata.
    pub app_name: Option<Arc<str>>,
    /// The declared stable API version; then only `hello` is used.
    pub server_api: Option<ServerApi>,
    /// The wire versions the client speaks.
    pub wire_versions: WireVersions,
    /// What compatibility errors call the client.
    pub driver_name: Arc<str>,
    /// How many servers are monitored at most; what lies beyond is reported as an error.
    pub max_servers: usize,
    /// How many selections may wait for a server at the same time; one more fails at once. There is
    /// no limit by default (Server Selection: "Multi-threaded or asynchronous server selection").
    pub max_waiters: usize,
    /// The longest reply that a check accepts, in bytes; a longer one is refused by its header. The
    /// default of 1 MiB is a hundred times what the largest replica sets need.
    pub max_hello_size: usize,
    /// How the first hello of a connection is framed.
    pub handshake_opcode: HandshakeOpcode,
    /// Retry a failed check on a new connection before marking the server Unknown, as SDAM 2.11
    /// did.
    pub legacy_retry_before_unknown: bool,
    /// Let every failure to establish a connection mark the server Unknown, as before labels of
    /// overload existed.
    pub handshake_errors_mark_unknown: bool,
    /// Let single-threaded clients check a server at once that says that it is not writable
    /// primary, as SDAM 2.11 did.
    pub single_threaded_immediate_check: bool,
    /// Where the seeds were looked up, if they came from an SRV record.
    pub srv: Option<Srv>,
    /// What a connection string says to the rest of the driver.
    pub pass_through: PassThrough,
    /// What was worked around in the connection string.
    pub(crate) uri_warnings: Vec<Warning>,
    /// Why the connection string must not be connected to, if an option of it that guards
    /// something is not understood.
    pub(crate) uri_unguarded: Option<ConfigError>,
    /// `serverSelectionTryOnce` as the connection string has it.
    pub(crate) uri_try_once: Option<bool>,
}

impl Options {
    /// The default options with these seeds.
    pub fn new(seeds: Vec<ServerAddress>) -> Self {
        Self {
            seeds,
            direct_connection: None,
            load_balanced: false,
            replica_set: None,
            initial_topology_type: None,
            heartbeat_frequency: None,
            connect_timeout: Duration::from_secs(10),
            server_monitoring_mode: ServerMonitoringMode::Auto,
            local_threshold: Duration::from_millis(15),
            server_selection_timeout: Duration::from_secs(30),
            server_selection_try_once: None,
            socket_check_interval: Duration::from_secs(5),
            read_preference: ReadPreference::default(),
            selection_strategy: SelectionStrategy::default(),
            app_name: None,
            server_api: None,
            wire_versions: WireVersions { min: 8, max: 29 },
            driver_name: "sdam".into(),
            max_servers: 1024,
            max_waiters: usize::MAX,
            max_hello_size: 1 << 20,
            handshake_opcode: HandshakeOpcode::default(),
            legacy_retry_before_unknown: false,
            handshake_errors_mark_unknown: false,
            single_threaded_immediate_check: false,
            srv: None,
            pass_through: PassThrough::default(),
            uri_warnings: Vec::new(),
            uri_unguarded: None,
            uri_try_once: None,
        }
    }

    /// The seeds, each once.
    pub(crate) fn distinct_seeds(&self) -> Vec<ServerAddress> {
        let mut seen = BTreeSet::new();
        let seeds = self.seeds.iter().filter(|seed| seen.insert(*seed));
        seeds.cloned().collect()
    }

    /// The type the topology starts with (SDAM: "Initial TopologyType").
    pub fn topology_type(&self) -> TopologyType {
        if let Some(topology_type) = self.initial_topology_type {
            return topology_type;
        }
        match (
            self.load_balanced,
            self.direct_connection,
            &self.replica_set,
        ) {
            (true, _, _) => TopologyType::LoadBalanced,
            (_, Some(true), _) => TopologyType::Single,
            (_, _, Some(_)) => TopologyType::ReplicaSetNoPrimary,
            (_, _, None) => TopologyType::Unknown,
        }
    }

    /// `heartbeatFrequencyMS` of a client with background monitors, never below 500 ms.
    pub fn heartbeat_frequency(&self) -> Duration {
        self.heartbeat_frequency
            .unwrap_or(DEFAULT_HEARTBEAT_FREQUENCY)
            .max(MIN_HEARTBEAT_FREQUENCY)
    }

    /// `heartbeatFrequencyMS` of a single-threaded client, never below 500 ms.
    pub fn scan_frequency(&self) -> Duration {
        self.heartbeat_frequency
            .unwrap_or(DEFAULT_SCAN_FREQUENCY)
            .max(MIN_HEARTBEAT_FREQUENCY)
    }

    /// `connectTimeoutMS`, `None` for no limit.
    pub fn connect_timeout(&self) -> Option<Duration> {
        (!self.connect_timeout.is_zero()).then_some(self.connect_timeout)
    }
}

/// Whether monitors let servers stream their changes (SDAM: "serverMonitoringMode").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServerMonitoringMode {
    /// As [`Stream`](Self::Stream), except as a function of a FaaS provider, where as
    /// [`Poll`](Self::Poll).
    #[default]
    Auto,
    /// Streaming where the server supports it.
    Stream,
    /// Always polling.
    Poll,
}

impl ServerMonitoringMode {
    /// The mode's name in connection strings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Stream => "stream",
            Self::Poll => "poll",
        }
    }
}

/// How to choose among the servers in the latency window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SelectionStrategy {
    /// Of two random servers the one with fewer operations in progress; single-threaded clients
    /// choose at random.
    #[default]
    TwoChoices,
    /// At random, as Server Selection 1.2 had it.
    Random,
}

/// How the first hello of a connection is framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HandshakeOpcode {
    /// As OP_MSG, which every server since MongoDB 3.6 understands.
    #[default]
    OpMsg,
    /// As OP_QUERY, for servers before that.
    OpQuery,
}

/// The stable API that is declared with every command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerApi {
    /// The version; `1` is the only one there is.
    pub version: Box<str>,
    /// Whether the server refuses commands outside the API.
    pub strict: Option<bool>,
    /// Whether the server refuses deprecated commands.
    pub deprecation_errors: Option<bool>,
}

impl ServerApi {
    /// Version 1, neither strict nor with deprecation errors.
    pub fn v1() -> Self {
        Self {
            version: "1".into(),
            strict: None,
            deprecation_errors: None,
        }
    }
}
