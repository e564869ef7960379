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

/// Defines setters, each with the field that it sets, its type and its new value.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($field:ident: $type:ty) = $value:expr;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $field: $type) -> Self {
            self.$field = $value;
            self
        }
    )*};
}

/// These methods do not validate, because the result would depend on the order of the calls: see
/// [`Options::validate`].
impl Options {
    setters! {
        /// Sets the seeds.
        with_seeds(seeds: Vec<ServerAddress>) = seeds;

        /// Sets `directConnection`.
        with_direct_connection(direct_connection: bool) = Some(direct_connection);

        /// Sets `loadBalanced`.
        with_load_balanced(load_balanced: bool) = load_balanced;

        /// Sets `replicaSet`.
        with_replica_set(replica_set: impl Into<Arc<str>>) = Some(replica_set.into());

        /// Sets the initial topology type.
        with_initial_topology_type(initial_topology_type: TopologyType) = Some(initial_topology_type);

        /// Sets `heartbeatFrequencyMS`; at least 500 ms.
        with_heartbeat_frequency(heartbeat_frequency: Duration) = Some(heartbeat_frequency);

        /// Sets `connectTimeoutMS`; `None` for no limit.
        with_connect_timeout(connect_timeout: impl Into<Option<Duration>>) = connect_timeout.into();

        /// Sets `serverMonitoringMode`.
        with_server_monitoring_mode(server_monitoring_mode: ServerMonitoringMode) = server_monitoring_mode;

        /// Sets `localThresholdMS`.
        with_local_threshold(local_threshold: Duration) = local_threshold;

        /// Sets `serverSelectionTimeoutMS`; with zero, selections do not wait.
        with_server_selection_timeout(server_selection_timeout: Duration) = server_selection_timeout;

        /// Sets `serverSelectionTryOnce`, which must not contradict the connection string.
        with_server_selection_try_once(server_selection_try_once: bool) = Some(server_selection_try_once);

        /// Sets `socketCheckIntervalMS`.
        with_socket_check_interval(socket_check_interval: Duration) = socket_check_interval;

        /// Sets the default read preference.
        with_read_preference(read_preference: ReadPreference) = read_preference;

        /// Sets the strategy for choosing among the servers in the latency window.
        with_selection_strategy(selection_strategy: SelectionStrategy) = selection_strategy;

        /// Sets `appName`; at most 128 bytes.
        with_app_name(app_name: impl Into<Arc<str>>) = Some(app_name.into());

        /// Sets the declared stable API version.
        with_server_api(server_api: ServerApi) = Some(server_api);

        /// Sets the wire versions of the client.
        with_wire_versions(wire_versions: WireVersions) = wire_versions;

        /// Sets the client's name in compatibility errors.
        with_driver_name(driver_name: impl Into<Arc<str>>) = driver_name.into();

        /// Sets the maximum number of monitored servers.
        with_max_servers(max_servers: usize) = max_servers;

        /// Sets the maximum number of selections that wait for a server.
        with_max_waiters(max_waiters: usize) = max_waiters;

        /// Sets the maximum length of a reply to a check, in bytes.
        with_max_hello_size(max_hello_size: usize) = max_hello_size;

        /// Sets the framing of the first hello.
        with_handshake_opcode(handshake_opcode: HandshakeOpcode) = handshake_opcode;

        /// Sets the deviations from the specifications, for drivers and their tests.
        with_deviations(deviations: Deviations) = deviations;

        /// Sets the time until the system breaks a connection whose peer acknowledges nothing.
        with_tcp_user_timeout(tcp_user_timeout: Duration) = Some(tcp_user_timeout);
        /// Sets the strategy for giving up on a silent server.
        with_detector(detector: Detector) = Some(detector);
        /// Sets whether reads avoid suspected servers.
        with_avoid_suspected(avoid_suspected: bool) = avoid_suspected;

        /// Sets the credential for pooled connections.
        with_credential(credential: Credential) = Some(credential);
    }
}
