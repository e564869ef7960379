//! The healthy core of a set. Some runs heal only a majority of the members after the faults.

use std::{collections::BTreeSet, time::Duration};

use sdam_core::{rng::Rng, time::Instant, topology::TopologyType};
use sdam_sim::{
    Action, MemberId,
    deployment::MemberStatus,
    oracle::{Oracle, Violation},
    runtime::Sim,
};
use sdam_transport::clock::Clock;

use crate::{
    load::{self, SelectionRequest},
    plan::{Plan, first, pick},
    record::{RunRecord, Topology, lock},
};

/// The time within which the core must elect a primary. It is several election timeouts long.
const ELECTION: Duration = Duration::from_secs(90);
/// The time within which a pool opens its minimum number of connections.
const FILLING: Duration = Duration::from_secs(10);

/// The members that stay broken; all others are the core.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost(BTreeSet<MemberId>);

impl Lost {
    /// Breaks all members except the core. The core is a majority of the voting members, can elect
    /// a primary, and includes the first member, through which every client finds the set. Does
    /// nothing if the plan heals all members, if the voters of the newest configuration are no
    /// majority of all processes, or if none of them knows that configuration.
    pub(super) fn choose(plan: &Plan, sim: &Sim) -> Self {
        let Some(config) = sim.config().filter(|_| plan.heals_a_majority()) else {
            return Self::default();
        };
        let mut rng = Rng::new(plan.seed ^ 0xC04E).fork();
        let status = sim.status();
        let mut entries: Vec<_> = config.members.iter().collect();
        // The members are sorted: the first member, then the candidates, then the other voters. The
        // core is the shortest prefix of this list that forms a majority and contains a candidate.
        let first = first();
        entries.sort_by_key(|own| (own.address != first, !own.is_electable(), !own.votes));
        // Some members may only know an earlier configuration, in which every process votes.
        let all = status.members.len().max(entries.len());
        let (mut votes, mut has_candidate, mut core) = (0, false, BTreeSet::new());
        for entry in entries {
            if votes * 2 > all && has_candidate {
                break;
            }
            votes += usize::from(entry.votes);
            has_candidate |= entry.is_electable();
            core.insert(entry.address.clone());
        }
        let in_core = |member: &&MemberStatus| core.contains(&member.address);
        let newest = status.members.iter().map(|member| member.set_version).max();
        let known = status.members.iter().filter(in_core).map(|member| member.set_version).max();
        if votes * 2 <= all || known < newest {
            // Only removed members may know that they were removed. Without their votes, the others
            // could then elect no primary, or would still count them as members.
            return Self::default();
        }
        let others = status.members.iter().filter(|member| !core.contains(&member.address));
        let lost = others.map(|member| {
            let target = member.id.into();
            let ways: [&[Action]; 3] = [
                &[Action::Kill(target)],
                &[Action::Freeze(target)],
                &[Action::Isolate(target), Action::CutOff(target)],
            ];
            for action in pick(&mut rng, &ways) {
                // An action may fail, because a process that is not in the set can only be killed,
                // and a process that is not running is already lost.
                let _ = sim.apply(action);
            }
            member.id
        });
        Self(lost.collect())
    }

    pub(super) fn contains(&self, member: MemberId) -> bool {
        self.0.contains(&member)
    }
}

/// Returns whether the client knows a primary or does not have to. Fails if the core has had enough
/// time and the client still knows no primary.
pub(super) fn check_primary(
    plan: &Plan,
    sim: &Sim,
    topology: TopologyType,
    healed: Instant,
) -> Result<bool, Violation> {
    let now = sim.now();
    if !plan.heals_a_majority() || topology == TopologyType::ReplicaSetWithPrimary {
        return Ok(true);
    }
    if now.since(healed) < ELECTION {
        return Ok(false);
    }
    let members = sim.status().members;
    let message =
        format!("there is no primary {ELECTION:?} after a majority was healed: {members:?}");
    Err(Oracle::Convergence.violated(now, message))
}

/// Checks that a healed deployment is usable: selections succeed, unless the client `is_excused`
/// from knowing the primary, and pools fill up.
pub(super) async fn check_service(
    plan: &Plan,
    sim: &Sim,
    record: &RunRecord,
    topology: &Topology,
    is_excused: bool,
) -> Result<(), Violation> {
    let clock = sim.clock();
    if plan.heals_a_majority() && !is_excused {
        let limit = Duration::from_secs(1);
        let request = SelectionRequest::write();
        if let Err(error) = load::wait_for(topology, record, &*clock, &request, limit).await {
            let message = format!("after the faults, a selection for a write fails: {error}");
            return Err(Oracle::Waiters.violated(sim.now(), message));
        }
    }
    filled(sim, record, &*clock).await
}

/// Waits until every pool has its minimum number of connections, except the pools of servers that
/// do not answer.
async fn filled(sim: &Sim, record: &RunRecord, clock: &dyn Clock) -> Result<(), Violation> {
    let until = sim.now() + FILLING;
    loop {
        let pools = lock(&record.connecting).clone();
        let short = pools.iter().find(|pool| {
            let stats = pool.stats();
            let there = stats.idle + stats.in_use + stats.pending;
            stats.is_ready && there < pool.options().min_pool_size as usize
        });
        let Some(short) = short else {
            return Ok(());
        };
        Oracle::Pools.ensure(sim.now(), sim.now() < until, || {
            format!("{short:?} has too few connections: {:?}", short.stats())
        })?;
        clock.sleep_until(sim.now() + Duration::from_millis(100)).await;
    }
}
