//! A reference model that is slow but simple: it applies the specification's filters to lists, one
//! after the other.

use std::{vec, vec::Vec};

use sdam_core::{
    read_preference::{ReadMode, ReadPreference},
    server::{
        ServerDescription,
        ServerType::{self, Mongos, RsPrimary, RsSecondary},
    },
    topology::{
        TopologyDescription,
        TopologyType::{
            LoadBalanced, ReplicaSetNoPrimary, ReplicaSetWithPrimary, Sharded, Single, Unknown,
        },
    },
};

use crate::criteria::Criteria;

type Servers = Vec<ServerDescription>;

/// Returns the suitable servers for a client with a heartbeat of 10 s; `None` if the staleness
/// limit is invalid.
pub(super) fn suitable(topology: &TopologyDescription, criteria: &Criteria) -> Option<Servers> {
    let limit = criteria.read_preference().and_then(|it| it.max_staleness);
    let limit = limit.map(|limit| limit.as_millis() as i64);
    if topology.topology_type().is_replica_set() && limit.is_some_and(|limit| limit < 90_000) {
        return None;
    }
    let model = Model {
        all: topology.servers().iter().map(|it| (**it).clone()).collect(),
        topology,
        preference: criteria.read_preference(),
        limit,
    };
    let deprioritized = criteria.deprioritized();
    let preferred = model.all.iter().filter(|it| !deprioritized.contains(&it.address));
    Some(or(model.suitable(&preferred.cloned().collect()), model.suitable(&model.all)))
}

struct Model<'a> {
    all: Servers,
    topology: &'a TopologyDescription,
    preference: Option<&'a ReadPreference>,
    limit: Option<i64>,
}

impl Model<'_> {
    fn suitable(&self, servers: &Servers) -> Servers {
        match (self.topology.topology_type(), self.preference) {
            (Unknown, _) | (ReplicaSetNoPrimary, None) => vec![],
            (LoadBalanced, _) => servers.clone(),
            (Sharded, _) => of(servers, &[Mongos]),
            (ReplicaSetWithPrimary, None) => of(servers, &[RsPrimary]),
            (Single, _) => {
                let available = servers.iter().filter(|it| it.server_type.is_available());
                available.cloned().collect()
            }
            (ReplicaSetWithPrimary | ReplicaSetNoPrimary, Some(preference)) => {
                let primary = of(servers, &[RsPrimary]);
                let eligible =
                    |types: &[ServerType]| tagged(self.fresh(of(servers, types)), preference);
                match preference.mode {
                    ReadMode::Primary => primary,
                    ReadMode::Secondary => eligible(&[RsSecondary]),
                    ReadMode::Nearest => eligible(&[RsPrimary, RsSecondary]),
                    ReadMode::PrimaryPreferred => or(primary, eligible(&[RsSecondary])),
                    ReadMode::SecondaryPreferred => or(eligible(&[RsSecondary]), primary),
                }
            }
        }
    }

    fn fresh(&self, mut servers: Servers) -> Servers {
        if let Some(limit) = self.limit {
            servers.retain(|it| {
                it.server_type == RsPrimary || self.staleness(it).is_some_and(|lag| lag <= limit)
            });
        }
        servers
    }

    fn staleness(&self, server: &ServerDescription) -> Option<i64> {
        let updated =
            |it: &ServerDescription| Some(it.last_update_time?.as_nanos() as i64 / 1_000_000);
        let wrote = server.last_write_date?;
        let lag = if let Some(primary) = self.topology.primary() {
            (updated(server)? - wrote) - (updated(primary)? - primary.last_write_date?)
        } else {
            let secondaries = of(&self.all, &[RsSecondary]);
            secondaries.iter().filter_map(|it| it.last_write_date).max()? - wrote
        };
        Some(lag + 10_000)
    }
}

fn of(servers: &Servers, types: &[ServerType]) -> Servers {
    let kept = servers.iter().filter(|it| types.contains(&it.server_type));
    kept.cloned().collect()
}

fn tagged(servers: Servers, preference: &ReadPreference) -> Servers {
    if preference.tag_sets.is_empty() {
        return servers;
    }
    for set in &preference.tag_sets {
        let matching = servers.iter().filter(|it| set.is_subset_of(&it.tags));
        let matching: Servers = matching.cloned().collect();
        if !matching.is_empty() {
            return matching;
        }
    }
    vec![]
}

fn or(first: Servers, second: Servers) -> Servers {
    if first.is_empty() { second } else { first }
}
