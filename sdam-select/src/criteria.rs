//! The selection criteria of an operation.

use alloc::{
    format,
    string::{String, ToString as _},
    sync::Arc,
    vec::Vec,
};
use core::{fmt, ops::Deref, time::Duration};

use sdam_core::{
    Joined,
    address::ServerAddress,
    error::{Error, SYSTEM_OVERLOADED_ERROR},
    options::{ConfigError, IDLE_WRITE_PERIOD, SMALLEST_MAX_STALENESS},
    read_preference::{ReadMode, ReadPreference},
    topology::{TopologyDescription, TopologyType},
};

use crate::{candidate::Selector, settings::Settings};

#[cfg(test)]
mod tests;

/// The selection criteria of an operation.
///
/// Criteria can be used for any number of selections. Selecting with criteria and cloning them
/// allocates nothing. Creating criteria for writes, or for a read preference that consists only of
/// a mode, allocates nothing either. The client's settings, which do not depend on the operation,
/// are in [`Settings`].
///
/// # Criteria of each operation
///
/// This crate does not see commands, so the caller applies these rules (Server Selection: "Read
/// operations", "Write operations"; L-1, L-3, L-4, L-5, L-7):
///
/// | operation | criteria |
/// | --- | --- |
/// | `insert`, `update`, `delete`, `findAndModify`, `bulkWrite` | [`write`](Self::write) |
/// | a helper that may use secondaries, such as `find` | [`read`](Self::read) with the first preference that is set: its own, the collection's, the database's, the client's |
/// | an aggregation with `$out` or `$merge` | the same, [`with_write_stage`](Self::with_write_stage) |
/// | a helper that must or should use the primary | `read` with mode primary, regardless of the defaults |
/// | a command written by the user | `read` with the preference given for it, else mode primary |
/// | `getMore`, `killCursors`, the rest of a sharded transaction | none: uses the server selected before |
/// | checks, authentication | none: concerns one server |
#[derive(Clone, Debug)]
pub struct Criteria {
    operation: Operation,
    /// The operation that replaces an aggregation with a write stage if servers are too old to run
    /// the aggregation on secondaries.
    fallback: Option<Operation>,
    deprioritized: Option<Arc<[ServerAddress]>>,
    selector: Option<Arc<dyn Selector>>,
    name: Option<Arc<str>>,
    id: Option<i64>,
}

/// The type of an operation, read or write (Server Selection: "operation type").
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Any command except a write, with the effective read preference (L-3).
    Read(SharedPreference),
    /// `insert`, `update`, `delete`, `findAndModify` and `bulkWrite`.
    Write,
}

impl Criteria {
    /// Creates criteria for reading with this preference.
    ///
    /// Fails if the preference is contradictory (Server Selection: "Clients MUST raise an error if
    /// a non-empty tag set is given in tag_sets and the mode field is 'primary'").
    pub fn read(preference: impl Into<SharedPreference>) -> Result<Self, ConfigError> {
        let preference = preference.into();
        preference.validate()?;
        Ok(Self::of(Operation::Read(preference)))
    }

    /// Creates criteria for reading with mode primary: from the primary of a replica set, or from
    /// any suitable server of another topology.
    pub fn primary() -> Self {
        Self::of(Operation::Read(ReadMode::Primary.into()))
    }

    /// Creates criteria for writing.
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

    /// Deprioritizes the servers at `addresses`: they are avoided as long as there are others
    /// (Server Selection: "deprioritized servers"). Replaces the previously deprioritized
    /// addresses.
    #[doc(alias = "deprioritizedServers")]
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

    /// Marks an aggregation whose pipeline has a write stage (`$out`, `$merge`).
    ///
    /// Secondaries can run such a pipeline since MongoDB 5.0. As long as an older server is
    /// available, the aggregation reads with mode primary regardless of its preference (CRUD: "Read
    /// preferences and server selection"). This method has no effect on criteria for writes.
    #[must_use]
    pub fn with_write_stage(mut self) -> Self {
        self.fallback = match self.operation {
            Operation::Read(_) => Some(Operation::Read(ReadMode::Primary.into())),
            Operation::Write => None,
        };
        self
    }

    /// Returns the criteria for the next attempt, after an attempt on `server` failed with `error`.
    /// The crate `sdam` offers this as `SelectedServer::criteria_after`.
    ///
    /// In a sharded cluster, the next attempt avoids that server after any error. On other
    /// topologies, it does so only if the error has the label `SystemOverloadedError` and
    /// `retargets_overload`, the client's `enableOverloadRetargeting`, is true (Server Selection:
    /// "deprioritized servers").
    #[must_use]
    pub fn after(
        self,
        (server, topology_type): (&ServerAddress, TopologyType),
        retargets_overload: bool,
        error: &Error,
    ) -> Self {
        let overloaded = retargets_overload && error.has_label(SYSTEM_OVERLOADED_ERROR);
        if topology_type != TopologyType::Sharded && !overloaded {
            return self;
        }
        let mut addresses = self.deprioritized().to_vec();
        addresses.push(server.clone());
        self.with_deprioritized(addresses)
    }

    /// Sets the operation's own selector, which runs after the client's
    /// ([`Settings::selector`]).
    #[must_use]
    pub fn with_selector(mut self, selector: Arc<dyn Selector>) -> Self {
        self.selector = Some(selector);
        self
    }

    /// Sets the operation's name, such as `find`, for logs.
    #[must_use]
    pub fn with_operation_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the operation's id, for logs.
    #[must_use]
    pub fn with_operation_id(mut self, id: i64) -> Self {
        self.id = Some(id);
        self
    }

    /// Returns the operation's type and, for a read, its read preference.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Returns the operation that applies on `topology`, both for selection and for passing the
    /// read preference to the server.
    ///
    /// The result differs from [`operation`](Self::operation) only for an aggregation [with a write
    /// stage](Self::with_write_stage).
    pub(crate) fn operation_on(&self, topology: &TopologyDescription) -> &Operation {
        match &self.fallback {
            Some(fallback) if has_server_before_5_0(topology) => fallback,
            _ => &self.operation,
        }
    }

    /// Returns whether mode primary replaces the read preference on `topology`.
    pub fn is_overridden_on(&self, topology: &TopologyDescription) -> bool {
        !core::ptr::eq(self.operation_on(topology), &raw const self.operation)
    }

    /// Returns the read preference; `None` for writes.
    pub fn read_preference(&self) -> Option<&ReadPreference> {
        self.operation.read_preference()
    }

    /// Returns the deprioritized addresses, sorted, without duplicates.
    pub fn deprioritized(&self) -> &[ServerAddress] {
        self.deprioritized.as_deref().unwrap_or_default()
    }

    /// Returns the operation's own selector.
    pub fn selector(&self) -> Option<&Arc<dyn Selector>> {
        self.selector.as_ref()
    }

    /// Returns the operation's name, for logs.
    pub fn operation_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the operation's id, for logs.
    pub fn operation_id(&self) -> Option<i64> {
        self.id
    }

    /// Returns the complete string form of the criteria for a client with these settings.
    pub fn selector_text<'a>(&'a self, settings: &'a Settings) -> impl fmt::Display {
        SelectorText { criteria: self, settings }
    }
}

impl Operation {
    /// Returns the read preference; `None` for writes.
    pub fn read_preference(&self) -> Option<&ReadPreference> {
        match self {
            Self::Read(preference) => Some(preference),
            Self::Write => None,
        }
    }
}

/// Returns whether an available server is older than MongoDB 5.0, the first version whose
/// secondaries can run a pipeline with a write stage. Servers behind a load balancer are always
/// recent enough.
fn has_server_before_5_0(topology: &TopologyDescription) -> bool {
    const WRITE_STAGE_WIRE_VERSION: i32 = 13;
    topology.topology_type() != TopologyType::LoadBalanced
        && topology.servers().iter().any(|server| {
            server.server_type.is_available() && server.wire_versions.max < WRITE_STAGE_WIRE_VERSION
        })
}

impl fmt::Display for Criteria {
    /// Formats the criteria like their [`Operation`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operation.fmt(f)
    }
}

impl fmt::Display for Operation {
    /// Formats the operation as `query with ReadPreference <mode>...` or `write operation`, for
    /// selection errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(preference) => write!(f, "query with ReadPreference {preference}"),
            Self::Write => f.write_str("write operation"),
        }
    }
}

/// A read preference that can be cloned without allocating. Creating a preference that consists
/// only of a mode does not allocate either.
#[derive(Clone)]
pub struct SharedPreference(Repr);

#[derive(Clone)]
enum Repr {
    Plain(&'static ReadPreference),
    Shared(Arc<ReadPreference>),
}

impl Deref for SharedPreference {
    type Target = ReadPreference;

    fn deref(&self) -> &ReadPreference {
        match &self.0 {
            Repr::Plain(preference) => preference,
            Repr::Shared(preference) => preference,
        }
    }
}

impl From<ReadMode> for SharedPreference {
    fn from(mode: ReadMode) -> Self {
        Self(Repr::Plain(plain(mode)))
    }
}

impl From<ReadPreference> for SharedPreference {
    fn from(preference: ReadPreference) -> Self {
        let plain = plain(preference.mode);
        Self(if preference == *plain {
            Repr::Plain(plain)
        } else {
            Repr::Shared(Arc::new(preference))
        })
    }
}

impl From<Arc<ReadPreference>> for SharedPreference {
    fn from(preference: Arc<ReadPreference>) -> Self {
        Self(Repr::Shared(preference))
    }
}

impl PartialEq for SharedPreference {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedPreference {}

impl fmt::Debug for SharedPreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for SharedPreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

/// Returns the preference with this mode, without tags or limits.
fn plain(mode: ReadMode) -> &'static ReadPreference {
    match mode {
        ReadMode::Primary => const { &ReadPreference::new(ReadMode::Primary) },
        ReadMode::PrimaryPreferred => const { &ReadPreference::new(ReadMode::PrimaryPreferred) },
        ReadMode::Secondary => const { &ReadPreference::new(ReadMode::Secondary) },
        ReadMode::SecondaryPreferred => {
            const { &ReadPreference::new(ReadMode::SecondaryPreferred) }
        }
        ReadMode::Nearest => const { &ReadPreference::new(ReadMode::Nearest) },
    }
}

/// Displays all suitability criteria, for the field `selector` in logs (Server Selection:
/// "Logging", K-7).
///
/// When [`Criteria`] itself is displayed, the parts that restrict nothing are omitted. This type
/// displays every part of the read preference that is set, and the presence of application
/// selectors.
struct SelectorText<'a> {
    criteria: &'a Criteria,
    settings: &'a Settings,
}

impl fmt::Display for SelectorText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { criteria, settings } = self;
        match &criteria.operation {
            Operation::Read(preference) => fmt_preference(f, preference)?,
            Operation::Write => f.write_str("write operation")?,
        }
        if criteria.fallback.is_some() {
            f.write_str(", with a write stage")?;
        }
        if !criteria.deprioritized().is_empty() {
            let addresses = Joined(criteria.deprioritized(), ", ");
            write!(f, ", deprioritized servers [{addresses}]")?;
        }
        if settings.selector.is_some() {
            f.write_str(", custom selector of the client")?;
        }
        if criteria.selector.is_some() {
            f.write_str(", custom selector of the operation")?;
        }
        Ok(())
    }
}

/// Formats the parts with the same names and in the same order as in a command's `$readPreference`.
fn fmt_preference(f: &mut fmt::Formatter<'_>, preference: &ReadPreference) -> fmt::Result {
    write!(f, "read preference {{ mode: {}", preference.mode)?;
    if !preference.tag_sets.is_empty() {
        write!(f, ", tags: [{}]", Joined(&preference.tag_sets, ", "))?;
    }
    if let Some(limit) = preference.max_staleness {
        write!(f, ", maxStalenessSeconds: {}", limit.as_secs_f64())?;
    }
    if let Some(enabled) = preference.hedge {
        write!(f, ", hedge: {{ enabled: {enabled} }}")?;
    }
    f.write_str(" }")
}

/// The first wire version whose hello reply contains `lastWrite`.
const LAST_WRITE_WIRE_VERSION: i32 = 5;

/// Checks the `maxStalenessSeconds` of `preference` (Max Staleness, Server Selection:
/// "maxStalenessSeconds").
///
/// Only replica sets are checked; in a sharded cluster, mongos checks the limit. A limit that is too
/// small is an error whatever the mode and the known servers, even for `primaryPreferred` while
/// there is a primary (L-24). A wrong setting therefore fails at once and not only during a
/// failover. The specification's pseudocode, too, checks the limit before it looks at servers;
/// PyMongo selects the primary instead. An available server without `lastWrite` is also an error.
pub(crate) fn check_staleness(
    topology: &TopologyDescription,
    settings: &Settings,
    preference: &ReadPreference,
) -> Result<(), ConfigError> {
    let Some(limit) = preference.max_staleness else {
        return Ok(());
    };
    if !topology.topology_type().is_replica_set() {
        return Ok(());
    }
    let invalid = |reason: String, remedy| {
        let limit = limit.as_secs_f64().to_string();
        Err(ConfigError::new("maxStalenessSeconds", limit, reason, remedy))
    };
    let smallest = smallest_max_staleness(settings.heartbeat_frequency);
    if limit < smallest {
        let reason = format!(
            "it must be at least {} (90 s, and heartbeatFrequencyMS {} plus the 10 s between writes \
             of an idle primary)",
            smallest.as_secs_f64(),
            settings.heartbeat_frequency.as_millis(),
        );
        return invalid(reason, "raise it or leave it out");
    }
    if settings.min_wire_version >= LAST_WRITE_WIRE_VERSION {
        return Ok(());
    }
    // Such old servers occur only with clients that support wire versions below 5.
    let old = topology.servers().iter().find(|server| {
        server.server_type.is_available() && server.wire_versions.max < LAST_WRITE_WIRE_VERSION
    });
    old.map_or(Ok(()), |server| {
        let reason = format!(
            "it needs servers of wire version 5 (MongoDB 3.4) or newer, but {} reports wire version \
             {}",
            server.address, server.wire_versions.max,
        );
        invalid(reason, "upgrade the server or leave the option out")
    })
}

/// Returns the smallest staleness limit that is valid with this heartbeat frequency.
#[doc(alias = "smallestMaxStalenessSeconds")]
pub(crate) fn smallest_max_staleness(heartbeat_frequency: Duration) -> Duration {
    heartbeat_frequency.saturating_add(IDLE_WRITE_PERIOD).max(SMALLEST_MAX_STALENESS)
}
