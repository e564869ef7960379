//! The reasons why servers left the topology.

use alloc::{boxed::Box, sync::Arc};
use core::fmt;

use super::TopologyType;
use crate::{address::ServerAddress, config_error::Escaped, ids::ServerId, server::ServerType};

/// A server that has left the topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Departure {
    /// The server id.
    pub server: ServerId,
    /// The server's address.
    pub address: ServerAddress,
    /// The reason why the server left.
    pub reason: DepartureReason,
}

/// The reason why a server left the topology.
///
/// `{}` states the reason, without the server's address, and the remedy if there is exactly one:
/// ``belongs to the set `rs0`, not `wrong`: use replicaSet=rs0``.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DepartureReason {
    /// The topology was closed (SDAM Logging and Monitoring: "Closing").
    Closed,
    /// The SRV record no longer lists the server (Polling SRV Records for mongos Discovery).
    HostsChanged,
    /// The server reports an address for itself that differs from the one that the client uses
    /// (SDAM: "updateRSWithoutPrimary", "updateRSWithPrimaryFromMember").
    Misnamed {
        /// The address that the server reports.
        me: ServerAddress,
    },
    /// The primary does not list the server as a member (SDAM: "updateRSFromPrimary").
    NotListed {
        /// The primary, which is the server itself if it does not list itself.
        primary: ServerAddress,
    },
    /// A standalone server was one of several seeds (SDAM: "updateUnknownWithStandalone").
    OneOfSeveralSeeds,
    /// The server belongs to another replica set (SDAM: "updateRSWithoutPrimary",
    /// "updateRSWithPrimaryFromMember", "updateRSFromPrimary").
    WrongSetName {
        /// The name of the server's set; `None` if the server belongs to no set.
        found: Option<Box<str>>,
        /// The expected set name, configured or discovered.
        wanted: Arc<str>,
    },
    /// A server of this type cannot be part of the topology (SDAM: "TopologyType table").
    WrongType {
        /// The server's type.
        server: ServerType,
        /// The topology's type.
        topology: TopologyType,
    },
}

impl Departure {
    /// The maximum number of departures that a description keeps.
    pub const REMEMBERED: usize = 16;

    /// Creates the departure of `server` at `address` for `reason`.
    pub const fn new(server: ServerId, address: ServerAddress, reason: DepartureReason) -> Self {
        Self { server, address, reason }
    }
}

impl DepartureReason {
    /// Returns whether this reason alone shows that the client's configuration is probably wrong.
    /// All other reasons also occur in normal operation.
    pub const fn is_mistake(&self) -> bool {
        matches!(self, Self::OneOfSeveralSeeds | Self::WrongSetName { .. } | Self::WrongType { .. })
    }
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            DepartureReason::NotListed { primary } if *primary == self.address => {
                write!(f, "{primary} is primary, but does not name itself as a member of the set")
            }
            reason => write!(f, "{} {reason}", self.address),
        }
    }
}

impl fmt::Display for DepartureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("is not watched any more: the topology was closed"),
            Self::HostsChanged => f.write_str("is not in the SRV record any more"),
            Self::Misnamed { me } => write!(f, "calls itself {me}: use that address"),
            Self::NotListed { primary } => {
                write!(f, "is no member, or a hidden one, according to the primary {primary}")
            }
            Self::OneOfSeveralSeeds => f.write_str(
                "is a standalone server, which must be the only host of the connection string",
            ),
            Self::WrongSetName { found: Some(found), wanted } => {
                let (found, wanted) = (Escaped(found), Escaped(wanted));
                write!(f, "belongs to the set `{found}`, not `{wanted}`: use replicaSet={found}")
            }
            Self::WrongSetName { found: None, wanted } => {
                let wanted = Escaped(wanted);
                write!(f, "belongs to no set, and not to `{wanted}`: leave replicaSet out")
            }
            Self::WrongType { server, topology } => {
                let topology = match topology {
                    TopologyType::Sharded => "a sharded cluster",
                    _ => "a replica set",
                };
                write!(f, "is {}, and no part of {topology}", kind(*server))
            }
        }
    }
}

fn kind(server: ServerType) -> &'static str {
    match server {
        ServerType::Standalone => "a standalone server",
        ServerType::Mongos => "a mongos",
        ServerType::RsGhost => "a member of a replica set without its configuration",
        _ => "a member of a replica set",
    }
}
