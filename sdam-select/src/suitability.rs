//! The conditions for suitable servers, determined once per selection and then applied to each
//! server.

use sdam_core::{
    address::ServerAddress,
    options::ConfigError,
    read_preference::{ReadMode, ReadPreference, TagSet},
    server::{ServerDescription, ServerType},
    topology::{TopologyDescription, TopologyType},
};

use crate::{
    criteria::{Criteria, Operation, check_staleness},
    settings::Settings,
    staleness::StalenessLimit,
};

/// The conditions for a suitable server (Server Selection: "suitable").
///
/// Everything that depends on more than one server (the effective tag set, the fallback to the
/// primary) is determined when this value is created. The conditions can therefore be applied to
/// each server separately, and repeated passes over the servers agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suitability<'a> {
    pub(crate) types: ServerTypes,
    pub(crate) staleness: Option<StalenessLimit>,
    pub(crate) tags: TagFilter<'a>,
    pub(crate) deprioritized: &'a [ServerAddress],
}

/// The effective tag set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TagFilter<'a> {
    /// Any tags are accepted.
    Any,
    /// The first tag set that matches at least one candidate.
    Set(&'a TagSet),
    /// No tag set matches any candidate.
    NoMatch,
}

impl<'a> Suitability<'a> {
    /// Determines the conditions that `criteria` impose on the servers of `topology`.
    pub(crate) fn new(
        topology: &TopologyDescription,
        settings: &Settings,
        criteria: &'a Criteria,
    ) -> Result<Self, ConfigError> {
        let preference = match criteria.operation_on(topology) {
            Operation::Read(preference) => {
                check_staleness(topology, settings, preference)?;
                Some(&**preference)
            }
            Operation::Write => None,
        };
        let deprioritized = criteria.deprioritized();
        if !deprioritized.is_empty() {
            let suitability = Self::for_preference(topology, settings, preference, deprioritized);
            if suitability.any_suitable(topology) {
                return Ok(suitability);
            }
        }
        Ok(Self::for_preference(topology, settings, preference, &[]))
    }

    /// Determines the conditions for reading with `preference` or, if there is none, for writing.
    /// The `deprioritized` servers are excluded (Server Selection: "topology-type-specific server
    /// selection rules").
    pub(crate) fn for_preference(
        topology: &TopologyDescription,
        settings: &Settings,
        preference: Option<&'a ReadPreference>,
        deprioritized: &'a [ServerAddress],
    ) -> Self {
        let of_types = |types| Self { types, staleness: None, tags: TagFilter::Any, deprioritized };
        let preference = match ServerTypes::of_topology(topology.topology_type(), preference) {
            Ok(types) => return of_types(types),
            Err(preference) => preference,
        };
        let eligible = |types| Self::eligible(topology, settings, preference, types, deprioritized);
        let preferred = match preference.mode {
            ReadMode::Primary => return of_types(ServerTypes::PRIMARY),
            ReadMode::Secondary => return eligible(ServerTypes::SECONDARY),
            ReadMode::Nearest => return eligible(ServerTypes::PRIMARY_AND_SECONDARY),
            ReadMode::PrimaryPreferred => of_types(ServerTypes::PRIMARY),
            ReadMode::SecondaryPreferred => eligible(ServerTypes::SECONDARY),
        };
        if preferred.any_suitable(topology) {
            preferred
        } else if preference.mode == ReadMode::PrimaryPreferred {
            eligible(ServerTypes::SECONDARY)
        } else {
            of_types(ServerTypes::PRIMARY)
        }
    }

    /// Returns conditions that accept the members of these types that satisfy the preference's
    /// staleness and tags (Server Selection: "eligible").
    pub(crate) fn eligible(
        topology: &TopologyDescription,
        settings: &Settings,
        preference: &'a ReadPreference,
        types: ServerTypes,
        deprioritized: &'a [ServerAddress],
    ) -> Self {
        let mut suitability = Self {
            types,
            staleness: StalenessLimit::new(topology, settings, preference),
            tags: TagFilter::Any,
            deprioritized,
        };
        if !preference.matches_any_tags() {
            let sets = preference.tag_sets.iter();
            let tags = sets.map(TagFilter::Set).find(|tags| {
                suitability.tags = *tags;
                suitability.any_suitable(topology)
            });
            suitability.tags = tags.unwrap_or(TagFilter::NoMatch);
        }
        suitability
    }

    pub(crate) fn is_suitable(&self, server: &ServerDescription) -> bool {
        self.types.contains(server.server_type)
            && self.is_fresh(server)
            && self.matches_tags(server)
            && !self.is_deprioritized(server)
    }

    pub(crate) fn any_suitable(&self, topology: &TopologyDescription) -> bool {
        topology.servers().iter().any(|server| self.is_suitable(server))
    }

    pub(crate) fn is_fresh(&self, server: &ServerDescription) -> bool {
        self.staleness.is_none_or(|limit| limit.is_met_by(server))
    }

    pub(crate) fn matches_tags(&self, server: &ServerDescription) -> bool {
        match self.tags {
            TagFilter::Any => true,
            TagFilter::Set(tags) => tags.is_subset_of(&server.tags),
            TagFilter::NoMatch => false,
        }
    }

    /// Returns whether `server` is deprioritized. Compares only the address, because the
    /// description may be newer than the failure that caused the retry (L-50).
    pub(crate) fn is_deprioritized(&self, server: &ServerDescription) -> bool {
        self.deprioritized.binary_search(&server.address).is_ok()
    }
}

/// A set of server types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerTypes(u16);

impl ServerTypes {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self(u16::MAX);
    pub(crate) const PRIMARY: Self = Self::of(ServerType::RsPrimary);
    pub(crate) const SECONDARY: Self = Self::of(ServerType::RsSecondary);
    pub(crate) const PRIMARY_AND_SECONDARY: Self = Self(Self::PRIMARY.0 | Self::SECONDARY.0);
    pub(crate) const MONGOS: Self = Self::of(ServerType::Mongos);
    pub(crate) const AVAILABLE: Self =
        Self(!(Self::of(ServerType::Unknown).0 | Self::of(ServerType::PossiblePrimary).0));

    /// Returns the types of the suitable servers if suitability depends only on the type. This is a
    /// fast path for most criteria; if it returns `None`, a [`Suitability`] decides.
    pub(crate) fn sufficient(topology: &TopologyDescription, criteria: &Criteria) -> Option<Self> {
        let preference = criteria.operation_on(topology).read_preference();
        let is_by_mode_only = |preference: &ReadPreference| {
            preference.max_staleness.is_none() && preference.matches_any_tags()
        };
        if !preference.is_none_or(is_by_mode_only) || !criteria.deprioritized().is_empty() {
            return None;
        }
        match Self::of_topology(topology.topology_type(), preference) {
            Ok(types) => Some(types),
            Err(preference) => match preference.mode {
                ReadMode::Primary => Some(Self::PRIMARY),
                ReadMode::Secondary => Some(Self::SECONDARY),
                ReadMode::Nearest => Some(Self::PRIMARY_AND_SECONDARY),
                ReadMode::PrimaryPreferred | ReadMode::SecondaryPreferred => None,
            },
        }
    }

    /// Returns the types of the servers that can serve writes or, with a `preference`, reads. On a
    /// replica set, the preference itself decides among the members, so it is returned as `Err`.
    fn of_topology(
        topology_type: TopologyType,
        preference: Option<&ReadPreference>,
    ) -> Result<Self, &ReadPreference> {
        Ok(match (topology_type, preference) {
            (TopologyType::Unknown, _) | (TopologyType::ReplicaSetNoPrimary, None) => Self::NONE,
            (TopologyType::Single, _) => Self::AVAILABLE,
            (TopologyType::Sharded, _) => Self::MONGOS,
            (TopologyType::LoadBalanced, _) => Self::ALL,
            (TopologyType::ReplicaSetWithPrimary, None) => Self::PRIMARY,
            (
                TopologyType::ReplicaSetWithPrimary | TopologyType::ReplicaSetNoPrimary,
                Some(preference),
            ) => return Err(preference),
        })
    }

    const fn of(server_type: ServerType) -> Self {
        Self(1 << server_type as u16)
    }

    #[inline]
    pub(crate) const fn contains(self, server_type: ServerType) -> bool {
        self.0 & Self::of(server_type).0 != 0
    }
}

#[cfg(test)]
mod tests;
