//! Steps of a deployment of up to three members.

use std::sync::LazyLock;

use bson::doc;
use sdam_core::{
    address::ServerAddress,
    deployment::Role as ConnRole,
    error::{Error, ErrorKind, Stage},
    hello::Hello,
    ids::{ElectionTuple, ObjectId, TopologyVersion},
    server::{ServerType, WireVersions},
};

/// The maximum number of members.
pub const MEMBERS: u8 = 3;

/// An event in a deployment or its environment. An index that is out of range wraps around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Step {
    /// A step of one of the members.
    Member(u8, MemberStep),
    /// The SRV record now names these members, one bit each.
    Hosts(u8),
    /// A connection has been opened.
    Connected(Link),
    /// A request is answered.
    Answer {
        /// The connection.
        link: Link,
        /// The reply.
        reply: Reply,
        /// True if the server will send another reply without a request.
        more: bool,
    },
    /// A connection breaks, or a request is answered with an error.
    Break {
        /// The connection.
        link: Link,
        /// The kind of failure.
        failure: Failure,
    },
    /// The host was suspended for longer than any deadline.
    Suspended,
    /// Advances the time to the next look-up of the SRV record and begins the look-up, unless
    /// another timer is due earlier.
    LookUp,
    /// The SRV look-up returns these members, one bit each, or fails if there are none.
    LookedUp(u8),
    /// A single-threaded client makes a request. Its previous request may still be in progress.
    Request(Request),
    /// The client waits until its timer is due.
    Wait,
    /// The client chooses a member for its selection, or chooses none.
    Chosen {
        /// The number of the member. Any other number means that no member is chosen.
        server: u8,
        /// True if the connection was idle for so long that it must be probed.
        idle: bool,
    },
    /// The client's probe of an idle connection ends.
    Probed {
        /// True if the probe was answered.
        alive: bool,
    },
    /// A step of a service behind a load balancer.
    Service(u8, ServiceStep),
}

/// A step of one member.
///
/// `Reply` and `Failure` are complete checks: they connect if necessary, and receive an answer.
/// Each of the other steps is a single input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum MemberStep {
    /// The next check succeeds with this reply, and half a second passes.
    Reply(Reply),
    /// The next check fails, and half a second passes.
    Failure(Failure),
    /// A handshake of a pooled connection succeeded.
    Handshake {
        /// The reply.
        reply: Reply,
        /// True if the connection belongs to the previous pool generation.
        late: bool,
    },
    /// An application reports an error.
    Error {
        /// The error.
        error: OperationError,
        /// True if the connection belongs to the previous pool generation.
        late: bool,
    },
    /// Advances the time to the member's deadline and fires the member's timer, unless another
    /// timer is due earlier.
    Due {
        /// True if selections are waiting.
        wanted: bool,
    },
    /// The server sends this reply without a pause until the client stops reading.
    Burst(Reply),
    /// An immediate check is requested.
    CheckRequested,
    /// The task that monitored the server was dropped.
    Deserted,
    /// An operation of a single-threaded client closes the monitoring connection to the server.
    Close,
    /// An operation has been waiting for its answer for half a second.
    Late,
    /// An operation receives its answer.
    Answered,
}

/// A step of one service behind a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum ServiceStep {
    /// A connection to the service was opened.
    Opened,
    /// A connection to the service was closed, or is reported as closed again.
    Closed(Which),
    /// An application reports an error on a connection to the service.
    Error(Which, OperationError),
}

/// The choice of a connection to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Which {
    /// The open connection that was opened most recently.
    Newest,
    /// The open connection that was opened first, if there are several.
    Oldest,
    /// The connection that was closed last.
    Closed,
}

/// A request of a single-threaded client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Request {
    /// Select a server within a second.
    Select,
    /// Scan all servers.
    Scan,
    /// Check the first member.
    Check,
    /// Perform the checks that errors have requested.
    Settle,
}

/// A connection to a monitored member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Link {
    /// The member.
    pub on: u8,
    /// The purpose for which the connection is used.
    pub kind: Kind,
}

/// The purpose of a connection to a monitored member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Kind {
    /// The connection is used to check the member.
    Check,
    /// The connection is used to measure the round-trip time.
    Ping,
    /// The connection is used by the probe of a detector.
    Probe,
}

/// The contents of a hello reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Reply {
    /// The role that the server reports.
    pub role: Role,
    /// True if the set name differs from the expected one.
    pub foreign: bool,
    /// True if the server reports the address of another member as `me`.
    pub misnamed: bool,
    /// The members in the host list of the reply, one bit each.
    pub hosts: u8,
    /// The member that the server reports as the primary, or 0 for none.
    pub hint: u8,
    /// The `electionId`, or 0 for none.
    pub election: u8,
    /// The `setVersion`, or 0 for none.
    pub config: u8,
    /// The release of the server.
    pub release: Release,
    /// The counter of the server's `topologyVersion`, or 0 for none.
    pub version: u8,
}

/// The type of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
#[expect(missing_docs, reason = "the names are server types")]
pub enum Role {
    Unknown,
    Standalone,
    Mongos,
    Primary,
    Secondary,
    Arbiter,
    Other,
    Ghost,
}

/// The server version, on which some rules depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Release {
    /// MongoDB 4.0, which closes its connections on a step-down. Set versions are compared first.
    V4_0,
    /// MongoDB 5.0. Set versions are compared first.
    V5_0,
    /// MongoDB 6.0. Election IDs are compared first.
    V6_0,
}

/// The failure of a check or of a round-trip measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Failure {
    /// The connection broke.
    Network,
    /// The check timed out.
    Timeout,
    /// The reply was `ok: 0`. Its `topologyVersion` had this counter; 0 means that it had no
    /// `topologyVersion`.
    Command(u8),
    /// The transport panicked.
    Panic,
}

/// An error that an application reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum OperationError {
    /// An established connection broke.
    Broken,
    /// The operation timed out.
    Timeout,
    /// The connection could not be opened. The pool attributes this to an overload of the server.
    Overloaded,
    /// The server's certificate is not trusted.
    Untrusted,
    /// Authentication failed.
    Auth,
    /// `NotWritablePrimary`. Its `topologyVersion` has this counter; 0 means that it has no
    /// `topologyVersion`.
    NotPrimary(u8),
    /// `ShutdownInProgress`. Its `topologyVersion` has this counter; 0 means that it has no
    /// `topologyVersion`.
    ShuttingDown(u8),
    /// An error that does not affect the server.
    DuplicateKey,
}

impl Step {
    /// Returns the member that the step is for.
    pub(crate) fn on(self) -> Option<u8> {
        match self {
            Self::Member(on, _)
            | Self::Connected(Link { on, .. })
            | Self::Answer { link: Link { on, .. }, .. }
            | Self::Break { link: Link { on, .. }, .. } => Some(on % MEMBERS),
            _ => None,
        }
    }
}

impl Reply {
    /// Returns the reply of a member with this role. The reply lists all members of the set.
    pub const fn member(role: Role) -> Self {
        Self {
            role,
            foreign: false,
            misnamed: false,
            hosts: 0b111,
            hint: 0,
            election: 0,
            config: 0,
            release: Release::V6_0,
            version: 0,
        }
    }

    pub(crate) fn hello(self, on: u8) -> Hello {
        let of_set =
            matches!(self.role, Role::Primary | Role::Secondary | Role::Arbiter | Role::Other);
        let mut hello = Hello::default();
        hello.server_type = self.role.server_type();
        hello.wire_versions = self.release.wire_versions();
        hello.topology_version = version(on, self.version);
        hello.logical_session_timeout_minutes = Some(30);
        if of_set {
            hello.set_name = Some(if self.foreign { "other" } else { SET }.into());
            hello.hosts = members(self.hosts).collect();
            hello.me = Some(address(if self.misnamed { on + 1 } else { on }));
            hello.primary = (self.hint > 0).then(|| address(self.hint - 1));
            hello.election = ElectionTuple {
                election_id: (self.election > 0).then(|| ObjectId::from_bytes([self.election; 12])),
                set_version: (self.config > 0).then_some(self.config.into()),
            };
        }
        hello
    }
}

impl Kind {
    pub(crate) fn role(self) -> ConnRole {
        match self {
            Self::Check => ConnRole::Check,
            Self::Ping => ConnRole::Ping,
            Self::Probe => ConnRole::Probe,
        }
    }
}

impl Role {
    fn server_type(self) -> ServerType {
        match self {
            Self::Unknown => ServerType::Unknown,
            Self::Standalone => ServerType::Standalone,
            Self::Mongos => ServerType::Mongos,
            Self::Primary => ServerType::RsPrimary,
            Self::Secondary => ServerType::RsSecondary,
            Self::Arbiter => ServerType::RsArbiter,
            Self::Other => ServerType::RsOther,
            Self::Ghost => ServerType::RsGhost,
        }
    }
}

impl Release {
    fn wire_versions(self) -> WireVersions {
        let max = match self {
            Self::V4_0 => 7,
            Self::V5_0 => 13,
            Self::V6_0 => 17,
        };
        WireVersions { min: 0, max }
    }
}

impl Failure {
    pub(crate) fn error(self, on: u8) -> Error {
        match self {
            Self::Network => Error::new(ErrorKind::Network, Stage::Hello, "broken"),
            Self::Timeout => Error::new(ErrorKind::Timeout, Stage::Hello, "silent"),
            Self::Command(counter) => {
                let error = Error::new(ErrorKind::Command, Stage::Hello, "no");
                error.with_topology_version(version(on, counter))
            }
            Self::Panic => Error::new(ErrorKind::Internal, Stage::Hello, "panic"),
        }
    }
}

impl OperationError {
    /// Returns the stage at which the error occurred.
    pub(crate) fn stage(self) -> Stage {
        match self {
            Self::Overloaded => Stage::Connect,
            Self::Untrusted => Stage::Tls,
            Self::Auth => Stage::Auth,
            _ => Stage::Operation,
        }
    }

    /// Returns the server's reply; `None` if there was none.
    pub(crate) fn reply(self, on: u8) -> Option<Vec<u8>> {
        let (code, counter) = match self {
            Self::NotPrimary(counter) => (10_107, counter),
            Self::ShuttingDown(counter) => (91, counter),
            Self::DuplicateKey => (11_000, 0),
            Self::Broken | Self::Timeout | Self::Overloaded | Self::Untrusted | Self::Auth => {
                return None;
            }
        };
        let mut reply = doc! { "ok": 0, "code": code, "errmsg": "no" };
        if let Some(version) = version(on, counter) {
            let process = bson::oid::ObjectId::from_bytes(version.process_id.bytes());
            reply.insert(
                "topologyVersion",
                doc! { "processId": process, "counter": version.counter },
            );
        }
        reply.to_vec().ok()
    }
}

/// The domain of all members.
pub const DOMAIN: &str = "db";

/// The name of the set.
pub const SET: &str = "rs";

/// Returns the address of `member`.
pub fn address(member: u8) -> ServerAddress {
    static ADDRESSES: LazyLock<[ServerAddress; 3]> =
        LazyLock::new(|| ["a.db", "b.db", "c.db"].map(|name| ServerAddress::new(name, 27_017)));
    ADDRESSES[usize::from(member % MEMBERS)].clone()
}

/// Returns the addresses of the members in a bit mask, in order.
pub fn members(mask: u8) -> impl Iterator<Item = ServerAddress> {
    (0..MEMBERS).filter(move |member| mask & 1 << member != 0).map(address)
}

fn version(on: u8, counter: u8) -> Option<TopologyVersion> {
    (counter > 0).then(|| TopologyVersion {
        process_id: ObjectId::from_bytes([on % MEMBERS; 12]),
        counter: counter.into(),
    })
}
