//! One run: a world, a client in it, and the oracles.

mod scan;

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::future::{Either, join, select};
use sdam::{builder::TopologyBuilder, error::SelectionError, topology::Topology};
use sdam_core::{event::Event, options::Options, rng::Rng, time::Instant};
use sdam_sim::{
    Action,
    oracle::{Oracle, Violation, audit},
    runtime::Sim,
};
use sdam_transport::handshake::{ClientMetadata, Environment};

use crate::{
    ask::Ask,
    ledger::{Counts, Ledger, Pools, Recorder},
    load,
    oracle::{cadence, elections, step::StepOracle, truth::Truth},
    plan::{Ending, Kind, Plan, Shape},
};

/// How long the world is observed after it was healed: longer than an election and a server's
/// shutdown.
const QUIET: Duration = Duration::from_secs(16);
/// The maximum virtual time that closing may take.
const CLOSING: Duration = Duration::from_millis(1);

/// The statistics of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The virtual time that has passed.
    pub virtual_time: Duration,
    /// A hash of all events of the simulation.
    pub trace: u64,
    /// The number of events of the simulation.
    pub steps: u64,
    /// The number of published events.
    pub events: u64,
    /// What the run exercised.
    pub counts: Counts,
}

/// A run that violated a rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The violation.
    pub violation: Violation,
    /// The events that were published until then.
    pub events: Vec<Event>,
    /// The actions of applications and of the world.
    pub notes: Vec<(Instant, String)>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.violation.fmt(f)
    }
}

impl std::error::Error for Failure {}

/// Runs `plan` and checks it.
///
/// # Errors
///
/// The first violation.
pub fn run(plan: &Plan) -> Result<Stats, Box<Failure>> {
    let ledger = Arc::new(Ledger::default());
    // Half-done state after a panic is discarded with the world.
    let outcome = catch_unwind(AssertUnwindSafe(|| drive(plan, &ledger)));
    let failed = |violation| {
        Err(Box::new(Failure {
            violation,
            events: ledger.events().clone(),
            notes: ledger.notes().clone(),
        }))
    };
    // The violation that was found first takes precedence.
    match (ledger.verdict(), outcome) {
        (Some(violation), _) | (None, Ok(Err(violation))) => failed(violation),
        (None, Ok(Ok(stats))) => Ok(stats),
        (None, Err(panic)) => {
            let message = message_of(&*panic);
            let oracle = if message.starts_with("a busy loop") {
                Oracle::BusyLoop
            } else {
                Oracle::Panic
            };
            failed(oracle.violated(ledger.now(), message))
        }
    }
}

/// Runs `plan` twice and compares the runs.
///
/// # Errors
///
/// As [`run`], and if the runs differ.
pub fn run_twice(plan: &Plan) -> Result<Stats, Box<Failure>> {
    let first = run(plan)?;
    let second = run(plan)?;
    if first == second {
        return Ok(first);
    }
    let message = format!("{first:?} and then {second:?}");
    Err(Box::new(Failure {
        violation: Oracle::Determinism.violated(Instant::EPOCH, message),
        events: Vec::new(),
        notes: Vec::new(),
    }))
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

fn drive(plan: &Plan, ledger: &Arc<Ledger>) -> Result<Stats, Violation> {
    let sim = Sim::new(plan.seed, &plan.blueprint);
    ledger.set_clock(sim.runtime().io.clock);
    let options = plan.options(&sim.uri()).map_err(|error| broken(&error))?;
    if plan.kind == Kind::Scan {
        sim.block_on(scan::live(plan, &sim, ledger, options.clone()))?;
    } else {
        let mut judge = StepOracle::new(&sim, ledger);
        let work = live(plan, &sim, ledger, options.clone());
        sim.block_on_watching(work, |step| judge.look(step))?;
    }
    // Nothing may be left of the closed topology.
    for (what, left) in [
        ("tasks", sim.tasks()),
        ("connections", sim.connections()),
        ("timers", sim.timers()),
    ] {
        if left > 0 {
            let message = format!("{left} {what} are left of a closed topology");
            return Err(Oracle::Leftovers.violated(sim.now(), message));
        }
    }
    let events = ledger.events().clone();
    audit(&events, &ledger.pools().calls)?;
    elections::judge(&events)?;
    if plan.kind == Kind::Scan {
        cadence::judge_scans(&events)?;
    } else {
        cadence::judge(&events, &options)?;
    }
    let counts = *ledger.counts();
    Ok(Stats {
        virtual_time: sim.now().since(Instant::EPOCH),
        trace: sim.trace(),
        steps: sim.steps(),
        events: events.len() as u64,
        counts,
    })
}

/// Runs a topology from its start to its end.
async fn live(
    plan: &Plan,
    sim: &Sim,
    ledger: &Arc<Ledger>,
    options: Options,
) -> Result<(), Violation> {
    let topology = start(sim, ledger, options)?;
    let span = plan.scenario.duration() + Duration::from_secs(2);
    let until = sim.now() + span;
    if plan.load {
        let rng = Rng::new(plan.seed ^ 0x10AD).fork();
        load::start(&topology, ledger, &sim.runtime(), until, rng);
    }
    let clock = sim.runtime().io.clock;
    let faults = plan.scenario.play(sim);
    let refused = if let Ending::Abrupt(after) = plan.ending {
        let moment = clock.sleep_until((sim.now() + after).min(until));
        match select(pin!(faults), moment).await {
            Either::Left((_, moment)) => moment.await,
            Either::Right(_) => {}
        }
        return finish(plan, sim, ledger, topology).await;
    } else {
        faults.await
    };
    ledger.counts().faults += (plan.scenario.steps.len() - refused.len()) as u64;
    for refused in refused {
        ledger.note(format!("could not do {refused}"));
    }
    clock.sleep_until(until).await;
    settle(plan, sim, ledger, &topology).await?;
    finish(plan, sim, ledger, topology).await
}

fn start(sim: &Sim, ledger: &Arc<Ledger>, options: Options) -> Result<Topology, Violation> {
    let topology = builder(ledger, options)?
        .start(sim.runtime())
        .map_err(|error| broken(&error))?;
    ledger.attach(topology.clone());
    Ok(topology)
}

fn builder(ledger: &Arc<Ledger>, options: Options) -> Result<TopologyBuilder, Violation> {
    // The metadata does not use the process environment, which would make runs differ.
    let metadata = ClientMetadata::new("sdam-chaos", "0", &Environment::default())
        .map_err(|error| broken(&error))?;
    Ok(TopologyBuilder::new(options)
        .metadata(metadata)
        .sink(Recorder(Arc::clone(ledger)))
        .pools(Pools(Arc::clone(ledger))))
}

fn broken(error: &dyn fmt::Display) -> Violation {
    Oracle::Panic.violated(Instant::EPOCH, error.to_string())
}

/// Heals all faults and waits until the client's description matches the truth (P8).
async fn settle(
    plan: &Plan,
    sim: &Sim,
    ledger: &Ledger,
    topology: &Topology,
) -> Result<(), Violation> {
    ledger.note("everything heals");
    heal(sim);
    let clock = sim.runtime().io.clock;
    let healed = sim.now();
    let mut truth = Truth::of(plan, sim);
    let mut since = healed;
    loop {
        clock
            .sleep_until(sim.now() + Duration::from_millis(250))
            .await;
        revive(sim);
        let now = sim.now();
        let present = Truth::of(plan, sim);
        if present != truth || !Truth::is_settled(sim) {
            truth = present;
            since = now;
        }
        let description = Arc::clone(topology.snapshot().description());
        let Some(difference) = truth.differs_from(&description) else {
            if now.since(healed) >= QUIET {
                return Ok(());
            }
            continue;
        };
        if now.since(since) <= plan.patience() {
            continue;
        }
        if truth.is_excused(&description, &ledger.events()) {
            ledger.counts().excused += 1;
            return Ok(());
        }
        return Err(Oracle::Truth.violated(now, difference));
    }
}

fn heal(sim: &Sim) {
    sim.network().heal();
    for member in sim.status().members {
        let target = member.id.into();
        for action in [
            Action::Thaw(target),
            Action::FailPoint(target, None),
            Action::Maintenance(target, false),
            Action::Lag(target, Duration::ZERO),
        ] {
            // Actions that are not possible are not necessary.
            let _ = sim.apply(&action);
        }
    }
    let _ = sim.apply(&Action::Heal);
    revive(sim);
}

/// Restarts processes that are not running, such as those that were shut down.
fn revive(sim: &Sim) {
    for member in sim.status().members {
        if !member.running {
            let _ = sim.restart(member.id);
        }
    }
}

/// Ends the topology (P10) while a selection waits for a server that does not exist.
async fn finish(
    plan: &Plan,
    sim: &Sim,
    ledger: &Arc<Ledger>,
    topology: Topology,
) -> Result<(), Violation> {
    let runtime = sim.runtime();
    let clock = &runtime.io.clock;
    let began = sim.now();
    let limit = clock.sleep_until(began + CLOSING);
    let closing = async {
        match plan.ending {
            Ending::Abrupt(_) => topology.close().await,
            Ending::Close => {
                let ask = Ask::tagged("nowhere");
                let patience = Duration::from_secs(5);
                let waiting = load::wait_for(&topology, ledger, &**clock, &ask, patience);
                if plan.shape == Shape::ReplicaSet {
                    let (outcome, ()) = join(waiting, topology.close()).await;
                    if !matches!(outcome, Err(SelectionError::Closed)) {
                        let message = format!("closing leads to {outcome:?}");
                        ledger.violated(Oracle::Close, message);
                    }
                } else {
                    topology.close().await;
                }
            }
            Ending::Drop => {
                // This must be the last handle.
                drop(ledger.detach());
                drop(topology);
                let ended = |event: &Event| {
                    matches!(event.kind, sdam_core::event::EventKind::TopologyClosed)
                };
                while sim.tasks() > 0 || !ledger.events().last().is_some_and(ended) {
                    clock.sleep_until(sim.now() + CLOSING / 100).await;
                }
            }
        }
    };
    if let Either::Right(_) = select(pin!(closing), limit).await {
        let message = format!("{} tasks have not ended within {CLOSING:?}", sim.tasks());
        return Err(Oracle::Close.violated(sim.now(), message));
    }
    // Applications only notice the end at their next step.
    while ledger.load_alive() > 0 {
        clock.sleep_until(sim.now() + Duration::from_secs(1)).await;
    }
    drop(ledger.detach());
    Ok(())
}
