//! The roles of servers.

use core::fmt;

/// The role of a server (SDAM: "ServerType").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServerType {
    /// Not reached yet, or lost because of an error.
    #[default]
    Unknown,
    /// Unknown, but named as primary by another member.
    PossiblePrimary,
    /// A server outside any replica set.
    Standalone,
    /// A router of a sharded cluster.
    Mongos,
    /// The primary of a replica set.
    #[doc(alias("isWritablePrimary", "ismaster"))]
    RsPrimary,
    /// A secondary of a replica set.
    RsSecondary,
    /// An arbiter: votes, holds no data.
    RsArbiter,
    /// A member that is hidden, starting up or recovering.
    RsOther,
    /// A member without a configuration.
    RsGhost,
    /// The single address of a load-balanced deployment; never the result of a check.
    LoadBalancer,
}

impl ServerType {
    /// Returns the specification's spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::PossiblePrimary => "PossiblePrimary",
            Self::Standalone => "Standalone",
            Self::Mongos => "Mongos",
            Self::RsPrimary => "RSPrimary",
            Self::RsSecondary => "RSSecondary",
            Self::RsArbiter => "RSArbiter",
            Self::RsOther => "RSOther",
            Self::RsGhost => "RSGhost",
            Self::LoadBalancer => "LoadBalancer",
        }
    }

    /// Returns whether the type is neither Unknown nor PossiblePrimary (Server Selection:
    /// "available").
    pub const fn is_available(self) -> bool {
        !matches!(self, Self::Unknown | Self::PossiblePrimary)
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

impl fmt::Display for ServerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
