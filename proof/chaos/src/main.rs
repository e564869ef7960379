//! The program that runs seeds. `cargo xtask sim` builds and calls it.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    ops::Range,
    panic::resume_unwind,
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use sdam_chaos::{
    plan::{Kind, Plan},
    regression::{self, shrink, timeline},
    run::{Failure, Stats, run, run_and_hash, run_twice},
    silent,
};
use sdam_core::options::Detector;

/// The time within which a detector must mark half of the silent primaries Unknown.
const SOON: Duration = Duration::from_secs(2);

/// The number of seeds that have to reach every situation.
const ENOUGH: u64 = 10_000;

/// The number of runs in progress at the same time.
const THREADS: usize = 2;

/// The number of seeds between two lines about the progress.
const PROGRESS: u64 = 10_000;

/// The command line.
struct Arguments {
    seeds: Range<u64>,
    kind: Kind,
    /// True if each seed is run only once instead of twice.
    once: bool,
    /// The output file for the hashes of each seed's run.
    digest: Option<PathBuf>,
    /// The detectors to test on silent servers, with their names. If there are any, the program
    /// only tests these detectors and runs no plans.
    detectors: Vec<(String, Option<Detector>)>,
}

fn main() -> ExitCode {
    match parse_arguments(std::env::args().skip(1)).and_then(|arguments| run_all(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Tests the detectors or, if there are none, runs the seeds. Returns whether everything passed.
fn run_all(arguments: &Arguments) -> Result<bool, String> {
    if arguments.detectors.is_empty() {
        // The panic hook prints nothing, because panics are caught and reported by an oracle.
        std::panic::set_hook(Box::new(|_| {}));
        return run_seeds(arguments).map_err(|error| error.to_string());
    }
    let idle = silent::idle_events(None) as f64;
    Ok(arguments.detectors.iter().fold(true, |passed, (name, detector)| {
        let idle = silent::idle_events(*detector) as f64 / idle;
        try_detector(name, *detector, arguments.seeds.clone(), idle) && passed
    }))
}

fn parse_arguments(mut arguments_left: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        seeds: 0..2000,
        kind: Kind::default(),
        once: false,
        digest: None,
        detectors: Vec::new(),
    };
    while let Some(argument) = arguments_left.next() {
        let mut value = || arguments_left.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--seeds" => arguments.seeds = seeds(&value()?)?,
            "--scenario" => arguments.kind = value()?.parse()?,
            "--once" => arguments.once = true,
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
        _ => Err(format!("`{name}` is neither none nor probing")),
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
    let kept = regression::all()?;
    for (name, regression) in &kept {
        if let Err(failure) = run_twice(&regression.plan) {
            passed = false;
            println!("{}", timeline(&regression.plan, &failure));
            println!("regression {name} failed again: {failure}\n");
        }
    }
    let started = Instant::now();
    let (stop, failures) = (AtomicBool::new(false), AtomicUsize::new(0));
    let plan = |seed| Plan::new(seed, arguments.kind);
    let outcomes = in_parallel(arguments.seeds.clone(), &stop, |seed| {
        let run = match (arguments.once, &arguments.digest) {
            (false, _) => run_twice,
            (true, Some(_)) => run_and_hash,
            (true, None) => run,
        };
        let outcome = run(&plan(seed));
        outcome.inspect_err(|failure| {
            eprintln!("seed {seed}: {failure}");
            let earlier = failures.fetch_add(1, Ordering::Relaxed);
            stop.fetch_or(earlier >= 4, Ordering::Relaxed);
        })
    });
    let took = started.elapsed();
    let (mut seeds, mut sum, mut digests) = (0, Stats::default(), Vec::new());
    for (seed, outcome) in outcomes {
        match outcome {
            Ok(stats) => {
                if let Some(log) = stats.log {
                    writeln!(digests, "{seed} {log:016x} {:016x}", stats.trace)?;
                }
                seeds += 1;
                sum.virtual_time += stats.virtual_time;
                sum.steps += stats.steps;
                sum.events += stats.events;
                sum.counts += stats.counts;
                sum.coverage.unite(stats.coverage);
            }
            Err(failure) => {
                passed = false;
                report(&plan(seed), failure)?;
            }
        }
    }
    if let Some(path) = &arguments.digest {
        fs::write(path, digests)?;
    }
    passed &= print_totals(seeds, &sum, took) || arguments.kind != Kind::Random;
    let outcome = if passed { "passed" } else { "FAILED" };
    println!(
        "sim: {seeds} seeds and {} regressions {outcome}; {}",
        kept.len(),
        sum.coverage.summary(),
    );
    Ok(passed)
}

/// Runs `work` for each seed on several threads, until `stop` is set. Returns the results in the
/// order of the seeds.
fn in_parallel<T: Send>(
    seeds: Range<u64>,
    stop: &AtomicBool,
    work: impl Fn(u64) -> T + Sync,
) -> BTreeMap<u64, T> {
    let next = AtomicU64::new(seeds.start);
    let worker = || {
        let mut results = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            results.push((seed, work(seed)));
            if (seed - seeds.start) % PROGRESS == PROGRESS - 1 {
                eprintln!("seed {seed} has run");
            }
        }
        results
    };
    thread::scope(|scope| {
        let workers = [(); THREADS].map(|()| scope.spawn(worker));
        let results = workers.into_iter().map(thread::ScopedJoinHandle::join);
        results.flat_map(|own| own.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Tests a detector with the seeds, and prints how long it takes to mark silent primaries Unknown.
/// Returns whether it marked only silent servers Unknown.
fn try_detector(name: &str, detector: Option<Detector>, seeds: Range<u64>, idle: f64) -> bool {
    let outcomes = in_parallel(seeds, &AtomicBool::new(false), |seed| silent::run(seed, detector));
    let mut left: Vec<_> = outcomes.values().map(|outcome| outcome.left).collect();
    // Primaries that were not detected in time are sorted last.
    left.sort_unstable_by_key(|left| left.unwrap_or(Duration::MAX));
    let at = |percentile: usize| {
        let index = (left.len() * percentile / 100).min(left.len().saturating_sub(1));
        let left = left.get(index).copied().flatten();
        left.map_or("more than 30".to_owned(), |left| format!("{:.2}", left.as_secs_f64()))
    };
    let sum = |index: usize| {
        let counts = outcomes.values().filter_map(|outcome| outcome.disturbances.get(index));
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

fn report(plan: &Plan, failure: Box<Failure>) -> io::Result<()> {
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

/// Prints the totals. Returns false if some situation was not reached although enough seeds were
/// run, or was reached although it is excluded.
fn print_totals(seeds: u64, sum: &Stats, took: Duration) -> bool {
    println!(
        "{seeds} seeds in {took:.1?}: {:.0} seeds per second, {:.1} virtual hours, {} steps, \
         {} events",
        seeds as f64 / took.as_secs_f64(),
        sum.virtual_time.as_secs_f64() / 3600.0,
        sum.steps,
        sum.events,
    );
    println!("{}\n{}", sum.counts, sum.coverage);
    let missing = sum.coverage.missing();
    for cell in &missing {
        println!("    not reached: {cell}");
    }
    let wrong = sum.coverage.wrongly_excluded();
    for cell in &wrong {
        println!("    reached, but excluded: {cell}");
    }
    wrong.is_empty() && (missing.is_empty() || seeds < ENOUGH)
}
