//! Invariants after every step, and whenever no task is ready.

use std::sync::{Arc, atomic::Ordering};

use sdam_core::{ids::ServerId, time::Instant, topology::TopologyDescription};
use sdam_model::oracle::{check_pool, one_primary};
use sdam_pool::Pool;
use sdam_sim::{
    oracle::{Oracle, without_round_trip_time},
    runtime::{SchedulerStep, Sim},
};

use super::{check_traffic, pooled};
use crate::{
    load::TASK_TIMERS,
    plan::{Access, Plan},
    record::{RunRecord, Topology, Waiting, lock},
};

/// The maximum number of polls per task in a second of virtual time.
const POLLS_PER_TASK: u64 = 600;
/// The maximum number of polls per task in a second of a disturbed simulation, which wakes tasks
/// without a reason.
const DISTURBED_POLLS_PER_TASK: u64 = 2400;
/// The maximum number of timers that a task of the engine may have: its own timers and those for
/// one operation.
const TIMERS: usize = 4;
/// The maximum number of timers that a run itself may have: for its faults, its stalls and its
/// end.
const RUN_TIMERS: usize = 3;

/// Checks the client and the deployment after every step.
pub(crate) struct StepOracle<'w> {
    sim: &'w Sim,
    record: &'w RunRecord,
    access: Access,
    /// The maximum number of polls per task in a second of virtual time.
    polls_per_task: u64,
    /// The snapshot version and the number of pool calls at the last check.
    checked: Option<(u64, usize)>,
    /// The current second of virtual time. `polls` counts the polls during this second.
    second: u64,
    polls: u64,
    max_tasks: u64,
}

impl<'w> StepOracle<'w> {
    pub(crate) fn new(sim: &'w Sim, record: &'w RunRecord, plan: &Plan) -> Self {
        Self {
            sim,
            record,
            access: plan.access,
            polls_per_task: plan.disturbance.map_or(POLLS_PER_TASK, |_| DISTURBED_POLLS_PER_TASK),
            checked: None,
            second: 0,
            polls: 0,
            max_tasks: 0,
        }
    }

    pub(crate) fn observe(&mut self, step: SchedulerStep) {
        let Some(topology) = self.record.topology() else {
            return;
        };
        self.check_publication(&topology);
        match step {
            SchedulerStep::Polled => self.polls += 1,
            SchedulerStep::Idle => {
                let now = self.sim.now();
                self.check_polls(now);
                // During a stall, tasks that are ready do not run.
                if now < lock(&self.record.stalls).end() {
                    return;
                }
                self.check_leaks(&topology);
                self.check_waiters(&topology, now);
                if let Err(violation) = check_traffic(self.access, self.sim) {
                    self.record.violated(violation.oracle, violation.message);
                }
            }
        }
    }

    fn check_publication(&mut self, topology: &Topology) {
        let (version, description) = {
            let snapshot = topology.snapshot();
            (snapshot.version(), Arc::clone(snapshot.description()))
        };
        let state = (version, lock(&self.record.pools).calls.len());
        if self.checked.replace(state) == Some(state) {
            return;
        }
        check_description(self.record, &description);
    }

    /// Checks that the tasks are not polled too often in any second of virtual time.
    fn check_polls(&mut self, now: Instant) {
        self.max_tasks = self.max_tasks.max(self.sim.tasks() as u64 + 1);
        let second = now.as_nanos() / 1_000_000_000;
        if second == self.second {
            return;
        }
        let max = self.polls_per_task * self.max_tasks;
        self.record.ensure(self.polls <= max, Oracle::BusyLoop, || {
            format!("{} polls of {} tasks in a second", self.polls, self.max_tasks)
        });
        self.second = second;
        self.polls = 0;
        self.max_tasks = 0;
    }

    /// Checks for leaked tasks, timers, connections and pools. It is called when no task is ready,
    /// so no task is about to end.
    fn check_leaks(&self, topology: &Topology) {
        let servers = topology.snapshot().description().servers().len();
        let load = self.record.load_alive();
        let pools = lock(&self.record.connecting).clone();
        let mut pooled = (0, 0, 0);
        for pool in &pools {
            pooled::check_numbers(self.record, pool);
            let stats = pool.stats();
            pooled.0 += usize::from(self.record.pool(pool.server()).is_some());
            // A pool may have opened a socket early until it begins its first attempt.
            let dials = topology.options().early_dial;
            let early = usize::from(dials && stats.opened == 0 && stats.pending == 0);
            pooled.1 += stats.idle + stats.in_use + stats.pending + early;
            pooled.2 += stats.pending + early;
        }
        self.check_check_outs(&pools);
        let (pools, opened, pending) = pooled;
        // There is one task per server and per pool, one task that delivers events, and one that
        // polls SRV records. A server has two monitoring connections, or three with a detector. A
        // detector also adds a timer to each command on a pooled connection.
        let judged = usize::from(topology.options().detector.is_some());
        let polling = usize::from(self.access.srv);
        let tasks = (self.sim.tasks(), servers + pools + 1 + polling + load);
        let connections = (self.sim.connections(), (2 + judged) * servers + opened);
        let timers = (
            self.sim.timers(),
            ((2 + judged) * TIMERS - 1) * servers
                + pools
                + TIMERS * (pending + polling)
                + TASK_TIMERS * load
                + RUN_TIMERS
                + judged * (pending + load),
        );
        for (what, oracle, (there, max)) in [
            ("tasks", Oracle::Leaks, tasks),
            ("connections", Oracle::Leaks, connections),
            ("timers", Oracle::Memory, timers),
            ("undelivered events", Oracle::Memory, (topology.events().depth(), 0)),
        ] {
            self.record.ensure(there <= max, oracle, || {
                format!("{there} {what}, allowed are {max} for {servers} servers")
            });
        }
    }

    /// Checks that the only check-outs in progress are those in the pools' queues. All others must
    /// have ended, because no task is ready.
    fn check_check_outs(&self, pools: &[Pool]) {
        let waiting: usize = pools.iter().map(|pool| pool.stats().waiting).sum();
        let there = self.record.checking_out.load(Ordering::SeqCst);
        self.record.ensure(there == waiting, Oracle::Waiters, || {
            format!("{there} check-outs are in progress, but {waiting} are queued")
        });
    }

    /// Checks that no selection waits too long (P9).
    fn check_waiters(&self, topology: &Topology, now: Instant) {
        let (description, version, closed) = {
            let snapshot = topology.snapshot();
            let description = Arc::clone(snapshot.description());
            (description, snapshot.version(), snapshot.is_closed())
        };
        let waiting: Vec<_> = lock(&self.record.waiting).values().cloned().collect();
        let (there, counted) = (waiting.len(), topology.waiters());
        self.record.ensure(there == counted, Oracle::Waiters, || {
            format!("{there} selections are waiting, but {counted} are counted")
        });
        for Waiting { request, deadline } in waiting {
            let criteria = &request.criteria;
            let ends = closed
                || request.has_suitable_server(&description) == Some(true)
                || matches!(topology.try_select(criteria), Ok(Some(_)) | Err(_));
            self.record.ensure(!ends, Oracle::Waiters, || {
                format!("a selection of {criteria} is waiting, but could end with {description}")
            });
            self.record.ensure(deadline + self.record.lateness >= now, Oracle::Waiters, || {
                format!("a selection of {criteria} is waiting after its deadline {deadline:?}")
            });
        }
        let seen = lock(&self.record.watched).unwrap_or(version);
        self.record.ensure(seen == version, Oracle::Waiters, || {
            format!("snapshot version {version} is published, but the watcher has received {seen}")
        });
    }
}

/// Checks the primaries (P1), the pools (P3 and P7) and the round-trip times in a description.
pub(crate) fn check_description(record: &RunRecord, description: &TopologyDescription) {
    if let Some(message) = one_primary(description) {
        record.violated(Oracle::OnePrimary, message);
    }
    if let Some(server) = without_round_trip_time(description) {
        record.violated(Oracle::RoundTrip, format!("{server} has no round-trip time"));
    }
    let open = lock(&record.pools).open.clone();
    let pools: Vec<ServerId> = open.keys().copied().collect();
    let mut servers: Vec<ServerId> = description.servers().iter().map(|own| own.id).collect();
    servers.sort_unstable();
    record.ensure(pools == servers, Oracle::Leaks, || {
        format!("there are pools of servers {pools:?}, but the servers are {servers:?}")
    });
    for server in description.servers() {
        let Some(pool) = open.get(&server.id) else {
            continue;
        };
        if let Err(message) = check_pool(description, server, pool.ready) {
            record.violated(Oracle::Pools, message);
        }
    }
}
