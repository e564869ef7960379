//! The latest state of the topology.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ::sdam::{Clock, WeakTopology};
use derive_where::derive_where;

use crate::{
    ClusterTime, TopologyType,
    client::options::{ClientOptions, ServerAddress},
    cmap::Command,
    sdam::{
        Server, TopologyDescription, TransactionSupportStatus, convert,
        description::topology::{add_read_preference, minutes_to_duration},
    },
    selection_criteria::SelectionCriteria,
};

/// Reads the latest state. Does not keep the topology alive.
#[derive(Debug, Clone)]
pub(crate) struct TopologyWatcher {
    shared: Arc<Shared>,
    /// The version of the last observed state.
    seen: u64,
}

#[derive_where(Debug)]
struct Shared {
    topology: WeakTopology<Arc<Server>>,
    clock: Arc<dyn Clock>,
    #[derive_where(skip)]
    options: Arc<ClientOptions>,
    cluster_time: Mutex<Option<ClusterTime>>,
    /// The driver's view of the last requested version.
    #[derive_where(skip)]
    view: Mutex<(u64, Arc<TopologyDescription>)>,
}

/// A description of the topology with its servers.
pub(crate) struct TopologyState {
    pub(crate) description: TopologyDescription,
    servers: HashMap<ServerAddress, Arc<Server>>,
}

impl TopologyState {
    pub(crate) fn servers(&self) -> HashMap<ServerAddress, Arc<Server>> {
        self.servers.clone()
    }
}

impl TopologyWatcher {
    pub(super) fn new(
        topology: WeakTopology<Arc<Server>>,
        clock: Arc<dyn Clock>,
        options: Arc<ClientOptions>,
    ) -> Self {
        let shared = Shared {
            topology,
            clock,
            options,
            cluster_time: Mutex::default(),
            view: Mutex::default(),
        };
        Self { shared: Arc::new(shared), seen: 0 }
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    #[cfg(feature = "tracing-unstable")]
    pub(super) fn options(&self) -> &ClientOptions {
        &self.shared.options
    }

    /// Returns whether the topology is still open.
    pub(crate) fn is_alive(&self) -> bool {
        let topology = self.shared.topology.upgrade();
        topology.is_some_and(|topology| !topology.snapshot().is_closed())
    }

    /// Returns the driver's view of the latest description.
    pub(crate) fn view(&self) -> Arc<TopologyDescription> {
        let mut view = lock(&self.shared.view);
        let Some(topology) = self.shared.topology.upgrade() else {
            return Arc::clone(&view.1);
        };
        let snapshot = topology.snapshot();
        if view.0 != snapshot.version() {
            let (options, clock) = (&self.shared.options, &self.shared.clock);
            let new = TopologyDescription::new(snapshot.description(), options, None, clock);
            *view = (snapshot.version(), Arc::new(new));
        }
        Arc::clone(&view.1)
    }

    /// Returns the latest state without marking it as observed.
    pub(crate) fn peek_latest(&self) -> TopologyState {
        let mut description = (*self.view()).clone();
        description.cluster_time = self.cluster_time();
        let topology = self.shared.topology.upgrade();
        let servers = topology.iter().flat_map(|topology| topology.servers());
        let servers = servers.filter_map(|server| server.pool().cloned());
        TopologyState {
            description,
            servers: servers.map(|server| (server.address.clone(), server)).collect(),
        }
    }

    /// Returns the latest state. [`wait_for_update`](Self::wait_for_update) waits until it changes.
    pub(crate) fn observe_latest(&mut self) -> TopologyState {
        self.seen = self.version();
        self.peek_latest()
    }

    /// Waits for a state that was not observed yet. Returns whether there is one.
    #[cfg(any(test, feature = "in-use-encryption"))]
    pub(crate) async fn wait_for_update(&mut self, timeout: impl Into<Option<Duration>>) -> bool {
        let Some(topology) = self.shared.topology.upgrade() else {
            return false;
        };
        let (seen, timeout) = (self.seen, timeout.into().unwrap_or(Duration::MAX));
        let newer =
            topology.wait_for(|state| (state.version() > seen).then(|| state.version()), timeout);
        let newer = newer.await;
        self.seen = newer.unwrap_or(seen);
        newer.is_some()
    }

    pub(crate) fn topology_type(&self) -> TopologyType {
        self.read(|topology| convert::topology_type(topology.topology_type())).unwrap_or_default()
    }

    pub(crate) fn logical_session_timeout(&self) -> Option<Duration> {
        self.read(|topology| topology.logical_session_timeout_minutes())?.map(minutes_to_duration)
    }

    pub(crate) fn transaction_support_status(&self) -> TransactionSupportStatus {
        self.read(TransactionSupportStatus::of).unwrap_or_default()
    }

    /// Adds the read preference to a command for a selected server.
    pub(crate) fn update_command_with_read_pref(
        &self,
        _: &ServerAddress,
        command: &mut Command,
        criteria: &SelectionCriteria,
    ) {
        let types = self.read(|topology| (topology.topology_type(), only_type(topology)));
        if let Some((topology_type, server_type)) = types {
            add_read_preference(topology_type, server_type, command, criteria);
        }
    }

    pub(crate) fn cluster_time(&self) -> Option<ClusterTime> {
        lock(&self.shared.cluster_time).clone()
    }

    pub(super) fn advance_cluster_time(&self, to: ClusterTime) {
        let mut highest = lock(&self.shared.cluster_time);
        if highest.as_ref() < Some(&to) {
            *highest = Some(to);
        }
    }

    pub(super) fn sync_hosts(&self, hosts: std::collections::HashSet<ServerAddress>) {
        if let Some(topology) = self.shared.topology.upgrade() {
            let hosts: Vec<_> = hosts.iter().map(convert::address).collect();
            topology.handle_srv_hosts(&hosts);
        }
    }

    fn version(&self) -> u64 {
        let topology = self.shared.topology.upgrade();
        topology.map_or(0, |topology| topology.snapshot().version())
    }

    fn read<T>(&self, read: impl FnOnce(&::sdam::TopologyDescription) -> T) -> Option<T> {
        let topology = self.shared.topology.upgrade()?;
        let snapshot = topology.snapshot();
        Some(read(snapshot.description()))
    }
}

/// Returns the server type that matters for read preferences. All servers share it, except in
/// topologies of type Single.
fn only_type(topology: &::sdam::TopologyDescription) -> ::sdam::ServerType {
    use ::sdam::{ServerType, TopologyType};
    match topology.topology_type() {
        TopologyType::Sharded => ServerType::Mongos,
        TopologyType::LoadBalanced => ServerType::LoadBalancer,
        TopologyType::Single => {
            let server = topology.servers().first();
            server.map_or(ServerType::Unknown, |server| server.server_type)
        }
        _ => ServerType::RsOther,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Methods used only by the driver's own tests.
#[cfg(test)]
impl TopologyWatcher {
    /// Does nothing, because a topology has its seeds from the start.
    pub(crate) async fn wait_until_initialized(&mut self) {}

    pub(crate) fn server_addresses(&self) -> std::collections::HashSet<ServerAddress> {
        self.servers().into_keys().collect()
    }

    pub(crate) fn servers(&self) -> HashMap<ServerAddress, Arc<Server>> {
        self.peek_latest().servers
    }

    pub(crate) fn description(&self) -> TopologyDescription {
        self.peek_latest().description
    }

    pub(crate) fn server_description(
        &self,
        address: &ServerAddress,
    ) -> Option<crate::sdam::ServerDescription> {
        self.view().servers.get(address).cloned()
    }

    /// Simulates the outcome of a check.
    pub(super) fn handle_check(
        &self,
        address: &ServerAddress,
        outcome: Result<&[u8], crate::error::Error>,
        rtt: Duration,
    ) {
        use ::sdam::Stage;
        let Some(topology) = self.shared.topology.upgrade() else {
            return;
        };
        let Some(server) = topology.server(&convert::address(address)) else {
            return;
        };
        let outcome = outcome.map_err(|error| {
            let failure = ::sdam::Error::network(Stage::Hello, "the check failed");
            failure.with_source(error).without_context()
        });
        ::sdam::testing::play_check(&topology, server.id(), outcome, rtt);
    }
}
