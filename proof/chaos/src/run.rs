//! One run of a client in a simulated deployment, checked by the oracles.

mod core;
mod scan;

use std::{
    any::Any,
    fmt,
    hash::{DefaultHasher, Hasher as _},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::future::{Either, join, select};
use sdam::SelectionError;
use sdam_core::{
    event::Event,
    options::Options,
    rng::Rng,
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};
use sdam_pool::Pools;
use sdam_sim::{
    Action,
    oracle::{Oracle, Violation, audit},
    runtime::Sim,
};
use sdam_transport::handshake::{ClientMetadata, Environment};

use self::core::Lost;
use crate::{
    coverage::Coverage,
    load::{self, SelectionRequest},
    oracle::{self, cadence, pooled, step::StepOracle, truth::Truth},
    plan::{Ending, Kind, Plan, SRV_NAME, Shape, pick},
    record::{Counts, EventRecorder, RecordingPools, RunRecord, Topology, TopologyBuilder, lock},
};

/// The time for which the deployment is observed after it was healed. It is longer than an election
/// or the shutdown of a server.
const OBSERVATION: Duration = Duration::from_secs(16);
/// The maximum virtual time that closing may take, excluding the wait for connections in use.
const CLOSE_LIMIT: Duration = Duration::from_millis(1);

/// The statistics of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The virtual time that passed.
    pub virtual_time: Duration,
    /// A hash of all events in the simulation.
    pub trace: u64,
    /// A hash of all published events, if the run was told to hash them, which takes a fifth of a
    /// run's time.
    pub log: Option<u64>,
    /// The number of events in the simulation.
    pub steps: u64,
    /// The number of published events.
    pub events: u64,
    /// Counts of the situations that the run exercised.
    pub counts: Counts,
    /// The situations that the run reached.
    pub coverage: Coverage,
}

/// A run that violated a rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The first violation.
    pub violation: Violation,
    /// The events published before the violation.
    pub events: Vec<Event>,
    /// The actions of applications and the faults.
    pub notes: Vec<(Instant, String)>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.violation.fmt(f)
    }
}

/// Runs `plan` and checks it, without a hash of the events.
///
/// # Errors
///
/// Returns the first violation.
pub fn run(plan: &Plan) -> Result<Stats, Box<Failure>> {
    run_checked(plan).map(|(stats, _)| stats)
}

/// Runs `plan` and checks it, and hashes the events.
///
/// # Errors
///
/// Returns the first violation.
pub fn run_and_hash(plan: &Plan) -> Result<Stats, Box<Failure>> {
    run_checked(plan).map(|(stats, events)| Stats { log: Some(hash(&events)), ..stats })
}

fn run_checked(plan: &Plan) -> Result<(Stats, Vec<Event>), Box<Failure>> {
    let record = Arc::new(RunRecord::new(plan.lateness()));
    // A panic may leave state inconsistent, but that state is discarded with the simulation.
    let outcome = catch_unwind(AssertUnwindSafe(|| run_in_simulation(plan, &record)));
    let failed = |violation| {
        Err(Box::new(Failure {
            violation,
            events: lock(&record.events).clone(),
            notes: lock(&record.notes).clone(),
        }))
    };
    // If there are several violations, the first one is reported.
    match (record.verdict(), outcome) {
        (Some(violation), _) | (None, Ok(Err(violation))) => failed(violation),
        (None, Ok(Ok(passed))) => Ok(passed),
        (None, Err(panic)) => {
            let message = panic_message(&*panic);
            let oracle =
                if message.starts_with("a busy loop") { Oracle::BusyLoop } else { Oracle::Panic };
            failed(oracle.violated(record.now(), message))
        }
    }
}

/// Runs `plan` twice and compares the runs.
///
/// # Errors
///
/// The same as those of [`run`]. Also returns a violation if the runs differ.
pub fn run_twice(plan: &Plan) -> Result<Stats, Box<Failure>> {
    let first = run_and_hash(plan)?;
    let second = run_and_hash(plan)?;
    if first == second {
        return Ok(first);
    }
    let message = format!("the first run had {first:?}, the second one {second:?}");
    Err(Box::new(Failure {
        violation: Oracle::Determinism.violated(Instant::EPOCH, message),
        events: Vec::new(),
        notes: Vec::new(),
    }))
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

fn run_in_simulation(
    plan: &Plan,
    record: &Arc<RunRecord>,
) -> Result<(Stats, Vec<Event>), Violation> {
    let sim = Sim::new(plan.seed, &plan.blueprint);
    if let Some(seed) = plan.disturbance {
        sim.disturb(seed);
    }
    record.set_clock(sim.clock());
    let uri = plan.access.prepare(&sim);
    let resolved = sim.block_on(sdam::resolve(&uri, &sim.runtime().backend));
    let mut options = resolved.map_err(|error| setup_failure(&error))?;
    plan.configure(&mut options);
    if plan.kind == Kind::Scan {
        sim.block_on(scan::run_client(plan, &sim, record, options.clone()))?;
    } else {
        let mut check = StepOracle::new(&sim, record, plan);
        let work = run_client(plan, &sim, record, options.clone());
        sim.block_on_watching(work, |step| check.observe(step))?;
    }
    // The closed topology must not leave any tasks, connections or timers.
    for (what, left) in
        [("tasks", sim.tasks()), ("connections", sim.connections()), ("timers", sim.timers())]
    {
        Oracle::Leaks.ensure(sim.now(), left == 0, || {
            format!("{left} {what} are left after the topology was closed")
        })?;
    }
    let events = lock(&record.events).clone();
    oracle::check_traffic(plan.access, &sim)?;
    oracle::check_look_ups(plan, &sim)?;
    oracle::check_stages(plan, &events)?;
    audit(&events, &lock(&record.pools).calls)?;
    pooled::check_events(&events, lock(&record.counts).unended)?;
    pooled::check_end(record, sim.now())?;
    oracle::check_elections(&events)?;
    cadence::check(plan, &options, &events)?;
    oracle::check_replay(&options, &events)?;
    let traffic = sim.network().traffic();
    let mut counts = *lock(&record.counts);
    (counts.encrypted, counts.proxied) = (traffic.encrypted, traffic.proxied);
    counts.suspicions = oracle::check_silence(&options, &events, &lock(&record.stalls))?;
    counts.look_ups = sim.dns().lookups(SRV_NAME);
    let mut coverage = Coverage::of(&events);
    coverage.unite(*lock(&record.errors));
    coverage.outputs(&options, &events);
    sim.disturbances().into_iter().for_each(|own| coverage.disturbance(own));
    let stats = Stats {
        virtual_time: sim.now().since(Instant::EPOCH),
        trace: sim.trace(),
        log: None,
        steps: sim.steps(),
        events: events.len() as u64,
        counts,
        coverage,
    };
    Ok((stats, events))
}

/// Returns a hash of the events' `Debug` output.
fn hash(events: &[Event]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for event in events {
        hasher.write(format!("{event:?}\n").as_bytes());
    }
    hasher.finish()
}

/// Runs a topology until it is closed.
async fn run_client(
    plan: &Plan,
    sim: &Sim,
    record: &Arc<RunRecord>,
    options: Options,
) -> Result<(), Violation> {
    let pools = plan.pool.clone().map(|own| Pools::new().with_options(own));
    let topology = builder(record, options, pools)?
        .start(sim.runtime())
        .map_err(|error| setup_failure(&error))?;
    record.attach(topology.clone());
    let span = plan.scenario.duration() + Duration::from_secs(2);
    let until = sim.now() + span;
    if plan.load {
        let rng = Rng::new(plan.seed ^ 0x10AD).fork();
        load::start(plan, &topology, record, &sim.runtime(), until, rng);
    }
    let clock = sim.clock();
    let faults = join(plan.scenario.play(sim), stall(plan, sim, record));
    let refused = if let Ending::Abrupt(after) = plan.ending {
        let moment = clock.sleep_until((sim.now() + after).min(until));
        match select(pin!(faults), moment).await {
            Either::Left((_, moment)) => moment.await,
            Either::Right(_) => {}
        }
        let stalled = lock(&record.stalls).end();
        clock.sleep_until(stalled).await;
        return finish(plan, sim, record, topology).await;
    } else {
        faults.await.0
    };
    lock(&record.counts).faults += (plan.scenario.steps.len() - refused.len()) as u64;
    for refused in refused {
        record.note(format!("step was not possible: {refused}"));
    }
    clock.sleep_until(until).await;
    converge(plan, sim, record, &topology).await?;
    finish(plan, sim, record, topology).await
}

fn builder(
    record: &Arc<RunRecord>,
    options: Options,
    connecting: Option<Pools>,
) -> Result<TopologyBuilder, Violation> {
    // The metadata does not use the process environment, which would make runs differ.
    let metadata = ClientMetadata::new("sdam-chaos", "0", &Environment::default())
        .map_err(|error| setup_failure(&error))?;
    Ok(sdam::TopologyBuilder::new(options)
        .metadata(metadata)
        .sink(EventRecorder(Arc::clone(record)))
        .pools(RecordingPools { record: Arc::clone(record), connecting }))
}

fn setup_failure(error: &dyn fmt::Display) -> Violation {
    Oracle::Panic.violated(Instant::EPOCH, error.to_string())
}

/// Heals all faults and waits until the client's description matches the deployment (P8).
async fn converge(
    plan: &Plan,
    sim: &Sim,
    record: &RunRecord,
    topology: &Topology,
) -> Result<(), Violation> {
    let clock = sim.clock();
    let mut convergence = Convergence::begin(plan, sim, record, plan.convergence_limit());
    loop {
        clock.sleep_until(sim.now() + Duration::from_millis(250)).await;
        convergence.observe();
        if convergence.is_over(topology.snapshot().description())? {
            break;
        }
    }
    core::check_service(plan, sim, record, topology, convergence.is_excused).await
}

/// The last phase of a run, in which the client must discover the true state within a time limit.
struct Convergence<'c> {
    plan: &'c Plan,
    sim: &'c Sim,
    record: &'c RunRecord,
    limit: Duration,
    healed: Instant,
    truth: Truth,
    /// The members that are not healed.
    lost: Lost,
    /// The time at which the deployment last changed.
    since: Instant,
    /// True if the specification requires the client's description to differ from the true state.
    is_excused: bool,
}

impl<'c> Convergence<'c> {
    /// Heals all faults.
    fn begin(plan: &'c Plan, sim: &'c Sim, record: &'c RunRecord, limit: Duration) -> Self {
        record.note("all faults are healed");
        heal(plan, sim);
        let lost = Lost::choose(plan, sim);
        let (healed, truth) = (sim.now(), Truth::of(plan, sim));
        let (since, is_excused) = (healed, false);
        Self { plan, sim, record, limit, healed, truth, lost, since, is_excused }
    }

    /// Restarts members that have stopped, and updates the true state.
    fn observe(&mut self) {
        restart_stopped(self.sim, &self.lost);
        let present = Truth::of(self.plan, self.sim);
        let is_settled = Truth::is_settled(self.sim, |member| !self.lost.contains(member));
        if present != self.truth || !is_settled {
            self.truth = present;
            self.since = self.sim.now();
        }
    }

    /// Returns whether the run may end, either because the client's description has been right for
    /// long enough, or because the specification requires it to differ from the true state.
    fn is_over(&mut self, believed: &TopologyDescription) -> Result<bool, Violation> {
        let now = self.sim.now();
        self.is_excused = false;
        let Some(difference) = self.truth.differs_from(believed) else {
            let is_served =
                core::check_primary(self.plan, self.sim, believed.topology_type(), self.healed)?;
            return Ok(is_served && now.since(self.healed) >= OBSERVATION);
        };
        if now.since(self.since) <= self.limit {
            return Ok(false);
        }
        self.is_excused = self.truth.is_excused(believed, &lock(&self.record.events))
            || self.is_misled(believed.topology_type());
        if self.is_excused {
            // Applications end within `OBSERVATION`.
            let is_over = now.since(self.healed) >= OBSERVATION;
            lock(&self.record.counts).excused += u64::from(is_over);
            return Ok(is_over);
        }
        Err(Oracle::Convergence.violated(now, difference))
    }

    /// Returns whether the first server that answered was an impostor, which makes the client
    /// believe permanently that the deployment is of another kind.
    fn is_misled(&self, believed: TopologyType) -> bool {
        let right = match self.plan.shape {
            Shape::Sharded => TopologyType::Sharded,
            Shape::Standalone => TopologyType::Single,
            Shape::ReplicaSet | Shape::Direct | Shape::LoadBalanced => return false,
        };
        believed != TopologyType::Unknown && believed != right
    }
}

fn heal(plan: &Plan, sim: &Sim) {
    sim.network().heal();
    if plan.access.srv && sim.dns().hosts(SRV_NAME).is_empty() {
        plan.access.prepare(sim);
    }
    for member in sim.status().members {
        sim.tls().renew_certificate(member.id);
        let target = member.id.into();
        for action in [
            Action::Thaw(target),
            Action::FailPoint(target, None),
            Action::Maintenance(target, false),
            Action::Impostor(target, None),
            Action::Lag(target, Duration::ZERO),
        ] {
            // If an action is not possible, it is not needed either.
            let _ = sim.apply(&action);
        }
    }
    let _ = sim.apply(&Action::Heal);
    restart_stopped(sim, &Lost::default());
}

/// Restarts processes that are not running, for example after a shutdown.
fn restart_stopped(sim: &Sim, lost: &Lost) {
    for member in sim.status().members {
        if !member.running && !lost.contains(member.id) {
            let _ = sim.restart(member.id);
        }
    }
}

/// Closes or drops the topology (P10) while a selection waits for a server that does not exist.
async fn finish(
    plan: &Plan,
    sim: &Sim,
    record: &Arc<RunRecord>,
    topology: Topology,
) -> Result<(), Violation> {
    let runtime = sim.runtime();
    let clock = sim.clock();
    let began = sim.now();
    let patience = sdam::Topology::DELIVERY_PATIENCE;
    if plan.ending != Ending::Drop {
        load::hold_connection(record, &runtime, (patience * 3 / 4) * (plan.seed % 4) as u32);
    }
    let in_use = lock(&record.connecting).iter().any(|pool| pool.stats().in_use > 0);
    // The patience is measured by two timers, and each may be late.
    let limit = CLOSE_LIMIT + if in_use { patience + 2 * plan.lateness() } else { Duration::ZERO };
    let expiry = clock.sleep_until(began + limit);
    let closing = async {
        match plan.ending {
            Ending::Abrupt(_) => topology.close().await,
            Ending::Close => {
                let request = SelectionRequest::tagged("nowhere");
                let timeout = Duration::from_secs(5);
                let waiting = load::wait_for(&topology, record, &*clock, &request, timeout);
                if plan.shape == Shape::ReplicaSet {
                    let (outcome, ()) = join(waiting, topology.close()).await;
                    let is_closed = matches!(outcome, Err(SelectionError::Closed));
                    record.ensure(is_closed, Oracle::Close, || {
                        format!(
                            "a selection during the close returned {outcome:?}, expected Closed"
                        )
                    });
                } else {
                    topology.close().await;
                }
            }
            Ending::Drop => {
                // This drops the last handle.
                drop(record.detach());
                drop(topology);
                let ended = |event: &Event| {
                    matches!(event.kind, sdam_core::event::EventKind::TopologyClosed)
                };
                while sim.tasks() > 0 || !lock(&record.events).last().is_some_and(ended) {
                    clock.sleep_until(sim.now() + CLOSE_LIMIT / 100).await;
                }
            }
        }
    };
    if let Either::Right(_) = select(pin!(closing), expiry).await {
        let message = format!("{} tasks have not ended within {limit:?}", sim.tasks());
        return Err(Oracle::Close.violated(sim.now(), message));
    }
    let took = sim.now().since(began);
    // Applications notice that the topology is closed only when they take their next step.
    while record.load_alive() > 0 {
        clock.sleep_until(sim.now() + Duration::from_secs(1)).await;
    }
    let unended = record.detach().map_or(0, |topology| topology.events().dropped());
    Oracle::Close.ensure(sim.now(), unended == 0 || took >= patience, || {
        format!("closing waited only {took:?} for {unended} connections")
    })?;
    lock(&record.counts).unended += unended;
    Ok(())
}

/// The maximum time from the end of a stall to the next stall, in milliseconds.
const BETWEEN: u64 = 8_000;
/// The maximum durations of stalls, in milliseconds: a slow host, a long pause for garbage
/// collection, and a virtual machine that is moved.
const DURATIONS: [u64; 3] = [300, 3_000, 12_000];

/// Stalls the host again and again while there are faults, if the plan requires it.
async fn stall(plan: &Plan, sim: &Sim, record: &RunRecord) {
    if !plan.stalls {
        return;
    }
    let clock = sim.clock();
    let until = clock.now() + plan.scenario.duration();
    let mut rng = Rng::new(plan.seed ^ 0x57A1_57A1).fork();
    loop {
        let pause = Duration::from_millis(1 + rng.below(BETWEEN));
        let end = lock(&record.stalls).end();
        clock.sleep_until(clock.now().max(end) + pause).await;
        let begin = clock.now();
        let max = pick(&mut rng, &DURATIONS);
        let duration = Duration::from_millis(1 + rng.below(max));
        if begin + duration > until {
            return;
        }
        record.note(format!("the host stalls for {duration:?}"));
        lock(&record.counts).stalls += 1;
        lock(&record.stalls).add(begin..begin + duration);
        sim.stall(duration);
    }
}
