//! The options of a client, with validation.

mod security;
#[cfg(test)]
mod tests;
mod validate;

use alloc::{boxed::Box, collections::BTreeSet, format, string::String, sync::Arc, vec::Vec};
use core::time::Duration;

pub(crate) use self::{security::default_source, validate::Escaped};
pub use self::{
    security::{Credential, ProxyOptions, TlsOptions},
    validate::{ConfigError, Warning},
};
use crate::{
    address::ServerAddress, pool::PoolOptions, read_preference::ReadPreference,
    server::WireVersions, topology::TopologyType,
};

/// The minimum time between two checks of a server (SDAM: "minHeartbeatFrequencyMS"), which only
/// [`Deviations::min_heartbeat_frequency`] can change.
#[doc(alias = "minHeartbeatFrequencyMS")]
pub const MIN_HEARTBEAT_FREQUENCY: Duration = Duration::from_millis(500);
/// The time during which a single-threaded client does not check a server again after a network
/// error (SDAM: "cooldownMS").
#[doc(alias = "cooldownMS")]
pub const COOLDOWN: Duration = Duration::from_secs(5);
/// The interval at which an idle primary writes, which makes staleness measurable (Max Staleness:
/// "idleWritePeriodMS").
#[doc(alias = "idleWritePeriodMS")]
pub const IDLE_WRITE_PERIOD: Duration = Duration::from_secs(10);
/// The minimum staleness limit (Max Staleness: "smallestMaxStalenessSeconds").
#[doc(alias = "smallestMaxStalenessSeconds")]
pub const SMALLEST_MAX_STALENESS: Duration = Duration::from_secs(90);
/// The default `heartbeatFrequencyMS` of clients with background monitors.
const DEFAULT_HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(10);
/// The default `heartbeatFrequencyMS` of single-threaded clients.
const DEFAULT_SCAN_FREQUENCY: Duration = Duration::from_secs(60);

/// The options of a topology, of its pools and of the operations of a client.
///
/// Options that can appear in a connection string have the same names here. The meaning of a zero
/// duration follows the specifications and is documented at each field. Options come from
/// [`Options::parse`] or [`Options::new`], are changed field by field, and are checked as a whole
/// by [`Options::validate`] when a topology is started.
///
/// Values set in code take precedence over the connection string, which takes precedence over a TXT
/// record; see [`uri`](crate::uri#precedence).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent option")]
pub struct Options {
    /// The seeds, in the given order; duplicates are ignored.
    ///
    /// A few members of a replica set are enough, because the client discovers the others. Each
    /// seed is monitored, so with a list of hundreds of seeds, every client opens hundreds of
    /// connections.
    pub seeds: Vec<ServerAddress>,
    /// `directConnection`: true to connect only to the single seed, regardless of its type.
    pub direct_connection: Option<bool>,
    /// `loadBalanced`: true if the single seed is a load balancer.
    pub load_balanced: bool,
    /// `replicaSet`: the name of the replica set, enforced from the start.
    pub replica_set: Option<Arc<str>>,
    /// The initial topology type, which overrides the type implied by the three options above but
    /// must not contradict them. `LoadBalanced` can only be obtained by setting `load_balanced`.
    pub initial_topology_type: Option<TopologyType>,
    /// `heartbeatFrequencyMS`: the time between checks, at least 500 ms. `None` means the default,
    /// which depends on whether there are background monitors.
    #[doc(alias = "heartbeatFrequencyMS")]
    pub heartbeat_frequency: Option<Duration>,
    /// `connectTimeoutMS`: the time limit for connecting and for each reply to a monitor. `None`,
    /// which is 0 in a connection string, means no limit.
    #[doc(alias = "connectTimeoutMS")]
    pub connect_timeout: Option<Duration>,
    /// `serverMonitoringMode`: whether monitors stream or poll.
    pub server_monitoring_mode: ServerMonitoringMode,
    /// `localThresholdMS`: the maximum amount by which the latency of a server may exceed that of
    /// the fastest suitable server.
    #[doc(alias = "localThresholdMS")]
    pub local_threshold: Duration,
    /// `serverSelectionTimeoutMS`: the maximum time that a selection waits for a suitable server;
    /// with zero, selections do not wait.
    #[doc(alias = "serverSelectionTimeoutMS")]
    pub server_selection_timeout: Duration,
    /// `serverSelectionTryOnce`: true if single-threaded clients scan at most once per selection.
    /// `None` means that the option is not configured, and has the same effect as true.
    pub server_selection_try_once: Option<bool>,
    /// `socketCheckIntervalMS`: the idle time after which a single-threaded client probes a
    /// connection before use.
    #[doc(alias = "socketCheckIntervalMS")]
    pub socket_check_interval: Duration,
    /// The default read preference of operations that may read from secondaries.
    pub read_preference: ReadPreference,
    /// The strategy for choosing among the servers in the latency window.
    pub selection_strategy: SelectionStrategy,
    /// `appName`: the application's name in the client metadata, at most 128 bytes long.
    pub app_name: Option<Arc<str>>,
    /// The stable API version that the client declares. If there is one, only `hello` is used,
    /// never the legacy hello.
    pub server_api: Option<ServerApi>,
    /// The wire versions that the client supports.
    pub wire_versions: WireVersions,
    /// The client's name, as it appears in compatibility errors.
    pub driver_name: Arc<str>,
    /// The maximum number of monitored servers. It is an error to configure more seeds than this;
    /// servers discovered beyond the maximum are ignored.
    pub max_servers: usize,
    /// The maximum number of selections that wait for a server at the same time; any further
    /// selection fails at once. There is no limit by default (Server Selection: "Multi-threaded or
    /// asynchronous server selection").
    pub max_waiters: usize,
    /// The maximum length of a reply to a check, in bytes; a longer reply is rejected once its
    /// header is read. The default of 1 MiB is a hundred times what the largest replica sets need.
    pub max_hello_size: usize,
    /// The message format of the first hello on a connection.
    pub handshake_opcode: HandshakeOpcode,
    /// The SRV look-up of the seeds, if they came from an SRV record.
    pub srv: Option<Srv>,
    /// The credential for pooled connections; `None` for no authentication.
    pub credential: Option<Credential>,
    /// `authSource`: the database that defines the user of a [credential](Self::credential) that
    /// was set in code without a source.
    #[doc(alias = "authSource")]
    pub auth_source: Option<Box<str>>,
    /// The encryption of connections; `None` for no encryption.
    ///
    /// If this option is set, a topology starts only if its runtime can negotiate TLS.
    pub tls: Option<TlsOptions>,
    /// The proxy for connections; `None` if they are opened directly.
    ///
    /// If this option is set, a topology starts only if its runtime can connect through proxies.
    pub proxy: Option<ProxyOptions>,
    /// `TCP_USER_TIMEOUT`: the time after which the system breaks a TCP connection whose peer has
    /// not acknowledged the bytes sent to it, or has had no space for more; at least 1 ms. `None`,
    /// the default, keeps the system's own limit, which is about 15 minutes on Linux.
    ///
    /// The limit applies to all connections of monitors and pools as soon as they are open; before
    /// that, [`connect_timeout`](Self::connect_timeout) applies. The peer's operating system sends
    /// the acknowledgements, so a slow command does not break its connection. On an idle
    /// connection, this time limit replaces the limit on the number of unanswered keep-alive
    /// probes.
    ///
    /// This option has an effect on Linux and Android only. No connection string contains it.
    #[doc(alias = "TCP_USER_TIMEOUT")]
    pub tcp_user_timeout: Option<Duration>,
    /// The maximum random delay before connections are opened in the background: for the first
    /// checks of the seeds, for the check after a failed one, for the first measurement of
    /// round-trip times on a second connection, and for `minPoolSize`. The delay keeps many clients
    /// that start together, or lose a server together, from connecting at the same instant. Zero,
    /// the default, means no delay.
    ///
    /// Operations that are already waiting are never delayed: a selection that waits brings the
    /// checks forward, and a check-out opens its connection at once. A good value is the number of
    /// clients divided by the connections per second that a server accepts. No connection string
    /// contains this option, and single-threaded clients ignore it.
    pub spread: Duration,
    /// True, the default, if the pool of a server may open a socket while a selection waits for the
    /// server's first check, so that the first operation does not have to set up another TCP and TLS
    /// connection. Unused sockets are closed after a second. No connection string contains this
    /// option.
    pub early_dial: bool,
    /// The detector that gives up on a silent server before the time limit of its checks. With
    /// `None`, the default, the client waits for that limit. No connection string contains this
    /// option.
    pub detector: Option<Detector>,
    /// The options of connection pools.
    pub pool: PoolOptions,
    /// `timeoutMS`: the maximum duration of an operation as a whole; zero for no limit. With
    /// `None`, the limits of its parts apply.
    #[doc(alias = "timeoutMS")]
    pub timeout: Option<Duration>,
    /// `socketTimeoutMS`: the maximum time that an operation waits to send or receive; `None` for
    /// no limit. [`timeout`](Self::timeout) replaces it.
    #[doc(alias = "socketTimeoutMS")]
    pub socket_timeout: Option<Duration>,
    /// `retryReads`: true, the default, if reads are retried.
    pub retry_reads: bool,
    /// `retryWrites`: true, the default, if writes are retried.
    pub retry_writes: bool,
    /// `maxAdaptiveRetries`: the maximum number of retries of an operation after overload errors; 2
    /// by default (Client Backpressure: `MAX_RETRIES`).
    pub max_adaptive_retries: u32,
    /// `enableOverloadRetargeting`: true if a retry avoids servers that were overloaded.
    pub enable_overload_retargeting: bool,
    /// `readConcernLevel`: the level of the default read concern; `None` for the server's default.
    pub read_concern_level: Option<Box<str>>,
    /// `w`: the acknowledgment that a write waits for; `None` for the server's default.
    pub w: Option<Acknowledgment>,
    /// `journal`: true if a write waits for the journal; `None` for the server's default.
    pub journal: Option<bool>,
    /// `wTimeoutMS`: the maximum time that a write waits for its write concern; `None` for no
    /// limit. [`timeout`](Self::timeout) replaces it.
    #[doc(alias = "wTimeoutMS")]
    pub w_timeout: Option<Duration>,
    /// `compressors`: the compressors for messages, in order of preference. Only drivers use this
    /// option: `sdam` does not compress messages.
    pub compressors: Vec<Box<str>>,
    /// `zlibCompressionLevel`: the compression level of zlib, from 0 to 9, or -1 for its default.
    pub zlib_compression_level: Option<i32>,
    /// The deviations from the specifications, which applications should not change.
    pub deviations: Deviations,
    /// The warnings about the connection string.
    pub(crate) uri_warnings: Vec<Warning>,
    /// The error for an invalid connection string option that protects connections. If it is set,
    /// no topology may start.
    pub(crate) uri_unguarded: Option<ConfigError>,
    /// `serverSelectionTryOnce` from the connection string.
    pub(crate) uri_try_once: Option<bool>,
}

impl Options {
    /// Creates options with the given seeds and defaults for everything else.
    pub fn new(seeds: Vec<ServerAddress>) -> Self {
        Self {
            seeds,
            direct_connection: None,
            load_balanced: false,
            replica_set: None,
            initial_topology_type: None,
            heartbeat_frequency: None,
            connect_timeout: Some(Duration::from_secs(10)),
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
            srv: None,
            credential: None,
            auth_source: None,
            tls: None,
            proxy: None,
            tcp_user_timeout: None,
            spread: Duration::ZERO,
            early_dial: true,
            detector: None,
            pool: PoolOptions::default(),
            timeout: None,
            socket_timeout: None,
            retry_reads: true,
            retry_writes: true,
            max_adaptive_retries: 2,
            enable_overload_retargeting: false,
            read_concern_level: None,
            w: None,
            journal: None,
            w_timeout: None,
            compressors: Vec::new(),
            zlib_compression_level: None,
            deviations: Deviations::default(),
            uri_warnings: Vec::new(),
            uri_unguarded: None,
            uri_try_once: None,
        }
    }

    /// Returns the seeds without duplicates.
    pub(crate) fn distinct_seeds(&self) -> Vec<ServerAddress> {
        let mut seen = BTreeSet::new();
        let seeds = self.seeds.iter().filter(|seed| seen.insert(*seed));
        seeds.cloned().collect()
    }

    /// Returns the initial topology type (SDAM: "Initial TopologyType").
    pub fn topology_type(&self) -> TopologyType {
        if let Some(topology_type) = self.initial_topology_type {
            return topology_type;
        }
        match (self.load_balanced, self.direct_connection, &self.replica_set) {
            (true, _, _) => TopologyType::LoadBalanced,
            (_, Some(true), _) => TopologyType::Single,
            (_, _, Some(_)) => TopologyType::ReplicaSetNoPrimary,
            (_, _, None) => TopologyType::Unknown,
        }
    }

    /// Returns `heartbeatFrequencyMS` for a client with background monitors, never below the
    /// minimum.
    pub fn monitor_frequency(&self) -> Duration {
        self.heartbeat_frequency
            .unwrap_or(DEFAULT_HEARTBEAT_FREQUENCY)
            .max(self.deviations.min_heartbeat_frequency)
    }

    /// Returns `heartbeatFrequencyMS` for a single-threaded client, never below the minimum.
    pub fn scan_frequency(&self) -> Duration {
        self.heartbeat_frequency
            .unwrap_or(DEFAULT_SCAN_FREQUENCY)
            .max(self.deviations.min_heartbeat_frequency)
    }
}

/// Selects whether monitors stream or poll (SDAM: "serverMonitoringMode").
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum ServerMonitoringMode {
    /// Polls if the program runs in a function-as-a-service (FaaS) environment, and streams
    /// otherwise.
    #[default]
    Auto,
    /// Streams where the server supports it.
    Stream,
    /// Always polls.
    Poll,
}

impl ServerMonitoringMode {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The acknowledgment that a write waits for (Read and Write Concern: "w").
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acknowledgment {
    /// The acknowledgment of this number of members; 0 for none.
    Nodes(u32),
    /// The acknowledgment of the members that a name stands for: `majority`, or a name in the
    /// set's configuration.
    Named(Box<str>),
}

/// The strategy for choosing among the servers in the latency window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SelectionStrategy {
    /// Picks two random servers, and chooses the one with fewer operations in progress.
    /// Single-threaded clients choose at random.
    #[default]
    TwoChoices,
    /// Picks a random server, as in version 1.2 of Server Selection.
    Random,
}

/// The SRV look-up for a `mongodb+srv` connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct Srv {
    /// The host of the connection string, in lower case and without a final dot. Its TXT record may
    /// contain options.
    pub host: Box<str>,
    /// `srvServiceName`: the first label of the name to look up, without its underscore.
    pub service: Box<str>,
    /// `srvMaxHosts`: the maximum number of hosts to use; 0 for all.
    pub max_hosts: u32,
    /// The minimum time to live (TTL) of the records that yielded the seeds; zero if unknown. The
    /// next look-up is due once this time has passed, but not before 60 s have passed.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub ttl: Duration,
}

impl Srv {
    /// Creates a look-up of the hosts for the service `mongodb` at `host`, without limiting their
    /// number.
    pub fn new(host: &str) -> Self {
        Self {
            host: host.trim_end_matches('.').to_ascii_lowercase().into(),
            service: "mongodb".into(),
            max_hosts: 0,
            ttl: Duration::ZERO,
        }
    }

    /// Returns the name of the SRV record that lists the hosts, such as
    /// `_mongodb._tcp.cluster.example.com`.
    pub fn query_name(&self) -> String {
        format!("_{}._tcp.{}", self.service, self.host)
    }

    /// Returns the domain to which the hosts must belong: [`host`](Self::host) without its first
    /// label, or the whole host if it has fewer than three labels (Initial DNS Seedlist Discovery:
    /// "Connection String Format").
    pub fn domain(&self) -> &str {
        match self.host.split_once('.') {
            Some((_, domain)) if domain.contains('.') => domain,
            _ => &self.host,
        }
    }

    /// Returns whether connecting to `host` is allowed. Its name must consist of one or more
    /// labels, followed by a dot and the [`domain`](Self::domain) (Initial DNS Seedlist Discovery:
    /// "Querying DNS").
    pub(crate) fn allows(&self, host: &ServerAddress) -> bool {
        let name = host.host().trim_end_matches('.');
        name.strip_suffix(self.domain())
            .and_then(|head| head.strip_suffix('.'))
            .is_some_and(|labels| !labels.is_empty())
    }

    /// Returns [`max_hosts`](Self::max_hosts) as a `usize`.
    pub(crate) fn max_hosts(&self) -> usize {
        usize::try_from(self.max_hosts).unwrap_or(usize::MAX)
    }
}

/// The framing of the first hello of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HandshakeOpcode {
    /// OP_MSG, which every server since MongoDB 3.6 supports.
    #[default]
    OpMsg,
    /// OP_QUERY, for older servers.
    OpQuery,
}

/// The stable API version that is declared with every command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerApi {
    /// The version; only `1` exists.
    pub version: Box<str>,
    /// True if the server rejects commands outside the API.
    pub strict: Option<bool>,
    /// True if the server rejects deprecated commands.
    pub deprecation_errors: Option<bool>,
}

impl ServerApi {
    /// Returns version 1 of the API, without setting `strict` or `deprecation_errors`.
    pub fn v1() -> Self {
        Self { version: "1".into(), strict: None, deprecation_errors: None }
    }
}

/// Deviations from the specifications, for tests of drivers and for drivers that keep the behaviour
/// of earlier versions. Applications should not change them, and connection strings cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deviations {
    /// The minimum time between two checks of a server, and the minimum `heartbeatFrequencyMS`; at
    /// least 1 ms.
    ///
    /// Only tests of drivers should change this time. The specification fixes it at
    /// [500 ms](MIN_HEARTBEAT_FREQUENCY), but runners of the unified test format reduce it to
    /// 50 ms.
    #[doc(alias = "minHeartbeatFrequencyMS")]
    pub min_heartbeat_frequency: Duration,
    /// True to retry a failed check on a new connection before marking the server Unknown, as SDAM
    /// 2.11 did.
    pub retry_before_unknown: bool,
    /// True if every failure to establish a connection marks the server Unknown, as before overload
    /// error labels existed.
    pub handshake_errors_mark_unknown: bool,
    /// True if single-threaded clients check a server at once after its "not writable primary"
    /// error, as SDAM 2.11 did.
    pub single_threaded_immediate_check: bool,
}

impl Default for Deviations {
    /// Returns options without any deviation.
    fn default() -> Self {
        Self {
            min_heartbeat_frequency: MIN_HEARTBEAT_FREQUENCY,
            retry_before_unknown: false,
            handshake_errors_mark_unknown: false,
            single_threaded_immediate_check: false,
        }
    }
}

/// Gives up on a silent server before the time limit of its checks, which is
/// `heartbeatFrequencyMS` + `connectTimeoutMS`. Only clients with background monitors use a
/// detector.
///
/// It tests a suspicion in these steps:
///
/// 1. The answer to a check, to a measurement of the round-trip time, or to an operation whose pool
///    [reports it](crate::deployment::Input::Late) takes longer than [`floor`](Self::floor) and
///    longer than two usual round trips. The usual round trip is the lower quartile of the last
///    ten.
/// 2. The server is pinged on the connection for measurements. If no answer arrives within 100
///    ms, or within two usual round trips if that is longer, it is pinged again on a new
///    connection. The servers that answered last are pinged, too.
/// 3. The wait for these pings is [`floor`](Self::floor), or 400 ms plus 21 usual round trips if
///    that is longer. The server becomes Unknown, as after a time-out of its check, and connections
///    in use are interrupted, if three conditions hold: no operation has received an answer within
///    the wait; at least two of the server's connections (those for checks and for measurements,
///    and the new one) have received none either; and another server has answered since step 2. If
///    no other server has answered, the network or this host may be to blame: as soon as one
///    answers, step 2 is repeated.
///
/// A server is not judged before its first answer, and the only server of a topology is never
/// judged. If timers of this host are late, the wait begins again, and later waits are longer until
/// answers come in time (Lifeguard, 2018: "Local Health Multiplier").
///
/// As long as every answer is on time, a detector sends nothing. A slow operation causes one ping
/// per wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct Detector {
    /// The minimum wait for an answer. It must exceed pauses of the servers and the time that TCP
    /// takes to retransmit lost segments.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub floor: Duration,
}

impl Detector {
    /// A detector with a floor of 750 ms, which gives up on a silent server after 1.5 s if round
    /// trips are short.
    pub const PROBING: Self = Self { floor: Duration::from_millis(750) };
}
