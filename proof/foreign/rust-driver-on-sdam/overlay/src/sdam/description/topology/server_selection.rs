//! Wraps the framework's selection algorithm in the driver's criteria, servers and errors.

#[cfg(test)]
mod test;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use ::sdam::{
    Clock, Criteria, Options,
    discovery::options::SelectionStrategy,
    selection::{
        self,
        candidate::{Candidate, Candidates},
        settings::Settings,
    },
};

use super::TopologyDescription;
use crate::{
    ServerType,
    error::{Error, ErrorKind, Result},
    options::ServerAddress,
    sdam::{DEFAULT_HEARTBEAT_FREQUENCY, Server, ServerDescription, ServerInfo, convert},
    selection_criteria::{ReadPreference, SelectionCriteria},
};

const DEFAULT_LOCAL_THRESHOLD: Duration = Duration::from_millis(15);

/// A selected server. It counts as one operation in progress until it is dropped.
#[derive(Debug)]
pub(crate) enum SelectedServer {
    /// A server selected by the topology, which counts the operation.
    Counted(::sdam::SelectedServer<Arc<Server>>),
    /// A server selected from a description only.
    Plain(Arc<Server>),
}

impl Deref for SelectedServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        match self {
            Self::Counted(server) => server.pool(),
            Self::Plain(server) => server,
        }
    }
}

/// Returns the framework's criteria for an operation.
pub(crate) fn criteria(
    criteria: &SelectionCriteria,
    deprioritized: Option<&HashSet<ServerAddress>>,
    clock: &Arc<dyn Clock>,
) -> Result<Criteria> {
    let criteria = convert::criteria(criteria, clock)?;
    Ok(deprioritize(criteria, deprioritized))
}

fn deprioritize(criteria: Criteria, addresses: Option<&HashSet<ServerAddress>>) -> Criteria {
    match addresses {
        Some(addresses) if !addresses.is_empty() => {
            criteria.with_deprioritized(addresses.iter().map(convert::address))
        }
        _ => criteria,
    }
}

/// Selects a server from this description; `None` if none is suitable.
pub(crate) fn attempt_to_select_server(
    criteria: &SelectionCriteria,
    topology: &TopologyDescription,
    servers: &HashMap<ServerAddress, Arc<Server>>,
    deprioritized: Option<&HashSet<ServerAddress>>,
) -> Result<Option<SelectedServer>> {
    if let Some(message) = topology.compatibility_error.clone() {
        return Err(ErrorKind::ServerSelection { message }.into());
    }
    let known = topology.to_sdam();
    let suitable = topology.suitable(&known, criteria, deprioritized)?;
    let window = selection::latency_window(&suitable, topology.threshold());
    let server =
        |candidate: Candidate<'_>| servers.get(&convert::driver_address(&candidate.server.address));
    let load = |candidate| server(candidate).map_or(0, |server| server.operation_count());
    let chosen = selection::pick(&window, SelectionStrategy::TwoChoices, load, rand::random());
    let server = chosen.and_then(|candidate| server(candidate).cloned());
    Ok(server.map(SelectedServer::Plain))
}

impl TopologyDescription {
    pub(crate) fn filter_servers_by_selection_criteria(
        &self,
        criteria: &SelectionCriteria,
        deprioritized: Option<&HashSet<ServerAddress>>,
    ) -> Vec<&ServerDescription> {
        let known = self.to_sdam();
        let suitable = self.suitable(&known, criteria, deprioritized);
        let addresses = suitable.iter().flat_map(|servers| servers.iter());
        let addresses = addresses.map(|server| convert::driver_address(&server.server.address));
        addresses.filter_map(|address| self.servers.get(&address)).collect()
    }

    pub(crate) fn retain_servers_within_latency_window(
        &self,
        suitable: &mut Vec<&ServerDescription>,
    ) {
        let times = suitable.iter().filter_map(|server| server.average_round_trip_time);
        let limit = times.min().unwrap_or_default().saturating_add(self.threshold());
        suitable.retain(|server| match server.average_round_trip_time {
            Some(time) => time <= limit,
            None => server.server_type == ServerType::LoadBalancer,
        });
    }

    pub(crate) fn has_available_servers(&self) -> bool {
        self.servers.values().any(ServerDescription::is_available)
    }

    pub(crate) fn timeout_message(&self, criteria: &SelectionCriteria) -> String {
        if self.has_available_servers() {
            format!(
                "Server selection timeout: None of the available servers suitable for criteria \
                 {criteria:?}. Topology: {self}"
            )
        } else {
            format!("Server selection timeout: No available servers. Topology: {self}")
        }
    }

    fn suitable<'t>(
        &self,
        known: &'t ::sdam::TopologyDescription,
        criteria: &SelectionCriteria,
        deprioritized: Option<&HashSet<ServerAddress>>,
    ) -> Result<Candidates<'t>> {
        let any = SelectionCriteria::from(ReadPreference::Nearest { options: None });
        let preference = match criteria {
            SelectionCriteria::ReadPreference(_) => criteria,
            SelectionCriteria::Predicate(_) => &any,
        };
        let options = Options::new(Vec::new())
            .with_local_threshold(self.threshold())
            .with_heartbeat_frequency(self.heartbeat_freq.unwrap_or(DEFAULT_HEARTBEAT_FREQUENCY));
        let settings = Settings::new(&options);
        let wanted = deprioritize(convert::preference_criteria(preference)?, deprioritized);
        let mut suitable = selection::suitable(known, &settings, &wanted)
            .map_err(|error| Error::invalid_argument(error.to_string()))?;
        if let SelectionCriteria::Predicate(predicate) = criteria {
            suitable.retain(|candidate| {
                let address = convert::driver_address(&candidate.server.address);
                let server = self.servers.get(&address);
                server.is_some_and(|server| predicate(&ServerInfo::new_borrowed(server)))
            });
        }
        Ok(suitable)
    }

    fn to_sdam(&self) -> ::sdam::TopologyDescription {
        let servers = self.servers.values().map(convert::description);
        ::sdam::TopologyDescription::new(convert::sdam_topology_type(self.topology_type), servers)
    }

    fn threshold(&self) -> Duration {
        self.local_threshold.unwrap_or(DEFAULT_LOCAL_THRESHOLD)
    }
}

impl fmt::Display for TopologyDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ Type: {}", self.topology_type)?;
        if let Some(set_name) = &self.set_name {
            write!(f, ", Set Name: {set_name}")?;
        }
        if let Some(version) = self.max_set_version {
            write!(f, ", Max Set Version: {version}")?;
        }
        if let Some(id) = self.max_election_id {
            write!(f, ", Max Election ID: {id}")?;
        }
        if let Some(error) = &self.compatibility_error {
            write!(f, ", Compatibility Error: {error}")?;
        }
        let mut separator = ", Servers: [ ";
        for server in self.servers.values() {
            write!(f, "{separator}{}", ServerInfo::new_borrowed(server))?;
            separator = ", ";
        }
        f.write_str(if self.servers.is_empty() { " }" } else { " ] }" })
    }
}
