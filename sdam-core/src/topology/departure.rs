//! Why servers have left the topology.

use alloc::{boxed::Box, sync::Arc};
use core::fmt;

use super::TopologyType;
use crate::{address::ServerAddress, ids::ServerId, server::ServerType};

/// A server that has left the topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Departure {
    /// The server's incarnation.
    pub server: ServerId,
    /// The server's address.
    pub address: ServerAddress,
    /// Why it left.
    pub reason: DepartureReason,
}

/// Why a server has left the topology.
///
/// `{}` is what is to be said of the server, without its address, and the remedy where there is just
/// one: ``belongs to the set `rs0`, not `wrong`: use replicaSet=rs0``.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DepartureReason {
    /// The topology was closed (SDAM Logging and Monitoring: "Closing").
    Closed,
    /// The SRV record does not name it any more (Polling SRV Records for mongos Discovery).
    HostsChanged,
    /// It calls itself by another address than the client does (SDAM: "updateRSWithoutPrimary",
    /// "updateRSWithPrimaryFromMember").
    Misnamed {
        /// As it calls itself.
        me: ServerAddress,
    },
    /// The primary does not name it as a member (SDAM: "updateRSFromPrimary").
    NotListed {
        /// The primary; also the server itself, if it does not name itself.
        primary: ServerAddress,
    },
    /// A standalone server that is one of several seeds (SDAM: "updateUnknownWithStandalone").
    OneOfSeveralSeeds,
    /// It belongs to another replica set (SDAM: "updateRSWithoutPrimary",
    /// "updateRSWithPrimaryFromMember", "updateRSFromPrimary").
    WrongSetName {
        /// The name of the set it belongs to; `None` if it belongs to none.
        found: Option<Box<str>>,
        /// The name of the set that is wanted, configured or discovered.
        wanted: Arc<str>,
    },
    /// A server of its type does not belong to a topology of this type (SDAM: "TopologyType table").
    WrongType {
        /// The server's type.
        server: ServerType,
        /// The topology's type.
        topology: TopologyType,
    },
}

impl Departure {
    /// The most departures that a description remembers.
    pub const REMEMBERED: usize = 16;

    /// `server` at `address` has left for `reason`.
    pub const fn new(server: ServerId, address: ServerAddress, reason: DepartureReason) -> Self {
        Self {
            server,
            address,
            reason,
        }
    }
}

impl DepartureReason {
    /// Whether the way the deployment is addressed is probably wrong, whatever other servers do; the
    /// other reasons are part of the life of a deployment.
    pub const fn is_mistake(&self) -> bool {
        matches!(
            self,
            Self::OneOfSeveralSeeds | Self::WrongSetName { .. } | Self::WrongType { .. }
        )
    }
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            DepartureReason::NotListed { primary } if *primary == self.address => write!(
                f,
                "{primary} is primary, but does not name itself as a member of the set"
            ),
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
                write!(
                    f,
                    "is not a member of the set according to its primary {primary}"
                )
            }
            Self::OneOfSeveralSeeds => f.write_str(
                "is a standalone server, which must be the only host of the connection string",
            ),
            Self::WrongSetName {
                found: Some(found),
                wanted,
            } => write!(
                f,
                "belongs to the set `{found}`, not `{wanted}`: use replicaSet={found}"
            ),
            Self::WrongSetName {
                found: None,
                wanted,
            } => write!(
                f,
                "belongs to no set, and not to `{wanted}`: leave replicaSet out"
            ),
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

/// What a server of this type is, for people.
fn kind(server: ServerType) -> &'static str {
    match server {
        ServerType::Standalone => "a standalone server",
        ServerType::Mongos => "a mongos",
        ServerType::RsGhost => "a member of a replica set without its configuration",
        _ => "a member of a replica set",
    }
}
