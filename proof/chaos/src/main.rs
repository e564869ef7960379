//! Runs seeds. Built and called by `cargo xtask sim`.

use std::{
    collections::BTreeMap,
    fs, io,
    ops::Range,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sdam_chaos::{
    plan::{Kind, Plan},
    regression,
    run::{Failure, Stats, run, run_twice},
    shrink::shrink,
    silent,
    timeline::timeline,
};
use sdam_core::options::Detector;

/// The time within which a detector must mark half of the silent primaries Unknown.
const SOON: Duration = Duration::from_secs(2);

/// The number of seeds that have to reach every situation.
const ENOUGH: u64 = 10_000;

/// The number of concurrent runs.
const THREADS: usize = 2;

/// The command line.
struct Arguments {
    seeds: Range<u64>,
    kind: Kind,
    /// True to run each seed only once, not twice.
    once: bool,
    /// True to stop at the first failure and print it on one line, without shrinking or storing it.
    probe: bool,
    /// The output file for the hashes of each seed's run.
    digest: Option<PathBuf>,
    /// The named detectors to test on silent servers. If there are any, no plans are run.
    detectors: Vec<(String, Option<Detector>)>,
}

fn main() -> ExitCode {
    let arguments = match parse_arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    if !arguments.detectors.is_empty() {
        let passed = arguments.detectors.iter().fold(true, |passed, (name, detector)| {
            let idle = silent::idle_events(*detector) as f64 / silent::idle_events(None) as f64;
            try_detector(name, *detector, arguments.seeds.clone(), idle) && passed
        });
        return if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    // The hook prints nothing, because an oracle detects and reports panics.
    std::panic::set_hook(Box::new(|_| {}));
    match run_seeds(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse_arguments(mut arguments_left: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        seeds: 0..2000,
        kind: Kind::default(),
        once: false,
        probe: false,
        digest: None,
        detectors: Vec::new(),
    };
    while let Some(argument) = arguments_left.next() {
        let mut value = || arguments_left.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--seeds" => arguments.seeds = seeds(&value()?)?,
            "--scenario" => arguments.kind = value()?.parse()?,
            "--once" => arguments.once = true,
            "--probe" => arguments.probe = true,
            "--detector" => {
                let name = value()?;
                let detector = detector(&name)?;
                arguments.detectors.push((name, detector));
            }
            "--digest" => arguments.digest = Some(value()?.into()),
            _ => return Err(format!("unexpected argument: {argument}")),
        }
    }
    Ok(arguments)
}

fn detector(name: &str) -> Result<Option<Detector>, String> {
    match name {
        "none" => Ok(None),
        "probing" => Ok(Some(Detector::PROBING)),
        "phi-accrual" => Ok(Some(Detector::PHI_ACCRUAL)),
        _ => Err(format!("`{name}` is none of none, probing, phi-accrual")),
    }
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("`{text}` is neither a range A..B nor a seed");
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    match text.split_once("..") {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => number(text).map(|seed| seed..seed.saturating_add(1)),
    }
}

/// Runs the seeds. Returns whether all passed.
fn run_seeds(arguments: &Arguments) -> io::Result<bool> {
    let mut passed = true;
    let kept = if arguments.probe { Vec::new() } else { regression::all()? };
    for (name, regression) in &kept {
        if let Err(failure) = regression.run() {
            passed = false;
            println!("{}", timeline(&regression.plan, &failure));
            println!("regression {name} failed again: {failure}\n");
        }
    }
    let started = Instant::now();
    let totals = Totals::default();
    let next = AtomicU64::new(arguments.seeds.start);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| worker(arguments, &next, &totals));
        }
    });
    let took = started.elapsed();
    let failures = std::mem::take(&mut *totals.failures());
    passed &= failures.is_empty();
    for (plan, failure) in failures {
        report(arguments, &plan, failure)?;
    }
    if let Some(path) = &arguments.digest {
        let digests = totals.digests.lock();
        let digests = digests.unwrap_or_else(PoisonError::into_inner);
        fs::write(path, digests.values().cloned().collect::<String>())?;
    }
    if !arguments.probe {
        println!("{} regressions", kept.len());
        passed &= totals.print(took) || arguments.kind != Kind::Random;
    }
    Ok(passed)
}

fn worker(arguments: &Arguments, next: &AtomicU64, totals: &Totals) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= arguments.seeds.end || totals.stop.load(Ordering::Relaxed) {
            return;
        }
        let plan = Plan::new(seed, arguments.kind);
        let outcome = if arguments.once { run(&plan) } else { run_twice(&plan) };
        match outcome {
            Ok(stats) => totals.add(seed, &stats),
            Err(failure) => {
                let mut failures = totals.failures();
                failures.push((plan, failure));
                if arguments.probe || failures.len() >= 5 {
                    totals.stop.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Tests a detector with the seeds, and prints how long it takes to mark silent primaries Unknown.
/// Returns whether it marked only silent servers Unknown.
fn try_detector(name: &str, detector: Option<Detector>, seeds: Range<u64>, idle: f64) -> bool {
    let next = AtomicU64::new(seeds.start);
    let outcomes = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = silent::run(seed, detector);
                    let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                    outcomes.push((seed, outcome));
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut left: Vec<_> = outcomes.iter().map(|(_, outcome)| outcome.left).collect();
    // Primaries that were not detected in time are sorted last.
    left.sort_unstable_by_key(|left| left.unwrap_or(Duration::MAX));
    let at = |percentile: usize| {
        let index = (left.len() * percentile / 100).min(left.len().saturating_sub(1));
        let left = left.get(index).copied().flatten();
        left.map_or("more than 30".to_owned(), |left| format!("{:.2}", left.as_secs_f64()))
    };
    let sum = |index: usize| {
        let counts = outcomes.iter().filter_map(|(_, outcome)| outcome.disturbances.get(index));
        counts.sum::<u64>()
    };
    println!(
        "{name}: {} silent primaries, left after {} s (p50), {} s (p99), {} s (maximum); idle {:+.1} %",
        outcomes.len(),
        at(50),
        at(99),
        at(100),
        (idle - 1.0) * 100.0,
    );
    let slowest = outcomes.iter().max_by_key(|(_, own)| own.left.unwrap_or(Duration::MAX));
    if let Some((seed, _)) = slowest {
        println!("    the slowest is seed {seed}");
    }
    println!("    in {} stalls, {} slow servers, {} lost segments", sum(0), sum(1), sum(2));
    let wrong = outcomes.iter().filter(|(_, outcome)| !outcome.wrong.is_empty());
    let wrong: Vec<_> =
        wrong.map(|(seed, outcome)| format!("seed {seed}: {}", outcome.wrong.join(", "))).collect();
    println!("    {} seeds with servers that were left and not silent", wrong.len());
    for line in wrong.iter().take(10) {
        println!("    {line}");
    }
    let is_soon = left.get(left.len() / 2).copied().flatten().is_some_and(|left| left <= SOON);
    wrong.is_empty() && (detector.is_none() || is_soon)
}

fn report(arguments: &Arguments, plan: &Plan, failure: Box<Failure>) -> io::Result<()> {
    if arguments.probe {
        println!("caught {} {}", failure.violation.oracle, plan.seed);
        return Ok(());
    }
    let before = plan.scenario.steps.len();
    let (small, failure) = shrink(plan, failure);
    println!("{}", timeline(&small, &failure));
    println!("seed {} failed: {failure}", small.seed);
    println!("{} of {before} steps are enough to reproduce it:", small.scenario.steps.len());
    print!("{}", small.scenario);
    let path = regression::keep(&small, &failure)?;
    println!("stored in {}\n", path.display());
    Ok(())
}

/// The totals of all runs.
#[derive(Default)]
struct Totals {
    sums: Mutex<(u64, Stats)>,
    failures: Mutex<Vec<(Plan, Box<Failure>)>>,
    /// A line for each seed, with the hashes of its events and of its simulation.
    digests: Mutex<BTreeMap<u64, String>>,
    stop: AtomicBool,
}

impl Totals {
    fn failures(&self) -> std::sync::MutexGuard<'_, Vec<(Plan, Box<Failure>)>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, seed: u64, stats: &Stats) {
        let line = format!("{seed} {:016x} {:016x}\n", stats.log, stats.trace);
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        digests.insert(seed, line);
        drop(digests);
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let (runs, sum) = &mut *sums;
        *runs += 1;
        sum.virtual_time += stats.virtual_time;
        sum.steps += stats.steps;
        sum.events += stats.events;
        sum.counts += stats.counts;
        sum.coverage.unite(stats.coverage);
    }

    /// Prints the totals. Returns false if enough seeds have left a situation out.
    fn print(&self, took: Duration) -> bool {
        let (seeds, sum) = *self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        println!(
            "{seeds} seeds in {took:.1?}: {:.0} seeds per second, {:.1} virtual hours, {} steps, \
             {} events",
            seeds as f64 / took.as_secs_f64(),
            sum.virtual_time.as_secs_f64() / 3600.0,
            sum.steps,
            sum.events,
        );
        println!("{}", sum.counts);
        println!("{}", sum.coverage);
        let missing = sum.coverage.missing();
        let is_complete = missing.is_empty() || seeds < ENOUGH;
        for cell in &missing {
            println!("    not reached: {cell}");
        }
        is_complete
    }
}
