//! The kinds of deployments.

/// The kind of a deployment (SDAM: "TopologyType").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
pub enum TopologyType {
    /// Nothing is known yet, or the topology is closed.
    #[default]
    Unknown,
    /// One server of any type.
    Single,
    /// A replica set whose primary is not known.
    ReplicaSetNoPrimary,
    /// A replica set with a primary.
    ReplicaSetWithPrimary,
    /// A sharded cluster, represented by its routers.
    Sharded,
    /// A deployment behind a load balancer.
    LoadBalanced,
}

impl TopologyType {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
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
