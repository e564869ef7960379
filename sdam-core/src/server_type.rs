//! The roles of servers.

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
