//! Setters of options, for use in code.

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;

use super::{
    Credential, Detector, Deviations, HandshakeOpcode, Options, SelectionStrategy, ServerApi,
    ServerMonitoringMode,
};
use crate::{
    address::ServerAddress, read_preference::ReadPreference, topology_type::TopologyType,
    wire_versions::WireVersions,
};

/// These methods do not validate the options, because the result would depend on the order of the
/// calls. [`Options::validate`] checks them as a whole.
impl Options {
    crate::setters! {
        /// Sets the seeds.
        pub fn with_seeds(seeds: Vec<ServerAddress>) => seeds = seeds;

        /// Sets `directConnection`.
        pub fn with_direct_connection(direct: bool) => direct_connection = Some(direct);

        /// Sets `loadBalanced`.
        pub fn with_load_balanced(balanced: bool) => load_balanced = balanced;

        /// Sets `replicaSet`.
        pub fn with_replica_set(name: impl Into<Arc<str>>) => replica_set = Some(name.into());

        /// Sets the initial topology type.
        pub fn with_initial_topology_type(own: TopologyType) => initial_topology_type = Some(own);

        /// Sets `heartbeatFrequencyMS`; at least 500 ms.
        pub fn with_heartbeat_frequency(time: Duration) => heartbeat_frequency = Some(time);

        /// Sets `connectTimeoutMS`; `None` for no limit.
        pub fn with_connect_timeout(time: impl Into<Option<Duration>>) => connect_timeout = time.into();

        /// Sets `serverMonitoringMode`.
        pub fn with_server_monitoring_mode(mode: ServerMonitoringMode) =>
            server_monitoring_mode = mode;

        /// Sets `localThresholdMS`.
        pub fn with_local_threshold(threshold: Duration) => local_threshold = threshold;

        /// Sets `serverSelectionTimeoutMS`; with zero, selections do not wait.
        pub fn with_server_selection_timeout(time: Duration) => server_selection_timeout = time;

        /// Sets `serverSelectionTryOnce`, which must not contradict the connection string.
        pub fn with_server_selection_try_once(once: bool) => server_selection_try_once = Some(once);

        /// Sets `socketCheckIntervalMS`.
        pub fn with_socket_check_interval(interval: Duration) => socket_check_interval = interval;

        /// Sets the default read preference.
        pub fn with_read_preference(preference: ReadPreference) => read_preference = preference;

        /// Sets the strategy for choosing among the servers in the latency window.
        pub fn with_selection_strategy(strategy: SelectionStrategy) =>
            selection_strategy = strategy;

        /// Sets `appName`; at most 128 bytes.
        pub fn with_app_name(name: impl Into<Arc<str>>) => app_name = Some(name.into());

        /// Sets the declared stable API version.
        pub fn with_server_api(api: ServerApi) => server_api = Some(api);

        /// Sets the wire versions of the client.
        pub fn with_wire_versions(versions: WireVersions) => wire_versions = versions;

        /// Sets the client's name, as it appears in compatibility errors.
        pub fn with_driver_name(name: impl Into<Arc<str>>) => driver_name = name.into();

        /// Sets the maximum number of monitored servers.
        pub fn with_max_servers(max: usize) => max_servers = max;

        /// Sets the maximum number of selections that wait for a server.
        pub fn with_max_waiters(max: usize) => max_waiters = max;

        /// Sets the maximum length of a reply to a check, in bytes.
        pub fn with_max_hello_size(max: usize) => max_hello_size = max;

        /// Sets the message format of the first hello.
        pub fn with_handshake_opcode(opcode: HandshakeOpcode) => handshake_opcode = opcode;

        /// Sets the deviations from the specifications, for drivers and their tests.
        pub fn with_deviations(deviations: Deviations) => deviations = deviations;

        /// Sets the time after which the system breaks a connection if its peer acknowledges
        /// nothing.
        pub fn with_tcp_user_timeout(limit: Duration) => tcp_user_timeout = Some(limit);

        /// Sets the detector that gives up on a silent server.
        pub fn with_detector(detector: Detector) => detector = Some(detector);

        /// Sets the credential for pooled connections.
        pub fn with_credential(credential: Credential) => credential = Some(credential);
    }
}
