//! Invariants after every step, and whenever no task is ready.

use std::sync::{Arc, atomic::Ordering};

use sdam_core::{error::ErrorKind, ids::ServerId, time::Instant, topology::TopologyDescription};
use sdam_model::oracle::{is_selectable, one_primary};
use sdam_pool::Pool;
use sdam_sim::{
    oracle::{Oracle, without_round_trip_time},
    runtime::{SchedulerStep, Sim},
};

use super::{pooled, wire};
use crate::{
    load::TASK_TIMERS,
    plan::Access,
    record::{RunRecord, Topology},
};

/// The maximum number of polls per task in a second of virtual time.
const POLLS_PER_TASK: u64 = 600;
/// The maximum number of timers of an engine task: its own and those of one operation.
const TIMERS: usize = 4;

/// Checks the world after every step.
pub(crate) struct StepOracle<'w> {
    sim: &'w Sim,
    record: &'w RunRecord,
    access: Access,
    /// The snapshot version and the number of pool calls at the last check.
    checked: Option<(u64, usize)>,
    /// The current second of virtual time, and the number of polls in it.
    second: u64,
    polls: u64,
    max_tasks: u64,
}

impl<'w> StepOracle<'w> {
    pub(crate) fn new(sim: &'w Sim, record: &'w RunRecord, access: Access) -> Self {
        Self { sim, record, access, checked: None, second: 0, polls: 0, max_tasks: 0 }
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
                self.check_leaks(&topology);
                self.check_waiters(&topology, now);
                self.check_wire();
            }
        }
    }

    fn violated(&self, oracle: Oracle, message: impl Into<String>) {
        self.record.violated(oracle, message);
    }

    fn check_wire(&self) {
        if let Err(violation) = wire::check(self.access, self.sim) {
            self.violated(violation.oracle, violation.message);
        }
    }

    fn check_publication(&mut self, topology: &Topology) {
        let (version, description) = {
            let snapshot = topology.snapshot();
            (snapshot.version(), Arc::clone(snapshot.description()))
        };
        let state = (version, self.record.pools().calls.len());
        if self.checked.replace(state) == Some(state) {
            return;
        }
        self.check_primary(&description);
        self.check_round_trip_times(&description);
        self.check_pools(&description);
    }

    /// Checks P1.
    fn check_primary(&self, description: &TopologyDescription) {
        if let Some(message) = one_primary(description) {
            self.violated(Oracle::OnePrimary, message);
        }
    }

    fn check_round_trip_times(&self, description: &TopologyDescription) {
        if let Some(server) = without_round_trip_time(description) {
            let message = format!("{server} has no round-trip time");
            self.violated(Oracle::RoundTrip, message);
        }
    }

    /// Checks P3, and P7 for pools.
    fn check_pools(&self, description: &TopologyDescription) {
        let open = self.record.pools().open.clone();
        let pools: Vec<ServerId> = open.keys().copied().collect();
        let mut servers: Vec<ServerId> =
            description.servers().iter().map(|server| server.id).collect();
        servers.sort_unstable();
        if pools != servers {
            let message =
                format!("there are pools of servers {pools:?}, but the servers are {servers:?}");
            self.violated(Oracle::Leaks, message);
        }
        for server in description.servers() {
            let Some(pool) = open.get(&server.id) else {
                continue;
            };
            if is_selectable(description, server) && !pool.ready {
                let message = format!("{server} is selectable, but its pool is paused");
                self.violated(Oracle::Pools, message);
            }
            let lost = server.error.as_ref().is_some_and(|error| {
                matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout)
            });
            if lost && pool.ready {
                let message = format!("{server} failed, but its pool was not cleared");
                self.violated(Oracle::Pools, message);
            }
        }
    }

    /// Checks that the number of steps in each second of virtual time is bounded.
    fn check_polls(&mut self, now: Instant) {
        self.max_tasks = self.max_tasks.max(self.sim.tasks() as u64 + 1);
        let second = now.as_nanos() / 1_000_000_000;
        if second == self.second {
            return;
        }
        let max = POLLS_PER_TASK * self.max_tasks;
        if self.polls > max {
            let message = format!("{} polls of {} tasks in a second", self.polls, self.max_tasks);
            self.violated(Oracle::BusyLoop, message);
        }
        self.second = second;
        self.polls = 0;
        self.max_tasks = 0;
    }

    /// Checks for leaks. No task is ready, so everything that ends has ended.
    fn check_leaks(&self, topology: &Topology) {
        let servers = topology.snapshot().description().servers().len();
        let load = self.record.load_alive();
        let pools = self.record.connecting().clone();
        let mut pooled = (0, 0, 0);
        for pool in &pools {
            pooled::check_numbers(self.record, pool);
            let stats = pool.stats();
            pooled.0 += usize::from(self.record.pool(pool.server()).is_some());
            pooled.1 += stats.idle + stats.in_use + stats.pending;
            pooled.2 += stats.pending;
        }
        self.check_check_outs(&pools);
        let (pools, opened, pending) = pooled;
        // One task per server and per pool, one that delivers events, and one that polls SRV
        // records. A server has two connections, and with a detector a third one. Each exchange on a
        // pooled connection has another timer then.
        let judged = usize::from(topology.options().detector.is_some());
        let polling = usize::from(self.access.srv);
        let tasks = (self.sim.tasks(), servers + pools + 1 + polling + load);
        let connections = (self.sim.connections(), (2 + judged) * servers + opened);
        let timers = (
            self.sim.timers(),
            ((2 + judged) * TIMERS - 1) * servers
                + pools
                + TIMERS * (pending + polling)
                + TASK_TIMERS * (load + 1)
                + judged * (pending + load),
        );
        for (what, oracle, (there, max)) in [
            ("tasks", Oracle::Leaks, tasks),
            ("connections", Oracle::Leaks, connections),
            ("timers", Oracle::Memory, timers),
            ("undelivered events", Oracle::Memory, (topology.events().depth(), 0)),
        ] {
            if there > max {
                let message = format!("{there} {what}, allowed are {max} for {servers} servers");
                self.violated(oracle, message);
            }
        }
    }

    /// Checks that exactly the queued check-outs are in progress. No task is ready, so all others
    /// have ended.
    fn check_check_outs(&self, pools: &[Pool]) {
        let waiting: usize = pools.iter().map(|pool| pool.stats().waiting).sum();
        let there = self.record.checking_out.load(Ordering::SeqCst);
        if there != waiting {
            let message = format!("{there} check-outs are in progress, but {waiting} are queued");
            self.violated(Oracle::Waiters, message);
        }
    }

    /// Checks P9.
    fn check_waiters(&self, topology: &Topology, now: Instant) {
        let (description, version, closed) = {
            let snapshot = topology.snapshot();
            let description = Arc::clone(snapshot.description());
            (description, snapshot.version(), snapshot.is_closed())
        };
        let waiting: Vec<_> = self.record.waiting().values().cloned().collect();
        if topology.waiters() != waiting.len() {
            let message = format!(
                "{} selections are waiting, but {} are counted",
                waiting.len(),
                topology.waiters()
            );
            self.violated(Oracle::Waiters, message);
        }
        for waiter in waiting {
            let criteria = &waiter.request.criteria;
            let is_satisfied = waiter.request.has_suitable_server(&description) == Some(true);
            if closed
                || is_satisfied
                || matches!(topology.try_select(criteria), Ok(Some(_)) | Err(_))
            {
                let message = format!(
                    "a selection of {criteria} is waiting, but could end with {description}"
                );
                self.violated(Oracle::Waiters, message);
            }
            if waiter.deadline < now {
                let deadline = waiter.deadline;
                let message =
                    format!("a selection of {criteria} is waiting after its deadline {deadline:?}");
                self.violated(Oracle::Waiters, message);
            }
        }
        if let Some(seen) = *self.record.watched()
            && seen != version
        {
            let message = format!(
                "snapshot version {version} is published, but the watcher has received {seen}"
            );
            self.violated(Oracle::Waiters, message);
        }
    }
}
