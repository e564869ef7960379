//! Invariants after every step, and whenever no task is ready.

use std::sync::Arc;

use sdam::topology::Topology;
use sdam_core::{error::ErrorKind, ids::ServerId, time::Instant, topology::TopologyDescription};
use sdam_model::oracle::{is_selectable, one_primary};
use sdam_sim::{
    oracle::{Oracle, unmeasured},
    runtime::{Sim, Step},
};

use crate::{ledger::Ledger, load::TASK_TIMERS};

/// The maximum number of polls of each task in a second of virtual time.
const POLLS_PER_TASK: u64 = 600;
/// The maximum number of timers of an engine task: its own and that of its current operation.
const TIMERS: usize = 4;

/// Checks the world after every step.
pub(crate) struct StepOracle<'w> {
    sim: &'w Sim,
    ledger: &'w Ledger,
    /// The snapshot version and the number of pool calls at the last check.
    judged: Option<(u64, usize)>,
    /// The current second of virtual time, and the number of polls in it.
    second: u64,
    polls: u64,
    most_tasks: u64,
}

impl<'w> StepOracle<'w> {
    pub(crate) fn new(sim: &'w Sim, ledger: &'w Ledger) -> Self {
        Self {
            sim,
            ledger,
            judged: None,
            second: 0,
            polls: 0,
            most_tasks: 0,
        }
    }

    pub(crate) fn look(&mut self, step: Step) {
        let Some(topology) = self.ledger.topology() else {
            return;
        };
        self.judge_publication(&topology);
        match step {
            Step::Polled => self.polls += 1,
            Step::Idle => {
                let now = self.sim.now();
                self.judge_pace(now);
                self.judge_memory(&topology);
                self.judge_waiters(&topology, now);
            }
        }
    }

    fn violated(&self, oracle: Oracle, message: impl Into<String>) {
        self.ledger.violated(oracle, message);
    }

    fn judge_publication(&mut self, topology: &Topology) {
        let (version, description) = {
            let snapshot = topology.snapshot();
            (snapshot.version(), Arc::clone(snapshot.description()))
        };
        let state = (version, self.ledger.pools().calls.len());
        if self.judged.replace(state) == Some(state) {
            return;
        }
        self.judge_primary(&description);
        self.judge_measurements(&description);
        self.judge_pools(&description);
    }

    /// Checks P1.
    fn judge_primary(&self, description: &TopologyDescription) {
        if let Some(message) = one_primary(description) {
            self.violated(Oracle::OnePrimary, message);
        }
    }

    fn judge_measurements(&self, description: &TopologyDescription) {
        if let Some(server) = unmeasured(description) {
            let message = format!("{server} was never measured");
            self.violated(Oracle::RoundTrip, message);
        }
    }

    /// Checks P3, and P7 for pools.
    fn judge_pools(&self, description: &TopologyDescription) {
        let open = self.ledger.pools().open.clone();
        let pools: Vec<ServerId> = open.keys().copied().collect();
        let mut servers: Vec<ServerId> = description
            .servers()
            .iter()
            .map(|server| server.id)
            .collect();
        servers.sort_unstable();
        if pools != servers {
            let message = format!("there are pools of {pools:?}, and servers {servers:?}");
            self.violated(Oracle::Leftovers, message);
        }
        for server in description.servers() {
            let Some(pool) = open.get(&server.id) else {
                continue;
            };
            if is_selectable(description, server) && !pool.ready {
                let message = format!("{server} is selectable, and its pool is paused");
                self.violated(Oracle::Pools, message);
            }
            let lost = server
                .error
                .as_ref()
                .is_some_and(|error| matches!(error.kind, ErrorKind::Network | ErrorKind::Timeout));
            if lost && pool.ready {
                let message = format!("{server} was lost, and its pool was not cleared");
                self.violated(Oracle::Pools, message);
            }
        }
    }

    /// Checks that the number of steps in each second of virtual time is bounded.
    fn judge_pace(&mut self, now: Instant) {
        self.most_tasks = self.most_tasks.max(self.sim.tasks() as u64 + 1);
        let second = now.as_nanos() / 1_000_000_000;
        if second == self.second {
            return;
        }
        let most = POLLS_PER_TASK * self.most_tasks;
        if self.polls > most {
            let message = format!(
                "{} polls of {} tasks in a second",
                self.polls, self.most_tasks
            );
            self.violated(Oracle::BusyLoop, message);
        }
        self.second = second;
        self.polls = 0;
        self.most_tasks = 0;
    }

    /// Checks for leaks: no task is ready, so everything that ends has ended.
    fn judge_memory(&self, topology: &Topology) {
        let servers = topology.snapshot().description().servers().len();
        let load = self.ledger.load_alive();
        // A monitor and an RTT task for each server, and one task that delivers events.
        let tasks = (self.sim.tasks(), 2 * servers + 1 + load);
        let connections = (self.sim.connections(), 2 * servers);
        let timers = (
            self.sim.timers(),
            2 * TIMERS * servers + TASK_TIMERS * (load + 1),
        );
        for (what, oracle, (there, most)) in [
            ("tasks", Oracle::Leftovers, tasks),
            ("connections", Oracle::Leftovers, connections),
            ("timers", Oracle::Memory, timers),
            (
                "undelivered events",
                Oracle::Memory,
                (topology.events().depth(), 0),
            ),
        ] {
            if there > most {
                let message = format!("{there} {what}, at most {most} for {servers} servers");
                self.violated(oracle, message);
            }
        }
    }

    /// Checks P9.
    fn judge_waiters(&self, topology: &Topology, now: Instant) {
        let (description, version, closed) = {
            let snapshot = topology.snapshot();
            let description = Arc::clone(snapshot.description());
            (description, snapshot.version(), snapshot.is_closed())
        };
        let waiting: Vec<_> = self.ledger.waiting().values().cloned().collect();
        if topology.waiters() != waiting.len() {
            let message = format!("{} wait, and {} count", waiting.len(), topology.waiters());
            self.violated(Oracle::Waiters, message);
        }
        for waiter in waiting {
            let criteria = &waiter.ask.criteria;
            let plainly = waiter.ask.is_answered_by(&description) == Some(true);
            if closed || plainly || matches!(topology.try_select(criteria), Ok(Some(_)) | Err(_)) {
                let message =
                    format!("somebody waits for {criteria} although there is {description}");
                self.violated(Oracle::Waiters, message);
            }
            if waiter.deadline < now {
                let deadline = waiter.deadline;
                let message = format!("somebody waits for {criteria}, but only until {deadline:?}");
                self.violated(Oracle::Waiters, message);
            }
        }
        if let Some(seen) = *self.ledger.watched()
            && seen != version
        {
            let message = format!("version {version} is published, and the watcher saw {seen}");
            self.violated(Oracle::Waiters, message);
        }
    }
}
