//! Setting options in code, one after the other.

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;

use super::{HandshakeOpcode, Options, SelectionStrategy, ServerApi, ServerMonitoringMode};
use crate::{
    address::ServerAddress, read_preference::ReadPreference, server::WireVersions,
    topology::TopologyType,
};

/// Nothing is checked here, as the order of the calls would matter: see [`Options::validate`].
impl Options {
    /// The same options with these servers to begin with.
    #[must_use]
    pub fn with_seeds(mut self, seeds: Vec<ServerAddress>) -> Self {
        self.seeds = seeds;
        self
    }

    /// The same options with this `directConnection`.
    #[must_use]
    pub fn with_direct_connection(mut self, direct_connection: bool) -> Self {
        self.direct_connection = Some(direct_connection);
        self
    }

    /// The same options with this `loadBalanced`.
    #[must_use]
    pub fn with_load_balanced(mut self, load_balanced: bool) -> Self {
        self.load_balanced = load_balanced;
        self
    }

    /// The same options with this `replicaSet`.
    #[must_use]
    pub fn with_replica_set(mut self, replica_set: impl Into<Arc<str>>) -> Self {
        self.replica_set = Some(replica_set.into());
        self
    }

    /// The same options with this topology type to begin with.
    #[must_use]
    pub fn with_initial_topology_type(mut self, initial_topology_type: TopologyType) -> Self {
        self.initial_topology_type = Some(initial_topology_type);
        self
    }

    /// The same options with this `heartbeatFrequencyMS`; at least 500 ms.
    #[must_use]
    pub fn with_heartbeat_frequency(mut self, heartbeat_frequency: Duration) -> Self {
        self.heartbeat_frequency = Some(heartbeat_frequency);
        self
    }

    /// The same options with this `connectTimeoutMS`; zero: no limit.
    #[must_use]
    pub fn with_connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// The same options with this `serverMonitoringMode`.
    #[must_use]
    pub fn with_server_monitoring_mode(
        mut self,
        server_monitoring_mode: ServerMonitoringMode,
    ) -> Self {
        self.server_monitoring_mode = server_monitoring_mode;
        self
    }

    /// The same options with this `localThresholdMS`.
    #[must_use]
    pub fn with_local_threshold(mut self, local_threshold: Duration) -> Self {
        self.local_threshold = local_threshold;
        self
    }

    /// The same options with this `serverSelectionTimeoutMS`; zero: selections do not wait.
    #[must_use]
    pub fn with_server_selection_timeout(mut self, server_selection_timeout: Duration) -> Self {
        self.server_selection_timeout = server_selection_timeout;
        self
    }

    /// The same options with this `serverSelectionTryOnce`, which must not contradict the connection string.
    #[must_use]
    pub fn with_server_selection_try_once(mut self, server_selection_try_once: bool) -> Self {
        self.server_selection_try_once = Some(server_selection_try_once);
        self
    }

    /// The same options with this `socketCheckIntervalMS`.
    #[must_use]
    pub fn with_socket_check_interval(mut self, socket_check_interval: Duration) -> Self {
        self.socket_check_interval = socket_check_interval;
        self
    }

    /// The same options with this default read preference.
    #[must_use]
    pub fn with_read_preference(mut self, read_preference: ReadPreference) -> Self {
        self.read_preference = read_preference;
        self
    }

    /// The same options with this choice among the servers in the latency window.
    #[must_use]
    pub fn with_selection_strategy(mut self, selection_strategy: SelectionStrategy) -> Self {
        self.selection_strategy = selection_strategy;
        self
    }

    /// The same options with this `appName`; at most 128 bytes.
    #[must_use]
    pub fn with_app_name(mut self, app_name: impl Into<Arc<str>>) -> Self {
        self.app_name = Some(app_name.into());
        self
    }

    /// The same options with this declared stable API.
    #[must_use]
    pub fn with_server_api(mut self, server_api: ServerApi) -> Self {
        self.server_api = Some(server_api);
        self
    }

    /// The same options with these wire versions of the client.
    #[must_use]
    pub fn with_wire_versions(mut self, wire_versions: WireVersions) -> Self {
        self.wire_versions = wire_versions;
        self
    }

    /// The same options with this name of the client in compatibility errors.
    #[must_use]
    pub fn with_driver_name(mut self, driver_name: impl Into<Arc<str>>) -> Self {
        self.driver_name = driver_name.into();
        self
    }

    /// The same options with this many monitored servers at most.
    #[must_use]
    pub fn with_max_servers(mut self, max_servers: usize) -> Self {
        self.max_servers = max_servers;
        self
    }

    /// The same options with this many selections that wait for a server at most.
    #[must_use]
    pub fn with_max_waiters(mut self, max_waiters: usize) -> Self {
        self.max_waiters = max_waiters;
        self
    }

    /// The same options with this length of a check's reply at most, in bytes.
    #[must_use]
    pub fn with_max_hello_size(mut self, max_hello_size: usize) -> Self {
        self.max_hello_size = max_hello_size;
        self
    }

    /// The same options with this framing of the first hello.
    #[must_use]
    pub fn with_handshake_opcode(mut self, handshake_opcode: HandshakeOpcode) -> Self {
        self.handshake_opcode = handshake_opcode;
        self
    }

    /// The same options with a failed check retried first, or not.
    #[must_use]
    pub fn with_legacy_retry_before_unknown(mut self, legacy_retry_before_unknown: bool) -> Self {
        self.legacy_retry_before_unknown = legacy_retry_before_unknown;
        self
    }

    /// The same options with failures to establish connections marking servers Unknown, or not.
    #[must_use]
    pub fn with_handshake_errors_mark_unknown(
        mut self,
        handshake_errors_mark_unknown: bool,
    ) -> Self {
        self.handshake_errors_mark_unknown = handshake_errors_mark_unknown;
        self
    }

    /// The same options with immediate checks of servers that are not writable primary, or not.
    #[must_use]
    pub fn with_single_threaded_immediate_check(
        mut self,
        single_threaded_immediate_check: bool,
    ) -> Self {
        self.single_threaded_immediate_check = single_threaded_immediate_check;
        self
    }
}
