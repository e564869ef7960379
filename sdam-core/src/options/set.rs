//! Setters of options, for use in code.

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;

use super::{
    Credential, HandshakeOpcode, Options, SelectionStrategy, ServerApi, ServerMonitoringMode,
};
use crate::{
    address::ServerAddress, read_preference::ReadPreference, topology_type::TopologyType,
    wire_versions::WireVersions,
};

/// The methods check nothing, because the result would depend on the order of the calls: see
/// [`Options::validate`].
impl Options {
    /// Sets the seeds.
    #[must_use]
    pub fn with_seeds(mut self, seeds: Vec<ServerAddress>) -> Self {
        self.seeds = seeds;
        self
    }

    /// Sets `directConnection`.
    #[must_use]
    pub fn with_direct_connection(mut self, direct_connection: bool) -> Self {
        self.direct_connection = Some(direct_connection);
        self
    }

    /// Sets `loadBalanced`.
    #[must_use]
    pub fn with_load_balanced(mut self, load_balanced: bool) -> Self {
        self.load_balanced = load_balanced;
        self
    }

    /// Sets `replicaSet`.
    #[must_use]
    pub fn with_replica_set(mut self, replica_set: impl Into<Arc<str>>) -> Self {
        self.replica_set = Some(replica_set.into());
        self
    }

    /// Sets the initial topology type.
    #[must_use]
    pub fn with_initial_topology_type(mut self, initial_topology_type: TopologyType) -> Self {
        self.initial_topology_type = Some(initial_topology_type);
        self
    }

    /// Sets `heartbeatFrequencyMS`; at least 500 ms.
    #[must_use]
    pub fn with_heartbeat_frequency(mut self, heartbeat_frequency: Duration) -> Self {
        self.heartbeat_frequency = Some(heartbeat_frequency);
        self
    }

    /// Sets the minimum time between two checks, for tests of drivers; at least 1 ms.
    #[must_use]
    pub fn with_min_heartbeat_frequency(mut self, min_heartbeat_frequency: Duration) -> Self {
        self.min_heartbeat_frequency = min_heartbeat_frequency;
        self
    }

    /// Sets `connectTimeoutMS`; `None` for no limit.
    #[must_use]
    pub fn with_connect_timeout(mut self, connect_timeout: impl Into<Option<Duration>>) -> Self {
        self.connect_timeout = connect_timeout.into();
        self
    }

    /// Sets `serverMonitoringMode`.
    #[must_use]
    pub fn with_server_monitoring_mode(
        mut self,
        server_monitoring_mode: ServerMonitoringMode,
    ) -> Self {
        self.server_monitoring_mode = server_monitoring_mode;
        self
    }

    /// Sets `localThresholdMS`.
    #[must_use]
    pub fn with_local_threshold(mut self, local_threshold: Duration) -> Self {
        self.local_threshold = local_threshold;
        self
    }

    /// Sets `serverSelectionTimeoutMS`; with zero, selections do not wait.
    #[must_use]
    pub fn with_server_selection_timeout(mut self, server_selection_timeout: Duration) -> Self {
        self.server_selection_timeout = server_selection_timeout;
        self
    }

    /// Sets `serverSelectionTryOnce`, which must not contradict the connection string.
    #[must_use]
    pub fn with_server_selection_try_once(mut self, server_selection_try_once: bool) -> Self {
        self.server_selection_try_once = Some(server_selection_try_once);
        self
    }

    /// Sets `socketCheckIntervalMS`.
    #[must_use]
    pub fn with_socket_check_interval(mut self, socket_check_interval: Duration) -> Self {
        self.socket_check_interval = socket_check_interval;
        self
    }

    /// Sets the default read preference.
    #[must_use]
    pub fn with_read_preference(mut self, read_preference: ReadPreference) -> Self {
        self.read_preference = read_preference;
        self
    }

    /// Sets the strategy for choosing among the servers in the latency window.
    #[must_use]
    pub fn with_selection_strategy(mut self, selection_strategy: SelectionStrategy) -> Self {
        self.selection_strategy = selection_strategy;
        self
    }

    /// Sets `appName`; at most 128 bytes.
    #[must_use]
    pub fn with_app_name(mut self, app_name: impl Into<Arc<str>>) -> Self {
        self.app_name = Some(app_name.into());
        self
    }

    /// Sets the declared stable API version.
    #[must_use]
    pub fn with_server_api(mut self, server_api: ServerApi) -> Self {
        self.server_api = Some(server_api);
        self
    }

    /// Sets the wire versions of the client.
    #[must_use]
    pub fn with_wire_versions(mut self, wire_versions: WireVersions) -> Self {
        self.wire_versions = wire_versions;
        self
    }

    /// Sets the client's name in compatibility errors.
    #[must_use]
    pub fn with_driver_name(mut self, driver_name: impl Into<Arc<str>>) -> Self {
        self.driver_name = driver_name.into();
        self
    }

    /// Sets the maximum number of monitored servers.
    #[must_use]
    pub fn with_max_servers(mut self, max_servers: usize) -> Self {
        self.max_servers = max_servers;
        self
    }

    /// Sets the maximum number of selections that wait for a server.
    #[must_use]
    pub fn with_max_waiters(mut self, max_waiters: usize) -> Self {
        self.max_waiters = max_waiters;
        self
    }

    /// Sets the maximum length of a reply to a check, in bytes.
    #[must_use]
    pub fn with_max_hello_size(mut self, max_hello_size: usize) -> Self {
        self.max_hello_size = max_hello_size;
        self
    }

    /// Sets the framing of the first hello.
    #[must_use]
    pub fn with_handshake_opcode(mut self, handshake_opcode: HandshakeOpcode) -> Self {
        self.handshake_opcode = handshake_opcode;
        self
    }

    /// Sets whether to retry a failed check before marking the server Unknown.
    #[must_use]
    pub fn with_legacy_retry_before_unknown(mut self, legacy_retry_before_unknown: bool) -> Self {
        self.legacy_retry_before_unknown = legacy_retry_before_unknown;
        self
    }

    /// Sets whether every failure to establish a connection marks the server Unknown.
    #[must_use]
    pub fn with_handshake_errors_mark_unknown(
        mut self,
        handshake_errors_mark_unknown: bool,
    ) -> Self {
        self.handshake_errors_mark_unknown = handshake_errors_mark_unknown;
        self
    }

    /// Sets whether single-threaded clients check a server at once after its "not writable primary"
    /// error.
    #[must_use]
    pub fn with_single_threaded_immediate_check(
        mut self,
        single_threaded_immediate_check: bool,
    ) -> Self {
        self.single_threaded_immediate_check = single_threaded_immediate_check;
        self
    }

    /// Sets the user as which pooled connections authenticate.
    #[must_use]
    pub fn with_credential(mut self, credential: Credential) -> Self {
        self.credential = Some(credential);
        self
    }
}
