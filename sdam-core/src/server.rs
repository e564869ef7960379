//! The description of one server.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use core::time::Duration;

use crate::{
    address::ServerAddress,
    error::Error,
    hello::Hello,
    ids::{ElectionTuple, ServerId, TopologyVersion},
    read_preference::TagSet,
    time::Instant,
};

/// Everything known about one server, as an immutable value (SDAM: "ServerDescription").
///
/// Two descriptions are equal (`==`) by the specification's rule, which ignores the fields that
/// change with every check (round-trip times, update time, last write) and the [`id`](Self::id).
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "camelCase"))]
pub struct ServerDescription {
    /// The id of the server in its topology, which changes when the server is removed and added
    /// again.
    pub id: ServerId,
    /// The address to which the client connects; the server may report a different one (see
    /// [`me`](Self::me)).
    pub address: ServerAddress,
    /// The server's role.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub server_type: ServerType,
    /// The error that made the server Unknown, if any.
    pub error: Option<Error>,
    /// The round-trip times; `None` while the server is Unknown.
    pub rtt: Option<Rtt>,
    /// The time when the last check or error was processed; `None`, which stands for "infinitely
    /// long ago", if there has been none.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub last_update_time: Option<Instant>,
    /// The date of the server's last write, in milliseconds since the Unix epoch on the server's
    /// clock.
    pub last_write_date: Option<i64>,
    /// The range of supported wire versions; 0 to 0 while the server is Unknown.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub wire_versions: WireVersions,
    /// The address that the server reports for itself.
    pub me: Option<ServerAddress>,
    /// Data-bearing members that can become primary, sorted.
    pub hosts: Box<[ServerAddress]>,
    /// Data-bearing members that cannot become primary, sorted.
    pub passives: Box<[ServerAddress]>,
    /// Members that only vote, sorted.
    pub arbiters: Box<[ServerAddress]>,
    /// The tags of the member.
    pub tags: TagSet,
    /// The replica set's name.
    pub set_name: Option<Box<str>>,
    /// `electionId` and `setVersion`.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub election: ElectionTuple,
    /// The member that this member believes is primary.
    pub primary: Option<ServerAddress>,
    /// The number of minutes after which an idle session expires.
    pub logical_session_timeout_minutes: Option<i32>,
    /// The server's topology version, which distinguishes new replies from old ones.
    pub topology_version: Option<TopologyVersion>,
    /// True if the server is a mongocryptd.
    #[cfg_attr(feature = "serde", serde(rename = "iscryptd"))]
    pub is_cryptd: Option<bool>,
}

impl ServerDescription {
    /// Returns the description of a server that has not been checked yet (SDAM:
    /// "default description").
    pub fn unknown(id: ServerId, address: ServerAddress) -> Self {
        let nothing = Hello::default();
        Self {
            last_update_time: None,
            ..Self::from_hello(id, address, nothing, None, Instant::EPOCH)
        }
    }

    /// Returns the description of a server that failed with `error` at `now`.
    ///
    /// If the error has a topology version, the description adopts it.
    pub fn failed(id: ServerId, address: ServerAddress, error: Error, now: Instant) -> Self {
        Self {
            topology_version: error.topology_version(),
            error: Some(error),
            last_update_time: Some(now),
            ..Self::unknown(id, address)
        }
    }

    /// Returns the description resulting from a successful check. `rtt` is dropped if the reply
    /// makes the server Unknown.
    pub fn from_hello(
        id: ServerId,
        address: ServerAddress,
        hello: Hello,
        rtt: Option<Rtt>,
        now: Instant,
    ) -> Self {
        Self {
            id,
            address,
            server_type: hello.server_type,
            error: None,
            rtt: rtt.filter(|_| hello.server_type.is_available()),
            last_update_time: Some(now),
            last_write_date: hello.last_write_date,
            wire_versions: hello.wire_versions,
            me: hello.me,
            hosts: hello.hosts,
            passives: hello.passives,
            arbiters: hello.arbiters,
            tags: hello.tags,
            set_name: hello.set_name,
            election: hello.election,
            primary: hello.primary,
            logical_session_timeout_minutes: hello.logical_session_timeout_minutes,
            topology_version: hello.topology_version,
            is_cryptd: hello.is_cryptd,
        }
    }

    /// Iterates over all members that the server lists: hosts, passives and arbiters.
    pub fn members(&self) -> impl Iterator<Item = &ServerAddress> {
        self.hosts.iter().chain(&self.passives).chain(&self.arbiters)
    }
}

impl PartialEq for ServerDescription {
    /// Compares descriptions by the rule in SDAM: "ServerDescription equality".
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
            && self.server_type == other.server_type
            && self.topology_version == other.topology_version
            && self.wire_versions == other.wire_versions
            && self.election == other.election
            && self.logical_session_timeout_minutes == other.logical_session_timeout_minutes
            && self.is_cryptd == other.is_cryptd
            && self.set_name == other.set_name
            && self.me == other.me
            && self.primary == other.primary
            && self.hosts == other.hosts
            && self.passives == other.passives
            && self.arbiters == other.arbiters
            && self.tags == other.tags
            && self.error == other.error
    }
}

impl Eq for ServerDescription {}

impl ServerDescription {
    /// Returns whether a reply with `version` is stale (SDAM: "topologyVersion"). A reply that
    /// repeats the known version is not stale.
    pub(crate) fn is_newer_than_reply(&self, version: Option<TopologyVersion>) -> bool {
        TopologyVersion::compare(self.topology_version, version).is_gt()
    }

    /// Returns whether an error with `version` is stale. Unlike with
    /// [`is_newer_than_reply`](Self::is_newer_than_reply), an error that repeats the known version
    /// is stale, too.
    #[doc(alias = "isStaleError")]
    pub(crate) fn is_newer_than_error(&self, version: Option<TopologyVersion>) -> bool {
        TopologyVersion::compare(self.topology_version, version).is_ge()
    }
}

/// The role of a server (SDAM: "ServerType").
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
pub enum ServerType {
    /// A server that has not been reached yet, or that was lost because of an error.
    #[default]
    Unknown,
    /// A server that is otherwise Unknown, but that another member names as the primary.
    PossiblePrimary,
    /// A server outside any replica set.
    Standalone,
    /// A router of a sharded cluster.
    Mongos,
    /// The primary of a replica set.
    #[doc(alias("isWritablePrimary", "ismaster"))]
    #[strum(serialize = "RSPrimary")]
    RsPrimary,
    /// A secondary of a replica set.
    #[strum(serialize = "RSSecondary")]
    RsSecondary,
    /// An arbiter, which votes but holds no data.
    #[strum(serialize = "RSArbiter")]
    RsArbiter,
    /// A member that is hidden, starting up or recovering.
    #[strum(serialize = "RSOther")]
    RsOther,
    /// A member that has no replica set configuration.
    #[strum(serialize = "RSGhost")]
    RsGhost,
    /// The single address of a load-balanced deployment; never the result of a check.
    LoadBalancer,
}

impl ServerType {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl ServerType {
    /// Returns whether the type is neither Unknown nor PossiblePrimary (Server Selection:
    /// "available").
    pub const fn is_available(self) -> bool {
        !matches!(self, Self::Unknown | Self::PossiblePrimary)
    }

    /// Returns whether servers of this type accept writes.
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::Standalone | Self::Mongos | Self::RsPrimary | Self::LoadBalancer)
    }

    /// Returns whether servers of this type hold data that clients can use (SDAM: "data-bearing").
    pub const fn is_data_bearing(self) -> bool {
        matches!(
            self,
            Self::Standalone
                | Self::Mongos
                | Self::RsPrimary
                | Self::RsSecondary
                | Self::LoadBalancer
        )
    }
}

/// The range of wire versions that a server or the client supports.
#[doc(alias("minWireVersion", "maxWireVersion"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct WireVersions {
    /// `minWireVersion`, 0 if the server did not report it.
    #[cfg_attr(feature = "serde", serde(rename = "minWireVersion"))]
    pub min: i32,
    /// `maxWireVersion`, 0 if the server did not report it.
    #[cfg_attr(feature = "serde", serde(rename = "maxWireVersion"))]
    pub max: i32,
}

/// The round-trip times of a server, measured with hello.
#[doc(alias("roundTripTime", "minRoundTripTime"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Rtt {
    /// The exponentially weighted moving average.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub average: Duration,
    /// The minimum of the last ten samples; zero until there are two samples.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub minimum: Duration,
    /// The 90th percentile of the last ten samples, for display: the second largest, or the largest
    /// while there are fewer than ten samples.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub p90: Duration,
}

/// The evidence that a server no longer answers.
///
/// A frozen process, a full disk or a cut cable does not close connections: the server's answers
/// just stop. The server keeps its type until the time limit of its check has passed, unless a
/// [`Detector`](crate::options::Detector) gives up on it sooner.
///
/// An answer is a reply to a check or to a measurement, the reply to hello on a pooled connection,
/// a reported error that the server has sent, or a reply to an operation that arrives while a
/// detector is asking the server. Opening a connection does not count as an answer, because the
/// operating system accepts connections even for a frozen process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Silence {
    /// The time of the last answer; `None` if there was none.
    pub answered: Option<Instant>,
    /// The time after which an outstanding answer counts as late; `None` if no answer is
    /// outstanding. This time is up to `heartbeatFrequencyMS` in the future if the server waits for
    /// a change, and otherwise usually at most one round trip in the past.
    pub expected: Option<Instant>,
    /// The time at which the server became suspect: one of its answers was overdue, and another
    /// server had answered since that answer was expected. `None` if the server is not suspected.
    pub suspected: Option<Instant>,
    /// The time at which a [detector](crate::options::Detector) asked the server for an answer;
    /// `None` if the server has answered since, or if there is no detector.
    pub asked: Option<Instant>,
    /// The number of operations that were reported to have timed out since the last answer.
    pub timeouts: u32,
}
