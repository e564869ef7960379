//! The run: deployments and clients, rounds of faults with a rest point after each, and the end.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use sdam::Task;
use sdam_live::{Dns, Error};

use crate::Result;
use crate::deployment::Deployment;
use crate::fault;
use crate::gate::{Gate, Phase};
use crate::leak::{self, Counters};
use crate::process::{self, Tasks};
use crate::report::{Totals, get};
use crate::rest::{Counted, PATIENCE, until};
use crate::runtimes::Runtimes;
use crate::schedule::{Kind, Schedule};
use crate::worker::{Shared, Worker};

/// The number of faults that may be under way at the same time, on different deployments.
const INJECTORS: usize = 4;

/// The number of rounds, unless they would be shorter or longer than this.
const ROUNDS: u32 = 20;
const ROUND: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(600)];

const MINUTE: Duration = Duration::from_secs(60);

/// The command line.
pub(crate) struct Plan {
    pub(crate) minutes: u32,
    pub(crate) deployments: usize,
    pub(crate) clients: usize,
    pub(crate) seed: u64,
}

/// A run, and what is known of it so far.
struct Soak {
    deployments: Vec<Arc<Deployment>>,
    counted: Counted,
    begin: Instant,
    /// The last minute for which a line was printed.
    minute: AtomicU64,
    faults: Mutex<BTreeMap<Kind, u32>>,
    slowest: Mutex<Duration>,
    /// The memory at each rest point, in KiB.
    memory: Vec<u64>,
    first: Option<Counters>,
}

/// Runs the plan and prints what happens. Returns whether nothing leaked and every client worked.
///
/// # Errors
/// If a server cannot be started, changed or healed.
pub(crate) fn run(plan: &Plan) -> Result<bool> {
    let dns = Arc::new(Dns::start([])?);
    let deployments = (0..plan.deployments).map(|index| Deployment::start(index, &dns));
    let deployments = deployments.map(|started| started.map(Arc::new));
    let deployments = deployments.collect::<Result<Vec<_>, _>>()?;
    let tasks = Tasks::default();
    let runtimes = Runtimes::start(&dns, &tasks)?;
    let gate = Gate::new();
    let shared = Arc::new(Shared { gate, totals: Totals::default() });
    let workers = (0..plan.clients).map(|id| {
        let (deployment, nth) = (id % deployments.len(), id / deployments.len());
        Arc::new(Worker {
            id,
            // The first worker of a deployment keeps its client, every second of the others does
            // not.
            is_short_lived: nth > 0 && (deployment + nth) % 2 == 1,
            deployment: Arc::clone(&deployments[deployment]),
            runtime: runtimes.of(deployment, nth).clone(),
            shared: Arc::clone(&shared),
            writes: AtomicU64::new(0),
            kept: Mutex::default(),
            dropped: Mutex::default(),
        })
    });
    let workers: Vec<_> = workers.collect();
    // The runtimes open some descriptors at their first use, and keep them.
    workers.iter().step_by(5).take(3).for_each(|worker| block_on(worker.live()));
    let nothing_left = |before: usize| {
        let (alive, now) =
            (tasks.alive(), process::descriptors().map_err(|error| error.to_string())?);
        let is_over = alive == 0 && now <= before;
        if is_over { Ok(now) } else { Err(format!("{alive} tasks and {now} descriptors are left")) }
    };
    let before = until(PATIENCE, || nothing_left(usize::MAX))?;
    println!("{} deployments, {before} descriptors before clients", deployments.len());
    for worker in &workers {
        let task = Task::new("soak", Arc::clone(worker).run());
        worker.runtime.spawner.spawn(task);
    }
    let counted = Counted { workers, shared, tasks: tasks.clone() };
    let mut soak = Soak {
        deployments,
        counted,
        begin: Instant::now(),
        minute: AtomicU64::new(0),
        faults: Mutex::default(),
        slowest: Mutex::default(),
        memory: Vec::new(),
        first: None,
    };
    soak.rounds(plan)?;
    soak.counted.shared.gate.set(Phase::End);
    let after = until(PATIENCE, || nothing_left(before));
    if let Err(left) = &after {
        soak.totals().found(&format!("at the end: {left}, {before} descriptors at first"));
    }
    let after = process::descriptors()?;
    let [published, delivered] = soak.totals().events.each_ref().map(get);
    if published != delivered {
        soak.totals().found(&format!("{delivered} of {published} events were delivered"));
    }
    soak.print_summary(plan, [before, after]);
    Ok(soak.totals().findings() == 0)
}

impl Soak {
    fn rounds(&mut self, plan: &Plan) -> Result<()> {
        let kinds: Vec<_> = self.deployments.iter().map(|own| own.faults()).collect();
        let schedule = |injector: usize| {
            let all = kinds.iter().enumerate().map(|(index, kinds)| (index, kinds.as_slice()));
            let seed = plan.seed.wrapping_add(injector as u64);
            Schedule::new(seed, all.filter(|(index, _)| index % INJECTORS == injector))
        };
        let mut schedules: Vec<_> = (0..INJECTORS).map(schedule).collect();
        let whole = MINUTE * plan.minutes;
        let round = (whole / ROUNDS).clamp(ROUND[0], ROUND[1]);
        while self.begin.elapsed() < whole {
            let end = Instant::now() + round;
            self.counted.shared.gate.set(Phase::Traffic);
            thread::scope(|scope| {
                let inject = |schedule| scope.spawn(|| self.inject(schedule, end));
                let injectors: Vec<_> = schedules.iter_mut().map(inject).collect();
                self.print_minutes(end);
                injectors.into_iter().try_for_each(|injector| {
                    injector.join().unwrap_or_else(|panic| resume_unwind(panic))
                })
            })?;
            self.counted.shared.gate.set(Phase::Pause);
            self.rest()?;
        }
        if let Some((before, after)) = leak::grows(&self.memory) {
            self.totals().found(&format!("memory grows from {before} to {after} KiB"));
        }
        Ok(())
    }

    /// Causes one fault after the other, and checks that the clients recover from each.
    fn inject(&self, schedule: &mut Schedule, end: Instant) -> Result<(), Error> {
        for fault in schedule {
            thread::sleep(fault.pause);
            if Instant::now() >= end {
                break;
            }
            let deployment = &self.deployments[fault.deployment];
            deployment.set_calm(false);
            fault::run(deployment, &fault)?;
            match self.counted.recovered(&deployment.name) {
                Ok(took) => {
                    let mut slowest = self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
                    *slowest = took.max(*slowest);
                }
                Err(behind) => {
                    let kind = fault.kind.name();
                    self.totals().found(&format!("after a fault ({kind}): {behind}"));
                }
            }
            deployment.set_calm(true);
            let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
            *faults.entry(fault.kind).or_default() += 1;
        }
        Ok(())
    }

    fn rest(&mut self) -> Result<()> {
        match self.counted.rest(self.first.as_ref()) {
            Ok(counters) => {
                self.first.get_or_insert(counters);
            }
            Err(reason) => self.totals().found(&format!("at a rest point: {reason}")),
        }
        self.memory.push(process::memory()?);
        Ok(())
    }

    /// Prints a line for every full minute until `end`, and for one that has passed before.
    fn print_minutes(&self, end: Instant) {
        loop {
            let minute = self.begin.elapsed().as_secs() / 60;
            if self.minute.swap(minute, Ordering::Relaxed) < minute {
                println!("{minute} min: {}", self.progress());
            }
            let next = self.begin + Duration::from_secs(60 * (minute + 1));
            let left = next.min(end).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left);
        }
    }

    fn progress(&self) -> String {
        let totals = self.totals();
        let descriptors = process::descriptors().unwrap_or_default();
        let memory = process::memory().unwrap_or_default() / 1024;
        format!(
            "{} faults, {} operations, {} failed, {} clients opened, {memory} MiB, {descriptors} \
             descriptors, {} tasks, {} rest points, {} findings",
            self.faults().values().sum::<u32>(),
            get(&totals.operations),
            totals.excused().values().sum::<u64>(),
            get(&totals.opened),
            self.counted.tasks.alive(),
            self.memory.len(),
            totals.findings(),
        )
    }

    fn print_summary(&self, plan: &Plan, [before, after]: [usize; 2]) {
        let (totals, faults) = (self.totals(), self.faults());
        let kinds: Vec<_> = faults.iter().map(|(kind, n)| format!("{} {n}", kind.name())).collect();
        let mebibytes = |kib: Option<&u64>| kib.copied().unwrap_or_default() as f64 / 1024.0;
        let [published, delivered] = totals.events.each_ref().map(get);
        let slowest = *self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, number) in totals.excused() {
            println!("failed during faults of {kind}: {number}");
        }
        println!("memory at the rest points, in KiB: {:?}", self.memory);
        println!(
            "the slowest recovery took {slowest:.1?}; {} clients were opened; at the first rest \
             point: {}",
            get(&totals.opened),
            self.first.unwrap_or_default(),
        );
        println!(
            "soak: {} min, {} deployments, {} clients, {} faults ({}), {} operations, {} failed \
             during faults; memory {:.1} → {:.1} MiB, descriptors {before} → {after}, tasks {} \
             left, events {delivered} of {published}",
            plan.minutes,
            plan.deployments,
            plan.clients,
            faults.values().sum::<u32>(),
            kinds.join(", "),
            get(&totals.operations),
            totals.excused().values().sum::<u64>(),
            mebibytes(self.memory.first()),
            mebibytes(self.memory.last()),
            self.counted.tasks.alive(),
        );
    }

    fn faults(&self) -> BTreeMap<Kind, u32> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn totals(&self) -> &Totals {
        &self.counted.shared.totals
    }
}
