//! What applications ask for, and an answer of our own to whether there is such a server.

use std::time::Duration;

use sdam_core::{
    read_preference::{ReadMode, ReadPreference, TagSet},
    rng::Rng,
    server::ServerType,
    topology::{TopologyDescription, TopologyType},
};
use sdam_select::criteria::Criteria;

use crate::plan::pick;

/// What an application asks for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) criteria: Criteria,
    /// `None` if it is not plain which servers suit.
    plain: Option<Plain>,
}

/// A question that is answered by the types of servers alone.
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
    /// Anything that an application could ask for.
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

    /// A server that is tagged so.
    pub(crate) fn tagged(dc: &str) -> Self {
        let tags = TagSet::from_iter([("dc", dc)]);
        let preference = ReadPreference::new(ReadMode::Nearest).with_tag_sets(vec![tags]);
        Self::read(preference, None)
    }

    fn read(preference: ReadPreference, plain: Option<Plain>) -> Self {
        // Valid by construction; a mistake here would only make the question simpler.
        match Criteria::read(preference) {
            Ok(criteria) => Self { criteria, plain },
            Err(_) => Self::write(),
        }
    }

    /// Whether a server of this type suits; `None` if that is not for the type to decide.
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

    /// Whether there is a server that suits; `None` if that is not plain.
    pub(crate) fn is_answered_by(&self, topology: &TopologyDescription) -> Option<bool> {
        self.plain?;
        if !topology.is_compatible() {
            // Then selections fail.
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
