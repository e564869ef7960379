//! What an operation asks of the server that is selected for it.

use alloc::{sync::Arc, vec::Vec};
use core::{fmt, time::Duration};

use sdam_core::{
    address::ServerAddress,
    options::{IDLE_WRITE_PERIOD, SMALLEST_MAX_STALENESS},
    read_preference::{InvalidReadPreference, ReadPreference},
    topology::{TopologyDescription, TopologyType},
};

use crate::{candidate::Selector, settings::Settings};

mod selector;

pub use selector::SelectorText;

/// What an operation asks of the server that is selected for it.
///
/// Built once and used for any number of selections; selecting with it and cloning it allocate
/// nothing. What belongs to the client and not to the operation is in [`Settings`].
///
/// # Which criteria an operation has
///
/// This crate sees no commands, so the caller keeps these rules (Server Selection: "Read operations",
/// "Write operations"; L-1, L-3, L-4, L-5, L-7):
///
/// | operation | criteria |
/// | --- | --- |
/// | `insert`, `update`, `delete`, `findAndModify`, `bulkWrite` | [`write`](Self::write) |
/// | a helper that may use secondaries, such as `find` | [`read`](Self::read) with its own preference, else that of the collection, the database or the client, whichever is the first that is set |
/// | an aggregation with `$out` or `$merge` | the same, [`with_write_stage`](Self::with_write_stage) |
/// | a helper that must or should use the primary | `read` with mode primary, whatever the defaults |
/// | a command that the user wrote | `read` with the preference given for it, else mode primary |
/// | `getMore`, `killCursors`, the rest of a sharded transaction | none: the server selected before |
/// | checks, authentication | none: they concern one server |
#[derive(Clone)]
pub struct Criteria {
    operation: Operation,
    /// What an aggregation with a write stage is where servers are too old for anything else.
    fallback: Option<Operation>,
    deprioritized: Option<Arc<[ServerAddress]>>,
    selector: Option<Arc<dyn Selector>>,
    name: Option<Arc<str>>,
    id: Option<i64>,
}

/// Whether an operation reads or writes (Server Selection: "operation type").
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Everything but a write command, with the read preference in force for it (L-3).
    Read(Arc<ReadPreference>),
    /// `insert`, `update`, `delete`, `findAndModify` and `bulkWrite`.
    Write,
}

impl Criteria {
    /// Asks for a server to read from with this preference.
    ///
    /// Fails if the preference contradicts itself (Server Selection: "Clients MUST raise an error
    /// if a non-empty tag set is given in tag_sets and the mode field is 'primary'").
    pub fn read(preference: impl Into<Arc<ReadPreference>>) -> Result<Self, InvalidReadPreference> {
        let preference = preference.into();
        preference.validate()?;
        Ok(Self::of(Operation::Read(preference)))
    }

    /// Asks for a server to write to.
    pub fn write() -> Self {
        Self::of(Operation::Write)
    }

    fn of(operation: Operation) -> Self {
        Self {
            operation,
            fallback: None,
            deprioritized: None,
            selector: None,
            name: None,
            id: None,
        }
    }

    /// The same criteria, avoiding the servers at `addresses` as long as there are others (Server
    /// Selection: "deprioritized servers"). Replaces the addresses avoided so far.
    #[must_use]
    pub fn with_deprioritized(
        mut self,
        addresses: impl IntoIterator<Item = ServerAddress>,
    ) -> Self {
        let mut addresses: Vec<_> = addresses.into_iter().collect();
        addresses.sort_unstable();
        addresses.dedup();
        self.deprioritized = (!addresses.is_empty()).then(|| addresses.into());
        self
    }

    /// The same criteria for another attempt, after one on the server at `failed` has met an error
    /// that may be retried.
    ///
    /// In a sharded cluster the next attempt avoids that server whatever the error was, elsewhere
    /// only if it is `overloaded`: if the error has the label `SystemOverloadedError`, and
    /// `enableOverloadRetargeting` is on (Server Selection: "deprioritized servers").
    #[must_use]
    pub fn for_retry(
        self,
        topology_type: TopologyType,
        failed: &ServerAddress,
        overloaded: bool,
    ) -> Self {
        if topology_type != TopologyType::Sharded && !overloaded {
            return self;
        }
        let mut addresses = self.deprioritized().to_vec();
        addresses.push(failed.clone());
        self.with_deprioritized(addresses)
    }

    /// The same criteria for an aggregation whose pipeline has a write stage (`$out`, `$merge`).
    ///
    /// Secondaries run such a pipeline since MongoDB 5.0. As long as some server is available that
    /// is older, the aggregation reads with mode primary whatever its preference says (CRUD: "Read
    /// preferences and server selection"). Without a preference, or for writes, nothing changes.
    #[must_use]
    pub fn with_write_stage(mut self) -> Self {
        self.fallback = match self.operation {
            Operation::Read(_) => Some(Operation::Read(Arc::default())),
            Operation::Write => None,
        };
        self
    }

    /// The same criteria with a selector of the operation's own, which runs after the client's
    /// ([`Settings::selector`]).
    #[must_use]
    pub fn with_selector(mut self, selector: Arc<dyn Selector>) -> Self {
        self.selector = Some(selector);
        self
    }

    /// The same criteria with the operation's name, such as `find`, for logs.
    #[must_use]
    pub fn with_operation_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The same criteria with the operation's id, for logs.
    #[must_use]
    pub fn with_operation_id(mut self, id: i64) -> Self {
        self.id = Some(id);
        self
    }

    /// Whether the operation reads or writes, and how it reads.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The operation as it counts on `topology`: the server is selected, and has to be told the read
    /// preference, as if the operation were this one.
    ///
    /// It only differs from [`operation`](Self::operation) for an aggregation
    /// [with a write stage](Self::with_write_stage).
    pub fn operation_on(&self, topology: &TopologyDescription) -> &Operation {
        match &self.fallback {
            Some(fallback) if has_server_before_5_0(topology) => fallback,
            _ => &self.operation,
        }
    }

    /// Whether mode primary counts on `topology` instead of the read preference.
    pub fn is_overridden_on(&self, topology: &TopologyDescription) -> bool {
        !core::ptr::eq(self.operation_on(topology), &raw const self.operation)
    }

    /// The read preference; `None` for writes.
    pub fn read_preference(&self) -> Option<&ReadPreference> {
        self.operation.read_preference()
    }

    /// The addresses to avoid, sorted, each once.
    pub fn deprioritized(&self) -> &[ServerAddress] {
        self.deprioritized.as_deref().unwrap_or_default()
    }

    /// The operation's own selector.
    pub fn selector(&self) -> Option<&Arc<dyn Selector>> {
        self.selector.as_ref()
    }

    /// The operation's name, for logs.
    pub fn operation_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The operation's id, for logs.
    pub fn operation_id(&self) -> Option<i64> {
        self.id
    }
}

impl Operation {
    /// The read preference; `None` for writes.
    pub fn read_preference(&self) -> Option<&ReadPreference> {
        match self {
            Self::Read(preference) => Some(preference),
            Self::Write => None,
        }
    }
}

/// Whether a server is available whose secondaries run no pipeline with a write stage. What is
/// behind a load balancer is newer.
fn has_server_before_5_0(topology: &TopologyDescription) -> bool {
    const WRITE_STAGE_WIRE_VERSION: i32 = 13;
    topology.topology_type() != TopologyType::LoadBalanced
        && topology.servers().iter().any(|server| {
            server.server_type.is_available() && server.wire_versions.max < WRITE_STAGE_WIRE_VERSION
        })
}

impl fmt::Display for Criteria {
    /// As [`Operation`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operation.fmt(f)
    }
}

impl fmt::Display for Operation {
    /// `query with ReadPreference <mode>...` or `write operation`, as selection errors word it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(preference) => write!(f, "query with ReadPreference {preference}"),
            Self::Write => f.write_str("write operation"),
        }
    }
}

impl fmt::Debug for Criteria {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Criteria")
            .field("operation", &self.operation)
            .field("has_write_stage", &self.fallback.is_some())
            .field("deprioritized", &self.deprioritized())
            .field("has_selector", &self.selector.is_some())
            .field("name", &self.name)
            .field("id", &self.id)
            .finish()
    }
}

/// Criteria that no server could meet, now or later: selection fails without waiting.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CriteriaError {
    /// The read preference contradicts itself.
    ReadPreference(InvalidReadPreference),
    /// The limit on staleness is finer than staleness can be told (Max Staleness:
    /// "smallestMaxStalenessSeconds").
    MaxStalenessTooSmall {
        /// The limit as given.
        limit: Duration,
        /// The client's heartbeat frequency.
        heartbeat_frequency: Duration,
        /// The smallest limit that is accepted with this heartbeat frequency.
        smallest: Duration,
    },
    /// A limit on staleness, and a server too old to report its last write; only clients that
    /// speak wire versions below 5 can meet one.
    MaxStalenessUnsupported {
        /// The old server.
        address: ServerAddress,
        /// Its greatest wire version.
        max_wire_version: i32,
    },
}

/// The first wire version whose hello carries `lastWrite`.
const LAST_WRITE_WIRE_VERSION: i32 = 5;

impl CriteriaError {
    /// What is wrong with `preference` on this topology (Max Staleness: "maxStalenessSeconds").
    ///
    /// Nothing is, on topologies that are no replica set: there the limit is for the mongos to
    /// judge. On replica sets a limit that is too small is an error whatever the mode and the known
    /// servers, also for `primaryPreferred` while there is a primary (L-24): "A driver MUST raise an
    /// error if the TopologyType is ReplicaSetWithPrimary or ReplicaSetNoPrimary" and the limit is too
    /// small (Server Selection: "maxStalenessSeconds"; its pseudocode checks this before it looks at
    /// servers). So a wrong setting shows at once and not only during a failover. PyMongo takes the
    /// primary.
    pub(crate) fn check(
        topology: &TopologyDescription,
        settings: &Settings,
        preference: &ReadPreference,
    ) -> Result<(), Self> {
        let Some(limit) = preference.max_staleness else {
            return Ok(());
        };
        if !topology.topology_type().is_replica_set() {
            return Ok(());
        }
        let smallest = smallest_max_staleness(settings.heartbeat_frequency);
        if limit < smallest {
            return Err(Self::MaxStalenessTooSmall {
                limit,
                heartbeat_frequency: settings.heartbeat_frequency,
                smallest,
            });
        }
        if settings.min_wire_version >= LAST_WRITE_WIRE_VERSION {
            return Ok(());
        }
        let old = topology.servers().iter().find(|server| {
            server.server_type.is_available() && server.wire_versions.max < LAST_WRITE_WIRE_VERSION
        });
        match old {
            Some(server) => Err(Self::MaxStalenessUnsupported {
                address: server.address.clone(),
                max_wire_version: server.wire_versions.max,
            }),
            None => Ok(()),
        }
    }
}

/// The smallest limit on staleness that a client with this heartbeat frequency may ask for.
pub fn smallest_max_staleness(heartbeat_frequency: Duration) -> Duration {
    heartbeat_frequency
        .saturating_add(IDLE_WRITE_PERIOD)
        .max(SMALLEST_MAX_STALENESS)
}

impl fmt::Display for CriteriaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadPreference(error) => error.fmt(f),
            Self::MaxStalenessTooSmall {
                limit,
                heartbeat_frequency,
                smallest,
            } => write!(
                f,
                "maxStalenessSeconds is {}, but must be at least {} (90 s, and heartbeatFrequencyMS \
                 {} plus the 10 s between writes of an idle primary): raise maxStalenessSeconds or \
                 leave it out",
                limit.as_secs_f64(),
                smallest.as_secs_f64(),
                heartbeat_frequency.as_millis(),
            ),
            Self::MaxStalenessUnsupported {
                address,
                max_wire_version,
            } => write!(
                f,
                "maxStalenessSeconds needs servers of wire version 5 (MongoDB 3.4) or newer, but \
                 {address} reports wire version {max_wire_version}: upgrade it or leave \
                 maxStalenessSeconds out"
            ),
        }
    }
}

impl fmt::Debug for CriteriaError {
    /// The text, as a program prints it that returns the error from `main`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for CriteriaError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::ReadPreference(error) => Some(error),
            Self::MaxStalenessTooSmall { .. } | Self::MaxStalenessUnsupported { .. } => None,
        }
    }
}

impl From<InvalidReadPreference> for CriteriaError {
    fn from(error: InvalidReadPreference) -> Self {
        Self::ReadPreference(error)
    }
}

#[cfg(test)]
mod tests;
