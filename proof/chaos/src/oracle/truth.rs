//! Invariant P8: after all faults are healed, the client's description becomes correct.

use std::collections::BTreeMap;

use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind},
    event::{Event, EventKind},
    hello::Hello,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};
use sdam_sim::{
    MemberId,
    deployment::{MemberStatus, Role},
    runtime::Sim,
};

use crate::plan::{Plan, SRV_NAME, Shape, first};
use sdam_model::oracle::is_newest;

/// The part of the deployment's true state that clients can see.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Truth {
    topology_type: TopologyType,
    servers: BTreeMap<ServerAddress, ServerType>,
}

impl Truth {
    /// Returns the current state of the deployment.
    pub(crate) fn of(plan: &Plan, sim: &Sim) -> Self {
        let typed = |of: ServerType| {
            let hosts = sim.dns().hosts(SRV_NAME);
            let mut members = sim.status().members;
            members.retain(|member| !plan.access.srv || hosts.contains(&member.address));
            let found = |own: MemberStatus| {
                (own.address, if own.answers { of } else { ServerType::Unknown })
            };
            members.into_iter().map(found).collect()
        };
        let (topology_type, servers) = match plan.shape {
            Shape::Standalone => (TopologyType::Single, typed(ServerType::Standalone)),
            Shape::Sharded => (TopologyType::Sharded, typed(ServerType::Mongos)),
            Shape::LoadBalanced => {
                (TopologyType::LoadBalanced, [(first(), ServerType::LoadBalancer)].into())
            }
            Shape::Direct => {
                let mut servers = Self::members(sim);
                servers.retain(|address, _| *address == first());
                (TopologyType::Single, servers)
            }
            Shape::ReplicaSet => {
                let servers = Self::members(sim);
                let has_primary = servers.values().any(|own| *own == ServerType::RsPrimary);
                let topology_type = if has_primary {
                    TopologyType::ReplicaSetWithPrimary
                } else {
                    TopologyType::ReplicaSetNoPrimary
                };
                (topology_type, servers)
            }
        };
        Self { topology_type, servers }
    }

    /// Returns the members of the replica set that are visible to clients.
    fn members(sim: &Sim) -> BTreeMap<ServerAddress, ServerType> {
        let status = sim.status();
        let config = sim.config();
        let listed = config.iter().flat_map(|config| &config.members);
        listed
            .filter(|entry| !entry.hidden)
            .map(|entry| {
                let mut members = status.members.iter().filter(|member| is_up(member));
                let member = members.find(|member| member.address == entry.address);
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

    /// Returns whether all servers for which `healed` returns true are up. Until then, a client
    /// that knows only a server that is shutting down cannot discover the other servers.
    pub(crate) fn is_settled(sim: &Sim, healed: impl Fn(MemberId) -> bool) -> bool {
        sim.status().members.iter().all(|member| is_up(member) || !healed(member.id))
    }

    /// Returns the first difference between the client's description and the true state.
    pub(crate) fn differs_from(&self, description: &TopologyDescription) -> Option<String> {
        // Only a primary's reply removes members, so without a primary the client may know servers
        // that are not members.
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
        (!right).then(|| format!("the client has {description}, but the deployment is {self:?}"))
    }

    /// Returns whether the specification requires the client's description to differ from the true
    /// state. Before MongoDB 6.0, a primary that was elected with an older configuration is treated
    /// as stale.
    pub(crate) fn is_excused(&self, description: &TopologyDescription, events: &[Event]) -> bool {
        let rejected = description.servers().iter().find(|server| {
            self.servers.get(&server.address) == Some(&ServerType::RsPrimary)
                && server.error.as_ref().map(Error::kind) == Some(ErrorKind::StalePrimary)
        });
        let Some(rejected) = rejected else {
            return false;
        };
        let reply = events.iter().rev().find_map(|event| match &event.kind {
            EventKind::ServerHeartbeatSucceeded { heartbeat, reply, .. }
                if heartbeat.server == rejected.id =>
            {
                Hello::parse(reply).ok()
            }
            _ => None,
        });
        let reply = reply.map(|hello| {
            let (id, address) = (rejected.id, rejected.address.clone());
            ServerDescription::from_hello(id, address, hello, None, Instant::EPOCH)
        });
        reply.is_some_and(|primary| !is_newest(description.max_election(), &primary))
    }
}

/// Returns whether the server answers and is not shutting down.
fn is_up(member: &MemberStatus) -> bool {
    member.answers && !member.quiescing
}
