//! Runs of single-threaded clients, with one application and no tasks. The same invariants apply.

use std::{sync::Arc, time::Duration};

use futures::future::join;
use sdam::SelectionError;
use sdam_core::{
    options::{COOLDOWN, MIN_HEARTBEAT_FREQUENCY, Options},
    rng::Rng,
};
use sdam_sim::{
    oracle::{Oracle, Violation},
    runtime::Sim,
};

use super::{Convergence, builder, setup_failure};
use crate::{
    load::{
        SelectionRequest,
        report::{draw, possibly_stale},
    },
    oracle::step::check_description,
    plan::{Plan, pick},
    record::{RunRecord, ScanTopology, lock},
};

pub(super) async fn run_client(
    plan: &Plan,
    sim: &Sim,
    record: &Arc<RunRecord>,
    mut options: Options,
) -> Result<(), Violation> {
    let mut rng = Rng::new(plan.seed ^ 0x5CA4).fork();
    options.server_selection_try_once = Some(rng.below(2) == 0);
    let topology = builder(record, options, None)?
        .scan(sim.runtime().backend)
        .map_err(|error| setup_failure(&error))?;
    let mut client = Client { topology, record, sim, rng };
    let until = sim.now() + plan.scenario.duration() + Duration::from_secs(2);
    let work = async {
        while plan.load && sim.now() < until {
            client.work().await;
        }
    };
    let (refused, ()) = join(plan.scenario.play(sim), work).await;
    lock(&record.counts).faults += (plan.scenario.steps.len() - refused.len()) as u64;
    client.converge(plan).await?;
    client.topology.close();
    Ok(())
}

struct Client<'c> {
    topology: ScanTopology,
    record: &'c Arc<RunRecord>,
    sim: &'c Sim,
    rng: Rng,
}

impl Client<'_> {
    async fn work(&mut self) {
        let max = pick(&mut self.rng, &[100, 2000, 8000]);
        let pause = Duration::from_millis(1 + self.rng.below(max));
        self.sim.clock().sleep_until(self.sim.now() + pause).await;
        match self.rng.below(8) {
            0 => self.topology.scan().await,
            1 => self.report(),
            _ => self.select().await,
        }
        self.check();
    }

    async fn select(&mut self) {
        let request = SelectionRequest::draw(&mut self.rng);
        let timeout = Duration::from_millis(self.rng.below(8000));
        match self.topology.select_within(&request.criteria, timeout).await {
            Ok(selected) => {
                lock(&self.record.counts).selected += 1;
                let server_type = selected.server_type();
                let is_suitable = request.is_suitable(selected.topology_type(), server_type);
                self.record.ensure(is_suitable != Some(false), Oracle::Selection, || {
                    format!("{server_type} for {}", request.criteria)
                });
            }
            Err(SelectionError::Timeout(_)) => {
                lock(&self.record.counts).timed_out += 1;
                let description = self.topology.description();
                // If the timeout is too short for a scan that is due, the selection fails even if a
                // suitable server is known (Server Selection: "Single-threaded server selection").
                let too_short = timeout < MIN_HEARTBEAT_FREQUENCY + self.record.lateness;
                let may_fail = too_short || request.has_suitable_server(&description) != Some(true);
                self.record.ensure(may_fail, Oracle::Waiters, || {
                    let criteria = &request.criteria;
                    format!("a selection of {criteria} timed out in spite of {description}")
                });
            }
            Err(error) if request.may_fail_with(&error) => {}
            Err(error) => self.record.violated(Oracle::Selection, error.to_string()),
        }
    }

    fn report(&mut self) {
        let description = self.topology.description();
        let servers = description.servers();
        let Some(server) = servers.get(self.rng.below(servers.len() as u64) as usize) else {
            return;
        };
        let Some(current) = self.topology.generation(server.id, None) else {
            return;
        };
        let drawn = draw(&mut self.rng, &description, server);
        let generation = possibly_stale(&mut self.rng, current);
        let outcome = self.topology.handle_error(server.id, &drawn.on(server, generation, None));
        let expected = drawn.expected(None).filter(|_| generation == current);
        drawn.reported(self.record, server, outcome, expected);
    }

    /// Checks invariants of the description and the pools (P1, P3, P7) between calls, when no other
    /// code can observe the client.
    fn check(&self) {
        let description = self.topology.description();
        check_description(self.record, &description);
        let servers = description.servers().len();
        for (what, there, max) in
            [("connections", self.sim.connections(), servers), ("tasks", self.sim.tasks(), 0)]
        {
            self.record.ensure(there <= max, Oracle::Leaks, || {
                format!("{there} {what} for {servers} servers")
            });
        }
    }

    /// Checks that scans discover the true state once all servers have left their cooldown (P8).
    async fn converge(&mut self, plan: &Plan) -> Result<(), Violation> {
        let limit = plan.convergence_limit() + COOLDOWN;
        let mut convergence = Convergence::begin(plan, self.sim, self.record, limit);
        let clock = self.sim.clock();
        loop {
            clock.sleep_until(self.sim.now() + Duration::from_secs(1)).await;
            convergence.observe();
            self.topology.scan().await;
            self.check();
            if convergence.is_over(&self.topology.description())? {
                return Ok(());
            }
        }
    }
}
