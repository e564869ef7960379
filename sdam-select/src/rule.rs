//! Suitability as a rule that is computed once per selection and then applied to each server.

use sdam_core::{
    address::ServerAddress,
    read_preference::{ReadMode, ReadPreference, TagSet},
    server::{ServerDescription, ServerType},
    topology::{TopologyDescription, TopologyType},
};

use crate::{
    criteria::{Criteria, CriteriaError, Operation},
    settings::Settings,
    staleness::StalenessLimit,
};

/// The rule of suitability (Server Selection: "suitable").
///
/// Everything that depends on more than one server (the effective tag set, the fallback to the
/// primary) is decided when the rule is created. So it can be applied to each server alone, and
/// repeated passes over the servers agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule<'a> {
    pub(crate) types: Types,
    pub(crate) staleness: Option<StalenessLimit>,
    pub(crate) tags: Tags<'a>,
    pub(crate) avoid: &'a [ServerAddress],
}

/// The effective tag set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tags<'a> {
    /// Tags are not restricted.
    Any,
    /// The first tag set that matches at least one candidate.
    Set(&'a TagSet),
    /// No tag set matches any candidate.
    Unmatched,
}

impl<'a> Rule<'a> {
    /// Creates the rule of `criteria` for `topology`.
    pub(crate) fn new(
        topology: &TopologyDescription,
        settings: &Settings,
        criteria: &'a Criteria,
    ) -> Result<Self, CriteriaError> {
        let preference = match criteria.operation_on(topology) {
            Operation::Read(preference) => {
                CriteriaError::check(topology, settings, preference)?;
                Some(&**preference)
            }
            Operation::Write => None,
        };
        let avoid = criteria.deprioritized();
        if !avoid.is_empty() {
            let rule = Self::avoiding(topology, settings, preference, avoid);
            if rule.admits_any(topology) {
                return Ok(rule);
            }
        }
        Ok(Self::avoiding(topology, settings, preference, &[]))
    }

    /// Creates the rule for reading with `preference` or, without one, for writing, without the
    /// servers at `avoid` (Server Selection: "topology-type-specific server selection rules").
    pub(crate) fn avoiding(
        topology: &TopologyDescription,
        settings: &Settings,
        preference: Option<&'a ReadPreference>,
        avoid: &'a [ServerAddress],
    ) -> Self {
        let of_types = |types| Self {
            types,
            staleness: None,
            tags: Tags::Any,
            avoid,
        };
        match (topology.topology_type(), preference) {
            (TopologyType::Unknown, _) | (TopologyType::ReplicaSetNoPrimary, None) => {
                of_types(Types::NONE)
            }
            (TopologyType::Single, _) => of_types(Types::AVAILABLE),
            (TopologyType::Sharded, _) => of_types(Types::MONGOS),
            (TopologyType::LoadBalanced, _) => of_types(Types::ALL),
            (TopologyType::ReplicaSetWithPrimary, None) => of_types(Types::PRIMARY),
            (
                TopologyType::ReplicaSetWithPrimary | TopologyType::ReplicaSetNoPrimary,
                Some(preference),
            ) => {
                let eligible = |types| Self::eligible(topology, settings, preference, types, avoid);
                let preferred = match preference.mode {
                    ReadMode::Primary => return of_types(Types::PRIMARY),
                    ReadMode::Secondary => return eligible(Types::SECONDARY),
                    ReadMode::Nearest => return eligible(Types::PRIMARY_AND_SECONDARY),
                    ReadMode::PrimaryPreferred => of_types(Types::PRIMARY),
                    ReadMode::SecondaryPreferred => eligible(Types::SECONDARY),
                };
                if preferred.admits_any(topology) {
                    preferred
                } else if preference.mode == ReadMode::PrimaryPreferred {
                    eligible(Types::SECONDARY)
                } else {
                    of_types(Types::PRIMARY)
                }
            }
        }
    }

    /// Creates the rule for members of these types that meet the preference's staleness and tags
    /// (Server Selection: "eligible").
    pub(crate) fn eligible(
        topology: &TopologyDescription,
        settings: &Settings,
        preference: &'a ReadPreference,
        types: Types,
        avoid: &'a [ServerAddress],
    ) -> Self {
        let mut rule = Self {
            types,
            staleness: StalenessLimit::new(topology, settings, preference),
            tags: Tags::Any,
            avoid,
        };
        if !preference.matches_any_tags() {
            let sets = preference.tag_sets.iter();
            let tags = sets.map(Tags::Set).find(|tags| {
                rule.tags = *tags;
                rule.admits_any(topology)
            });
            rule.tags = tags.unwrap_or(Tags::Unmatched);
        }
        rule
    }

    /// Returns whether `server` is suitable.
    #[inline]
    pub(crate) fn admits(&self, server: &ServerDescription) -> bool {
        self.types.contains(server.server_type) && (self.is_plain() || self.admits_eligible(server))
    }

    /// Returns whether only the type matters, a fast path for many mongos.
    #[inline]
    fn is_plain(&self) -> bool {
        self.staleness.is_none() && matches!(self.tags, Tags::Any) && self.avoid.is_empty()
    }

    fn admits_eligible(&self, server: &ServerDescription) -> bool {
        self.is_fresh(server) && self.matches_tags(server) && !self.avoids(server)
    }

    pub(crate) fn admits_any(&self, topology: &TopologyDescription) -> bool {
        topology.servers().iter().any(|server| self.admits(server))
    }

    pub(crate) fn is_fresh(&self, server: &ServerDescription) -> bool {
        self.staleness.is_none_or(|limit| limit.admits(server))
    }

    pub(crate) fn matches_tags(&self, server: &ServerDescription) -> bool {
        match self.tags {
            Tags::Any => true,
            Tags::Set(tags) => tags.is_subset_of(&server.tags),
            Tags::Unmatched => false,
        }
    }

    /// Returns whether `server` is avoided. Compares only the address: the description may be newer
    /// than the failure that led here (L-50).
    pub(crate) fn avoids(&self, server: &ServerDescription) -> bool {
        self.avoid.binary_search(&server.address).is_ok()
    }
}

/// A set of server types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Types(u16);

impl Types {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self(u16::MAX);
    pub(crate) const PRIMARY: Self = Self::of(ServerType::RsPrimary);
    pub(crate) const SECONDARY: Self = Self::of(ServerType::RsSecondary);
    pub(crate) const PRIMARY_AND_SECONDARY: Self = Self(Self::PRIMARY.0 | Self::SECONDARY.0);
    pub(crate) const MONGOS: Self = Self::of(ServerType::Mongos);
    pub(crate) const AVAILABLE: Self =
        Self(!(Self::of(ServerType::Unknown).0 | Self::of(ServerType::PossiblePrimary).0));

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
