//! The driver's view of a deployment, converted from the framework's view.

pub(crate) mod server_selection;
#[cfg(test)]
pub(crate) mod test;

use std::{
    collections::HashMap,
    fmt,
    ops::Deref,
    sync::{Arc, LazyLock},
    time::Duration,
};

use ::sdam::{
    Clock,
    selection::command::{Additions, Opcode},
};
use serde::{Deserialize, Serialize, Serializer};

use crate::{
    bson::oid::ObjectId,
    client::ClusterTime,
    cmap::Command,
    error::{Error, Result},
    options::{ClientOptions, ServerAddress},
    sdam::{
        ServerDescription,
        convert::{self, Now},
    },
    selection_criteria::{ReadPreference, SelectionCriteria},
};

/// The possible types for a topology.
#[derive(
    Debug, Clone, Copy, Eq, PartialEq, Deserialize, Serialize, Default, derive_more::Display,
)]
#[non_exhaustive]
pub enum TopologyType {
    /// A single mongod server.
    Single,

    /// A replica set with no primary.
    ReplicaSetNoPrimary,

    /// A replica set with a primary.
    ReplicaSetWithPrimary,

    /// A sharded topology.
    Sharded,

    /// A load balanced topology.
    LoadBalanced,

    /// A topology whose type is not known.
    #[default]
    Unknown,
}

#[cfg(test)]
impl TopologyType {
    fn as_str(&self) -> String {
        self.to_string()
    }
}

/// A description of the most up-to-date information known about a topology.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct TopologyDescription {
    #[serde(skip)]
    pub(crate) single_seed: bool,
    pub(crate) topology_type: TopologyType,
    pub(crate) set_name: Option<String>,
    pub(crate) max_set_version: Option<i32>,
    pub(crate) max_election_id: Option<ObjectId>,
    pub(crate) compatibility_error: Option<String>,
    pub(crate) logical_session_timeout: Option<Duration>,
    #[serde(skip)]
    pub(crate) transaction_support_status: TransactionSupportStatus,
    #[serde(skip)]
    pub(crate) cluster_time: Option<ClusterTime>,
    #[serde(skip)]
    pub(crate) local_threshold: Option<Duration>,
    #[serde(skip)]
    pub(crate) heartbeat_freq: Option<Duration>,
    pub(crate) servers: Servers,
    pub(crate) srv_max_hosts: Option<u32>,
}

impl TopologyDescription {
    pub(crate) fn new(
        description: &Arc<::sdam::TopologyDescription>,
        options: &ClientOptions,
        cluster_time: Option<ClusterTime>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let election = description.max_election();
        let minutes = description.logical_session_timeout_minutes();
        Self {
            single_seed: options.hosts.len() == 1,
            topology_type: convert::topology_type(description.topology_type()),
            set_name: description.set_name().map(Into::into),
            max_set_version: election.set_version.and_then(|version| version.try_into().ok()),
            max_election_id: election.election_id.map(convert::driver_object_id),
            compatibility_error: description.compatibility_error().map(Into::into),
            logical_session_timeout: minutes.map(minutes_to_duration),
            transaction_support_status: TransactionSupportStatus::of(description),
            cluster_time,
            local_threshold: options.local_threshold,
            heartbeat_freq: options.heartbeat_freq,
            servers: Servers::of(Arc::clone(description), Arc::clone(clock)),
            srv_max_hosts: options.srv_max_hosts,
        }
    }

    pub(crate) fn topology_type(&self) -> TopologyType {
        self.topology_type
    }

    #[cfg(any(test, feature = "in-use-encryption"))]
    pub(crate) fn primary(&self) -> Option<&ServerDescription> {
        let mut servers = self.servers.values();
        servers.find(|server| server.server_type == crate::ServerType::RsPrimary)
    }
}

pub(crate) fn minutes_to_duration(minutes: i32) -> Duration {
    Duration::from_secs(60 * u64::try_from(minutes).unwrap_or(0))
}

/// The servers of a description. They are converted on first access, because most descriptions are
/// never read.
#[derive(Clone)]
pub(crate) struct Servers(Arc<LazyLock<ServerMap, Box<dyn FnOnce() -> ServerMap + Send>>>);

type ServerMap = HashMap<ServerAddress, ServerDescription>;

impl Servers {
    fn of(description: Arc<::sdam::TopologyDescription>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(move || {
            let now = Now::of(&*clock);
            let servers = description.servers().iter();
            let servers = servers.map(|server| convert::driver_description(server, now));
            servers.map(|server| (server.address.clone(), server)).collect()
        }))))
    }
}

impl From<ServerMap> for Servers {
    fn from(servers: ServerMap) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(move || servers))))
    }
}

impl Default for Servers {
    fn default() -> Self {
        Self::from(ServerMap::new())
    }
}

impl Deref for Servers {
    type Target = ServerMap;

    fn deref(&self) -> &ServerMap {
        &self.0
    }
}

impl IntoIterator for Servers {
    type Item = (ServerAddress, ServerDescription);
    type IntoIter = std::collections::hash_map::IntoIter<ServerAddress, ServerDescription>;

    fn into_iter(self) -> Self::IntoIter {
        (*self).clone().into_iter()
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Serialize for Servers {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

/// Adds the read preference to a command for a server of this type.
pub(crate) fn add_read_preference(
    topology_type: ::sdam::TopologyType,
    server_type: ::sdam::ServerType,
    command: &mut Command,
    criteria: &SelectionCriteria,
) {
    use ::sdam::ServerType;
    let any = ReadPreference::PrimaryPreferred { options: None };
    let preference = match criteria {
        SelectionCriteria::ReadPreference(preference) => preference,
        // A router selects the member itself. Otherwise, the member that the predicate selected
        // must serve the command, whatever its type.
        SelectionCriteria::Predicate(_) => match server_type {
            ServerType::Mongos | ServerType::LoadBalancer => return,
            _ => &any,
        },
    };
    let specified = convert::read_preference(preference);
    let sent = Additions::for_read(topology_type, server_type, Some(&specified), Opcode::Msg);
    if sent.read_preference.is_some() {
        // On a direct connection, a member of any type may serve the command.
        let is_primary = matches!(preference, ReadPreference::Primary);
        command.set_read_preference(if is_primary { any } else { preference.clone() });
    }
}

pub(crate) fn choose_n<T>(values: &[T], n: usize) -> impl Iterator<Item = &T> {
    use rand::{SeedableRng, seq::IndexedRandom};
    values.choose_multiple(&mut rand::rngs::SmallRng::from_os_rng(), n)
}

/// The topology's support for transactions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum TransactionSupportStatus {
    /// The servers known so far do not determine whether transactions are supported.
    #[default]
    Undetermined,

    /// Sessions are not supported, or the servers are too old.
    Unsupported,

    /// Sessions are supported, and the servers are recent enough. A transaction may still fail for
    /// other reasons.
    Supported,
}

impl TransactionSupportStatus {
    pub(crate) fn of(description: &::sdam::TopologyDescription) -> Self {
        use ::sdam::TopologyType;
        let first_version = match description.topology_type() {
            TopologyType::LoadBalanced => return Self::Supported,
            TopologyType::Sharded => 8,
            _ => 7,
        };
        let servers = description.servers().iter();
        let mut known = servers.filter(|server| server.server_type.is_available()).peekable();
        if known.peek().is_none() {
            Self::Undetermined
        } else if known.all(|server| server.wire_versions.max >= first_version) {
            Self::Supported
        } else {
            Self::Unsupported
        }
    }
}

pub(crate) fn verify_max_staleness(
    max_staleness: Duration,
    heartbeat_frequency: Duration,
) -> Result<()> {
    let smallest = ::sdam::selection::criteria::smallest_max_staleness(heartbeat_frequency);
    if max_staleness < smallest {
        return Err(Error::invalid_argument(format!(
            "invalid max_staleness value: must be at least {} seconds",
            smallest.as_secs()
        )));
    }
    Ok(())
}
