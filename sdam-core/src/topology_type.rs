//! The kinds of deployments.

use crate::names::names;

names! {
    /// The kind of a deployment (SDAM: "TopologyType").
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub enum TopologyType {
        /// Nothing is known yet, or the topology is closed.
        #[default]
        Unknown = "Unknown",
        /// One server of any type.
        Single = "Single",
        /// A replica set whose primary is not known.
        ReplicaSetNoPrimary = "ReplicaSetNoPrimary",
        /// A replica set with a primary.
        ReplicaSetWithPrimary = "ReplicaSetWithPrimary",
        /// A sharded cluster, represented by its routers.
        Sharded = "Sharded",
        /// A deployment behind a load balancer.
        LoadBalanced = "LoadBalanced",
    }
}

impl TopologyType {
    /// Returns whether this is one of the two replica set types.
    pub const fn is_replica_set(self) -> bool {
        matches!(self, Self::ReplicaSetNoPrimary | Self::ReplicaSetWithPrimary)
    }

    /// Returns whether an SRV record is polled for new hosts (Polling SRV Records for mongos
    /// Discovery: "Implementation"). A topology whose type is not polled never returns to a type
    /// that is.
    pub const fn polls_srv(self) -> bool {
        matches!(self, Self::Unknown | Self::Sharded)
    }
}
