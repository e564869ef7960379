//! Selections by applications, and an independent check of the suitability of servers.

use std::time::Duration;

use sdam::SelectionError;
use sdam_core::{
    read_preference::{ReadMode, ReadPreference, TagSet},
    rng::Rng,
    server::ServerType,
    topology::{TopologyDescription, TopologyType},
};
use sdam_select::criteria::Criteria;

use crate::plan::pick;

/// A selection by an application.
#[derive(Clone, Debug)]
pub(crate) struct SelectionRequest {
    pub(crate) criteria: Criteria,
    /// The criteria in terms of server types, or `None` if suitability depends on more than the
    /// type.
    by_type: Option<TypeCriteria>,
    /// True if the criteria are invalid for every replica set, regardless of the state of its
    /// servers.
    is_invalid: bool,
}

/// A selection whose result depends only on server types.
#[derive(Clone, Copy, Debug)]
enum TypeCriteria {
    Write,
    Read(ReadMode),
}

impl SelectionRequest {
    /// Draws a random selection.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mode = pick(rng, ReadMode::ALL);
        match rng.below(10) {
            0..4 => Self::write(),
            4..8 => Self::read(ReadPreference::new(mode), Some(TypeCriteria::Read(mode))),
            8 => Self::tagged(pick(rng, &["ny", "la"])),
            _ => {
                let is_invalid = rng.below(8) == 0;
                let seconds = if is_invalid { 10 } else { 90 };
                let limit = Duration::from_secs(seconds + rng.below(60));
                let preference = ReadPreference::new(ReadMode::Secondary).with_max_staleness(limit);
                Self { is_invalid, ..Self::read(preference, None) }
            }
        }
    }

    pub(crate) fn write() -> Self {
        let by_type = Some(TypeCriteria::Write);
        Self { criteria: Criteria::write(), by_type, is_invalid: false }
    }

    /// Selects a server with this `dc` tag.
    pub(crate) fn tagged(dc: &str) -> Self {
        let tags = TagSet::from_iter([("dc", dc)]);
        let preference = ReadPreference::new(ReadMode::Nearest).with_tag_sets(vec![tags]);
        Self::read(preference, None)
    }

    fn read(preference: ReadPreference, by_type: Option<TypeCriteria>) -> Self {
        // The preference is always valid. An invalid one would be replaced by a simpler selection.
        match Criteria::read(preference) {
            Ok(criteria) => Self { criteria, by_type, is_invalid: false },
            Err(_) => Self::write(),
        }
    }

    /// Returns whether the selection may fail with this error. Timeouts and the end of the topology
    /// are always possible and are not considered.
    pub(crate) fn may_fail_with(&self, error: &SelectionError) -> bool {
        match error {
            SelectionError::Incompatible { .. } => true,
            SelectionError::InvalidCriteria(_) => self.is_invalid,
            _ => false,
        }
    }

    /// Returns whether a server of this type is suitable, or `None` if this depends on more than
    /// the type.
    pub(crate) fn is_suitable(&self, topology: TopologyType, server: ServerType) -> Option<bool> {
        let by_type = self.by_type?;
        Some(match topology {
            TopologyType::Unknown => false,
            TopologyType::Single => server.is_available(),
            TopologyType::Sharded => server == ServerType::Mongos,
            TopologyType::LoadBalanced => server == ServerType::LoadBalancer,
            TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => {
                let primary = server == ServerType::RsPrimary;
                let secondary = server == ServerType::RsSecondary;
                match by_type {
                    TypeCriteria::Write | TypeCriteria::Read(ReadMode::Primary) => primary,
                    TypeCriteria::Read(ReadMode::Secondary) => secondary,
                    TypeCriteria::Read(_) => primary || secondary,
                }
            }
        })
    }

    /// Returns whether any server is suitable, or `None` if this depends on more than server types.
    pub(crate) fn has_suitable_server(&self, topology: &TopologyDescription) -> Option<bool> {
        self.by_type?;
        if !topology.is_compatible() {
            // Selections do not wait if a server is incompatible, because they fail immediately.
            return Some(true);
        }
        let kind = topology.topology_type();
        let is_suitable = |server: ServerType| self.is_suitable(kind, server) == Some(true);
        Some(topology.servers().iter().any(|server| is_suitable(server.server_type)))
    }
}
