//! The run of a single-threaded client: one application, no tasks, the same rules.

use std::{sync::Arc, time::Duration};

use futures::future::join;
use sdam::{error::SelectionError, scan::ScanTopology};
use sdam_core::{
    options::{COOLDOWN, MIN_HEARTBEAT_FREQUENCY, Options},
    rng::Rng,
};
use sdam_model::oracle::{is_selectable, one_primary};
use sdam_sim::{
    oracle::{Oracle, Violation, unmeasured},
    runtime::Sim,
};

use super::{QUIET, broken, builder, heal, revive};
use crate::{
    ask::Ask,
    ledger::Ledger,
    load::report::{aged, draw},
    oracle::truth::Truth,
    plan::Plan,
};

pub(super) async fn live(
    plan: &Plan,
    sim: &Sim,
    ledger: &Arc<Ledger>,
    mut options: Options,
) -> Result<(), Violation> {
    let mut rng = Rng::new(plan.seed ^ 0x5CA4).fork();
    options.server_selection_try_once = Some(rng.below(2) == 0);
    let topology = builder(ledger, options)?
        .scan(sim.runtime().io)
        .map_err(|error| broken(&error))?;
    let mut client = Client {
        topology,
        ledger,
        sim,
        rng,
    };
    let until = sim.now() + plan.scenario.duration() + Duration::from_secs(2);
    let work = async {
        while plan.load && sim.now() < until {
            client.work().await;
        }
    };
    let (refused, ()) = join(plan.scenario.play(sim), work).await;
    ledger.counts().faults += (plan.scenario.steps.len() - refused.len()) as u64;
    client.settle(plan).await?;
    client.topology.close();
    Ok(())
}

struct Client<'c> {
    topology: ScanTopology,
    ledger: &'c Arc<Ledger>,
    sim: &'c Sim,
    rng: Rng,
}

impl Client<'_> {
    async fn work(&mut self) {
        let most = [100, 2000, 8000][self.rng.below(3) as usize];
        let pause = Duration::from_millis(1 + self.rng.below(most));
        let clock = self.sim.runtime().io.clock;
        clock.sleep_until(self.sim.now() + pause).await;
        match self.rng.below(8) {
            0 => self.topology.scan().await,
            1 => self.report(),
            _ => self.select().await,
        }
        self.judge();
    }

    async fn select(&mut self) {
        let ask = Ask::draw(&mut self.rng);
        let patience = Duration::from_millis(self.rng.below(8000));
        match self.topology.select_within(&ask.criteria, patience).await {
            Ok(selected) => {
                self.ledger.counts().selected += 1;
                let server_type = selected.description().server_type;
                if ask.suits(selected.topology_type(), server_type) == Some(false) {
                    let message = format!("{server_type} for {}", ask.criteria);
                    self.ledger.violated(Oracle::Selection, message);
                }
            }
            Err(SelectionError::Timeout(_)) => {
                self.ledger.counts().timed_out += 1;
                let description = self.topology.description();
                // A selection without time for the scan that is due fails, whatever is known
                // (Server Selection: "Single-threaded server selection").
                let hasty = patience < MIN_HEARTBEAT_FREQUENCY;
                if !hasty && ask.is_answered_by(description) == Some(true) {
                    let message =
                        format!("{} failed although there is {description}", ask.criteria);
                    self.ledger.violated(Oracle::Waiters, message);
                }
            }
            Err(error) => self.ledger.violated(Oracle::Selection, error.to_string()),
        }
    }

    fn report(&mut self) {
        let description = Arc::clone(self.topology.description());
        let servers = description.servers();
        let Some(server) = servers.get(self.rng.below(servers.len() as u64) as usize) else {
            return;
        };
        let Some(current) = self.topology.generation(server.id, None) else {
            return;
        };
        let met = draw(&mut self.rng, &description, server);
        let generation = aged(&mut self.rng, current);
        let outcome = self
            .topology
            .handle_error(server.id, met.on(server, generation, None));
        self.ledger.counts().errors += 1;
        let expected = met.expected(None).filter(|_| generation == current);
        if expected.is_some_and(|expected| expected != outcome) {
            let message = format!("an error on {server} came to {outcome:?}, not {expected:?}");
            self.ledger.violated(Oracle::Errors, message);
        }
    }

    /// Checks P1, P3 and P7 between the calls, when no other code can observe the client.
    fn judge(&self) {
        let description = self.topology.description();
        let servers = description.servers();
        if let Some(message) = one_primary(description) {
            self.ledger.violated(Oracle::OnePrimary, message);
        }
        if let Some(server) = unmeasured(description) {
            let message = format!("{server} was never measured");
            self.ledger.violated(Oracle::RoundTrip, message);
        }
        for server in servers {
            let ready = self.ledger.pool(server.id).is_some_and(|pool| pool.ready);
            if is_selectable(description, server) && !ready {
                let message = format!("{server} is selectable, and its pool is paused");
                self.ledger.violated(Oracle::Pools, message);
            }
        }
        for (what, there, most) in [
            ("connections", self.sim.connections(), servers.len()),
            ("tasks", self.sim.tasks(), 0),
        ] {
            if there > most {
                let message = format!("{there} {what} for {} servers", servers.len());
                self.ledger.violated(Oracle::Leftovers, message);
            }
        }
    }

    /// Checks P8: scans find the truth as soon as no server is in its cooldown.
    async fn settle(&mut self, plan: &Plan) -> Result<(), Violation> {
        heal(self.sim);
        let clock = self.sim.runtime().io.clock;
        let healed = self.sim.now();
        let mut truth = Truth::of(plan, self.sim);
        let mut since = healed;
        loop {
            clock
                .sleep_until(self.sim.now() + Duration::from_secs(1))
                .await;
            revive(self.sim);
            let present = Truth::of(plan, self.sim);
            if present != truth || !Truth::is_settled(self.sim) {
                truth = present;
                since = self.sim.now();
            }
            self.topology.scan().await;
            self.judge();
            let now = self.sim.now();
            let description = self.topology.description();
            let Some(difference) = truth.differs_from(description) else {
                if now.since(healed) >= QUIET {
                    return Ok(());
                }
                continue;
            };
            if now.since(since) <= plan.patience() + COOLDOWN {
                continue;
            }
            if truth.is_excused(description, &self.ledger.events()) {
                self.ledger.counts().excused += 1;
                return Ok(());
            }
            return Err(Oracle::Truth.violated(now, difference));
        }
    }
}
