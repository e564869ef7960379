//! P8: what the client should know once all is well.

use std::collections::BTreeMap;

use sdam_core::{
    address::ServerAddress,
    error::ErrorKind,
    event::{Event, EventKind},
    hello::Hello,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};
use sdam_sim::{
    deployment::{MemberStatus, Role},
    runtime::Sim,
};

use crate::plan::{Plan, Shape, first};
use sdam_model::election::is_newest;

/// What a client that knows everything would say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Truth {
    topology_type: TopologyType,
    servers: BTreeMap<ServerAddress, ServerType>,
}

impl Truth {
    /// The truth at this moment.
    pub(crate) fn of(plan: &Plan, sim: &Sim) -> Self {
        let status = sim.status();
        let typed = |member: &MemberStatus, of: ServerType| {
            let found = if member.answers {
                of
            } else {
                ServerType::Unknown
            };
            (member.address.clone(), found)
        };
        match plan.shape {
            Shape::Standalone => Self {
                topology_type: TopologyType::Single,
                servers: status
                    .members
                    .iter()
                    .map(|member| typed(member, ServerType::Standalone))
                    .collect(),
            },
            Shape::Sharded => Self {
                topology_type: TopologyType::Sharded,
                servers: status
                    .members
                    .iter()
                    .map(|member| typed(member, ServerType::Mongos))
                    .collect(),
            },
            Shape::LoadBalanced => Self {
                topology_type: TopologyType::LoadBalanced,
                servers: [(first(), ServerType::LoadBalancer)].into(),
            },
            Shape::Direct => Self {
                topology_type: TopologyType::Single,
                servers: Self::members(sim)
                    .into_iter()
                    .filter(|(address, _)| *address == first())
                    .collect(),
            },
            Shape::ReplicaSet => {
                let servers = Self::members(sim);
                let has_primary = servers.values().any(|own| *own == ServerType::RsPrimary);
                Self {
                    topology_type: if has_primary {
                        TopologyType::ReplicaSetWithPrimary
                    } else {
                        TopologyType::ReplicaSetNoPrimary
                    },
                    servers,
                }
            }
        }
    }

    /// The members of the replica set that clients are told of.
    fn members(sim: &Sim) -> BTreeMap<ServerAddress, ServerType> {
        let status = sim.status();
        let config = sim.config();
        let listed = config.iter().flat_map(|config| &config.members);
        listed
            .filter(|entry| !entry.hidden)
            .map(|entry| {
                let member = status
                    .members
                    .iter()
                    .find(|member| member.address == entry.address && is_well(member));
                let found = match member.and_then(|member| member.role) {
                    None => ServerType::Unknown,
                    Some(Role::Primary) => ServerType::RsPrimary,
                    Some(Role::Secondary) => ServerType::RsSecondary,
                    Some(Role::Arbiter) => ServerType::RsArbiter,
                    Some(Role::Recovering) => ServerType::RsOther,
                    Some(Role::Startup | Role::Removed) => ServerType::RsGhost,
                };
                (entry.address.clone(), found)
            })
            .collect()
    }

    /// Whether the deployment has come to rest. Who knows no other server than one that announces its
    /// end cannot be told of the others.
    pub(crate) fn is_settled(sim: &Sim) -> bool {
        sim.status().members.iter().all(is_well)
    }

    /// What the client has got wrong.
    pub(crate) fn differs_from(&self, description: &TopologyDescription) -> Option<String> {
        // Only a primary's word makes members leave.
        let all = self.topology_type != TopologyType::ReplicaSetNoPrimary;
        let known: BTreeMap<_, _> = description
            .servers()
            .iter()
            .filter(|server| all || self.servers.contains_key(&server.address))
            .map(|server| {
                let found = match server.server_type {
                    ServerType::PossiblePrimary => ServerType::Unknown,
                    found => found,
                };
                (server.address.clone(), found)
            })
            .collect();
        let right = known == self.servers && description.topology_type() == self.topology_type;
        (!right).then(|| format!("{description}, but the truth is {self:?}"))
    }

    /// Whether the client is wrong only because it must be: the rule for releases before 6.0 takes
    /// a primary for stale that was elected with an older configuration.
    pub(crate) fn is_excused(&self, description: &TopologyDescription, events: &[Event]) -> bool {
        let rejected = description.servers().iter().find(|server| {
            let stale = |error: &std::sync::Arc<sdam_core::error::ServerError>| {
                error.kind == ErrorKind::StalePrimary
            };
            self.servers.get(&server.address) == Some(&ServerType::RsPrimary)
                && server.error.as_ref().is_some_and(stale)
        });
        let Some(rejected) = rejected else {
            return false;
        };
        let said = events.iter().rev().find_map(|event| match &event.kind {
            EventKind::ServerHeartbeatSucceeded {
                heartbeat, reply, ..
            } if heartbeat.server == rejected.id => Hello::parse(reply).ok(),
            _ => None,
        });
        let said = said.map(|hello| {
            let (id, address) = (rejected.id, rejected.address.clone());
            ServerDescription::from_hello(id, address, hello, None, Instant::EPOCH)
        });
        said.is_some_and(|primary| !is_newest(description.max_election(), &primary))
    }
}

/// Whether the server answers, and not with the announcement of its end.
fn is_well(member: &MemberStatus) -> bool {
    member.answers && !member.quiesces
}
