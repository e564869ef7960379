//! Selections by applications, and an independent check of which servers suit them.

use std::time::Duration;

use sdam_core::{
    read_preference::{ReadMode, ReadPreference, TagSet},
    rng::Rng,
    server::ServerType,
    topology::{TopologyDescription, TopologyType},
};
use sdam_select::Criteria;

use crate::plan::pick;

/// A selection of an application.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) criteria: Criteria,
    /// The simple form; `None` if suitability depends on more than server types.
    plain: Option<Plain>,
}

/// A selection that is decided by the types of servers alone.
#[derive(Clone, Copy, Debug)]
enum Plain {
    Write,
    Read(ReadMode),
}

const MODES: [ReadMode; 5] = [
    ReadMode::Primary,
    ReadMode::PrimaryPreferred,
    ReadMode::Secondary,
    ReadMode::SecondaryPreferred,
    ReadMode::Nearest,
];

impl Ask {
    /// Draws a random selection.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mode = pick(rng, &MODES);
        match rng.below(10) {
            0..4 => Self::write(),
            4..8 => Self::read(ReadPreference::new(mode), Some(Plain::Read(mode))),
            8 => Self::tagged(pick(rng, &["ny", "la"])),
            _ => {
                let limit = Duration::from_secs(90 + rng.below(60));
                let preference = ReadPreference::new(ReadMode::Secondary).with_max_staleness(limit);
                Self::read(preference, None)
            }
        }
    }

    pub(crate) fn write() -> Self {
        Self {
            criteria: Criteria::write(),
            plain: Some(Plain::Write),
        }
    }

    /// Selects a server with this `dc` tag.
    pub(crate) fn tagged(dc: &str) -> Self {
        let tags = TagSet::from_iter([("dc", dc)]);
        let preference = ReadPreference::new(ReadMode::Nearest).with_tag_sets(vec![tags]);
        Self::read(preference, None)
    }

    fn read(preference: ReadPreference, plain: Option<Plain>) -> Self {
        // The preference is valid by construction; an error here would only simplify the
        // selection.
        match Criteria::read(preference) {
            Ok(criteria) => Self { criteria, plain },
            Err(_) => Self::write(),
        }
    }

    /// Returns whether a server of this type suits; `None` if the type does not decide.
    pub(crate) fn suits(&self, topology: TopologyType, server: ServerType) -> Option<bool> {
        let plain = self.plain?;
        Some(match topology {
            TopologyType::Unknown => false,
            TopologyType::Single => server.is_available(),
            TopologyType::Sharded => server == ServerType::Mongos,
            TopologyType::LoadBalanced => server == ServerType::LoadBalancer,
            TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => {
                let primary = server == ServerType::RsPrimary;
                let secondary = server == ServerType::RsSecondary;
                match plain {
                    Plain::Write | Plain::Read(ReadMode::Primary) => primary,
                    Plain::Read(ReadMode::Secondary) => secondary,
                    Plain::Read(_) => primary || secondary,
                }
            }
        })
    }

    /// Returns whether a server suits; `None` if server types do not decide.
    pub(crate) fn is_answered_by(&self, topology: &TopologyDescription) -> Option<bool> {
        self.plain?;
        if !topology.is_compatible() {
            // Selections fail immediately in this case.
            return Some(true);
        }
        let kind = topology.topology_type();
        let suits = |server: ServerType| self.suits(kind, server) == Some(true);
        Some(
            topology
                .servers()
                .iter()
                .any(|server| suits(server.server_type)),
        )
    }
}
