//! The description of the whole deployment.

mod reasons;
#[cfg(test)]
mod tests;

use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};
use core::fmt;

pub use self::reasons::{Departure, DepartureReason, Obstacle};
use crate::{
    address::ServerAddress,
    ids::{ElectionTuple, ServerId},
    rng::Rng,
    server::{ServerDescription, ServerType},
    text::Joined,
};

/// Everything known about a deployment, as an immutable value (SDAM: "TopologyDescription").
///
/// Servers are sorted by address, so that the iteration order is defined and look-up is a binary
/// search. Equality decides whether a change is published. It compares the type, the set name, the
/// maximum election, compatibility, the session timeout, and the servers (by their own rule of
/// equality), but ignores departures.
///
/// With the feature `serde`, each server is serialized only as its address and its type.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "camelCase"))]
pub struct TopologyDescription {
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub(crate) topology_type: TopologyType,
    pub(crate) set_name: Option<Arc<str>>,
    pub(crate) max_election: ElectionTuple,
    pub(crate) logical_session_timeout_minutes: Option<i32>,
    pub(crate) compatibility_error: Option<Arc<str>>,
    #[cfg_attr(feature = "serde", serde(serialize_with = "types"))]
    pub(crate) servers: Vec<Arc<ServerDescription>>,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) departures: Arc<[Departure]>,
}

impl TopologyDescription {
    /// Creates a description of `servers`, in any order, with default values for everything else.
    ///
    /// This constructor is for tests and tools; a
    /// [`Deployment`](crate::deployment::Deployment) creates its own descriptions. If
    /// several servers have the same address, the last one is used.
    pub fn new(
        topology_type: TopologyType,
        servers: impl IntoIterator<Item = ServerDescription>,
    ) -> Self {
        let mut description = Self { topology_type, ..Self::default() };
        for server in servers {
            description.put(Arc::new(server));
        }
        description.refresh_session_timeout();
        description
    }

    /// Adds departed servers to the description, for tests and tools.
    #[must_use]
    pub fn with_departures(mut self, departures: &[Departure]) -> Self {
        self.remember(departures);
        self
    }

    /// Returns the kind of the deployment.
    pub fn topology_type(&self) -> TopologyType {
        self.topology_type
    }

    /// Returns the replica set's name, configured or discovered.
    pub fn set_name(&self) -> Option<&str> {
        self.set_name.as_deref()
    }

    /// Returns the greatest `electionId` and `setVersion` reported by a primary (SDAM:
    /// "maxElectionId", "maxSetVersion").
    #[doc(alias("maxElectionId", "maxSetVersion"))]
    pub fn max_election(&self) -> ElectionTuple {
        self.max_election
    }

    /// Returns the servers, sorted by address.
    pub fn servers(&self) -> &[Arc<ServerDescription>] {
        &self.servers
    }

    /// Returns the server at `address`.
    pub fn server(&self, address: &ServerAddress) -> Option<&Arc<ServerDescription>> {
        self.servers.get(self.position(address).ok()?)
    }

    /// Returns the server with this id.
    pub fn server_by_id(&self, id: ServerId) -> Option<&Arc<ServerDescription>> {
        self.servers.iter().find(|server| server.id == id)
    }

    /// Returns the primary, if one is known.
    pub fn primary(&self) -> Option<&Arc<ServerDescription>> {
        self.servers.iter().find(|server| server.server_type == ServerType::RsPrimary)
    }

    /// Returns whether writes can succeed: some server is writable, the client is compatible with
    /// the servers, and on a direct connection the server's type is one that accepts writes.
    pub fn accepts_writes(&self) -> bool {
        self.is_compatible()
            && self.has_writable_server()
            && (self.topology_type != TopologyType::Single
                || self.servers.iter().any(|server| server.server_type.is_writable()))
    }

    /// Returns whether a server can be selected for writes (SDAM Monitoring: "hasWritableServer").
    ///
    /// On a direct connection, this is any server that has answered, even a secondary;
    /// [`accepts_writes`](Self::accepts_writes) considers its type.
    pub fn has_writable_server(&self) -> bool {
        match self.topology_type {
            TopologyType::Unknown | TopologyType::ReplicaSetNoPrimary => false,
            TopologyType::ReplicaSetWithPrimary | TopologyType::LoadBalanced => true,
            // A sharded topology contains only routers and servers that have not answered.
            TopologyType::Single | TopologyType::Sharded => {
                self.servers.iter().any(|server| server.server_type.is_available())
            }
        }
    }

    /// Returns whether the client has a wire version in common with every server.
    pub fn is_compatible(&self) -> bool {
        self.compatibility_error.is_none()
    }

    /// Returns a message that names the first incompatible server (SDAM: "compatibilityError").
    #[doc(alias = "compatible")]
    pub fn compatibility_error(&self) -> Option<&str> {
        self.compatibility_error.as_deref()
    }

    /// Returns the minimum session timeout of the data-bearing servers; `None` if there is no such
    /// server, or if one of them does not support sessions.
    pub fn logical_session_timeout_minutes(&self) -> Option<i32> {
        self.logical_session_timeout_minutes
    }

    /// Returns the servers that left most recently and have not joined again, oldest first; at most
    /// [`Departure::REMEMBERED`]. Closing the topology empties the list. A
    /// [misnamed](DepartureReason::Misnamed) server stays in the list until it answers under its
    /// own name.
    pub fn departures(&self) -> &[Departure] {
        &self.departures
    }

    /// Adds servers that have left to the departures, and removes servers that have joined again.
    pub(crate) fn remember(&mut self, left: &[Departure]) {
        let away = |departure: &&Departure| {
            let own_name = match &departure.reason {
                DepartureReason::Misnamed { me } => self.server(me),
                _ => None,
            };
            self.position(&departure.address).is_err()
                && !own_name.is_some_and(|server| server.server_type.is_available())
        };
        let known: Vec<&Departure> = self.departures.iter().chain(left).filter(away).collect();
        let forgotten = known.len().saturating_sub(Departure::REMEMBERED);
        self.departures = known.into_iter().skip(forgotten).cloned().collect();
    }

    /// Returns the index of the server at `address`, or the position at which to insert it.
    pub(crate) fn position(&self, address: &ServerAddress) -> Result<usize, usize> {
        self.servers.binary_search_by(|server| server.address.cmp(address))
    }

    /// Inserts `server`, replacing any server at the same address.
    pub(crate) fn put(&mut self, server: Arc<ServerDescription>) {
        match self.position(&server.address) {
            Ok(index) => {
                if let Some(slot) = self.servers.get_mut(index) {
                    *slot = server;
                }
            }
            Err(index) => self.servers.insert(index, server),
        }
    }

    /// Recomputes the session timeout from the data-bearing servers (SDAM:
    /// "logicalSessionTimeoutMinutes").
    pub(crate) fn refresh_session_timeout(&mut self) {
        let mut minutes = self
            .servers
            .iter()
            .filter(|server| server.server_type.is_data_bearing())
            .map(|server| server.logical_session_timeout_minutes);
        // `None` sorts below every number, so a single server without sessions makes the result
        // `None`.
        self.logical_session_timeout_minutes =
            minutes.next().and_then(|first| minutes.fold(first, Ord::min));
    }
}

impl TopologyDescription {
    /// Returns the hosts of an SRV record that the topology should contain, without duplicates. If
    /// `max_hosts` is 0 or not less than the number of hosts, it returns all of them. Otherwise, it
    /// returns the hosts that the topology already contains, and random others up to a total of
    /// `max_hosts` (Polling SRV Records for mongos Discovery: "srvMaxHosts").
    #[doc(alias = "srvMaxHosts")]
    pub(crate) fn sample_hosts(
        &self,
        hosts: &[ServerAddress],
        max_hosts: usize,
        rng: &mut Rng,
    ) -> Vec<ServerAddress> {
        let distinct: BTreeSet<_> = hosts.iter().cloned().collect();
        if max_hosts == 0 || distinct.len() <= max_hosts {
            return distinct.into_iter().collect();
        }
        let is_known = |host: &ServerAddress| self.server(host).is_some();
        let (mut sample, mut new): (Vec<_>, Vec<_>) = distinct.into_iter().partition(is_known);
        rng.shuffle(&mut new);
        new.truncate(max_hosts.saturating_sub(sample.len()));
        sample.append(&mut new);
        sample
    }
}

impl PartialEq for TopologyDescription {
    fn eq(&self, other: &Self) -> bool {
        self.topology_type == other.topology_type
            && self.max_election == other.max_election
            && self.logical_session_timeout_minutes == other.logical_session_timeout_minutes
            && self.set_name == other.set_name
            && self.compatibility_error == other.compatibility_error
            && self.servers.len() == other.servers.len()
            && self
                .servers
                .iter()
                .zip(&other.servers)
                .all(|(own, other)| Arc::ptr_eq(own, other) || own == other)
    }
}

impl Eq for TopologyDescription {}

impl fmt::Display for TopologyDescription {
    /// Writes one line for logs: the type, then each server with its main properties, or the reason
    /// why no server is left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ type: {}", self.topology_type)?;
        if let Some(name) = self.set_name() {
            write!(f, ", setName: {name}")?;
        }
        if let Some(error) = self.compatibility_error() {
            write!(f, ", compatibilityError: {error}")?;
        }
        write!(f, ", servers: [{}]", Joined(&self.servers, ", "))?;
        if self.servers.is_empty() && !self.departures.is_empty() {
            write!(f, ", left: {}", Joined(&*self.departures, "; "))?;
        }
        f.write_str(" }")
    }
}

impl fmt::Display for ServerDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ address: {}, type: {}", self.address, self.server_type)?;
        if let Some(rtt) = self.rtt {
            write!(f, ", rtt: {:.1} ms", rtt.average.as_secs_f64() * 1e3)?;
        }
        if !self.tags.is_empty() {
            write!(f, ", tags: {}", self.tags)?;
        }
        if let Some(error) = &self.error {
            write!(f, ", error: {}", error.message())?;
        }
        f.write_str(" }")
    }
}

/// The kind of a deployment (SDAM: "TopologyType").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
pub enum TopologyType {
    /// Nothing is known yet, or the topology is closed.
    #[default]
    Unknown,
    /// One server of any type.
    Single,
    /// A replica set whose primary is not known.
    ReplicaSetNoPrimary,
    /// A replica set with a primary.
    ReplicaSetWithPrimary,
    /// A sharded cluster, represented by its routers.
    Sharded,
    /// A deployment behind a load balancer.
    LoadBalanced,
}

impl TopologyType {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl TopologyType {
    /// Returns whether this is one of the two replica set types.
    pub const fn is_replica_set(self) -> bool {
        matches!(self, Self::ReplicaSetNoPrimary | Self::ReplicaSetWithPrimary)
    }

    /// Returns whether an SRV record is polled for new hosts (Polling SRV Records for mongos
    /// Discovery: "Implementation"). Once a topology has a type that is not polled, it never
    /// returns to a type that is polled.
    pub const fn polls_srv(self) -> bool {
        matches!(self, Self::Unknown | Self::Sharded)
    }
}

/// Serializes the types of the servers, keyed by address.
#[cfg(feature = "serde")]
fn types<S: serde::Serializer>(
    servers: &[Arc<ServerDescription>],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(servers.iter().map(|server| (&server.address, server.server_type)))
}
