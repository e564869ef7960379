//! The roles of servers.

use crate::names::names;

names! {
    /// The role of a server (SDAM: "ServerType").
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum ServerType {
        /// A server that has not been reached yet, or that was lost because of an error.
        #[default]
        Unknown = "Unknown",
        /// A server that is otherwise Unknown, but that another member names as the primary.
        PossiblePrimary = "PossiblePrimary",
        /// A server outside any replica set.
        Standalone = "Standalone",
        /// A router of a sharded cluster.
        Mongos = "Mongos",
        /// The primary of a replica set.
        #[doc(alias("isWritablePrimary", "ismaster"))]
        RsPrimary = "RSPrimary",
        /// A secondary of a replica set.
        RsSecondary = "RSSecondary",
        /// An arbiter, which votes but holds no data.
        RsArbiter = "RSArbiter",
        /// A member that is hidden, starting up or recovering.
        RsOther = "RSOther",
        /// A member that has no replica set configuration.
        RsGhost = "RSGhost",
        /// The single address of a load-balanced deployment; never the result of a check.
        LoadBalancer = "LoadBalancer",
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
