//! Runs seeds; `cargo xtask sim` builds and calls this program.

use std::{
    io,
    ops::Range,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sdam_chaos::{
    Counts,
    plan::{Kind, Plan},
    regression,
    run::{Failure, Stats, run, run_twice},
    shrink::shrink,
    timeline::timeline,
};

/// The number of concurrent runs.
const THREADS: usize = 2;

/// The command line.
struct Orders {
    seeds: Range<u64>,
    kind: Kind,
    /// Whether each seed is run once instead of twice.
    once: bool,
    /// Whether to stop at the first failure, without shrinking or keeping it, and to print it in
    /// one line.
    probe: bool,
}

fn main() -> ExitCode {
    let orders = match read(std::env::args().skip(1)) {
        Ok(orders) => orders,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    // An oracle detects and reports panics.
    std::panic::set_hook(Box::new(|_| {}));
    match carry_out(&orders) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Orders, String> {
    let mut orders = Orders {
        seeds: 0..2000,
        kind: Kind::default(),
        once: false,
        probe: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--seeds" => orders.seeds = seeds(&value()?)?,
            "--scenario" => orders.kind = value()?.parse()?,
            "--once" => orders.once = true,
            "--probe" => orders.probe = true,
            _ => return Err(format!("unexpected argument: {word}")),
        }
    }
    Ok(orders)
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("`{text}` is neither A..B nor a seed");
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    match text.split_once("..") {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => number(text).map(|seed| seed..seed.saturating_add(1)),
    }
}

/// Runs the seeds; returns whether none failed.
fn carry_out(orders: &Orders) -> io::Result<bool> {
    let mut sound = true;
    let kept = if orders.probe {
        Vec::new()
    } else {
        regression::all()?
    };
    for (name, regression) in &kept {
        if let Err(failure) = regression.run() {
            sound = false;
            println!("{}", timeline(&regression.plan, &failure));
            println!("regression {name} fails again: {failure}\n");
        }
    }
    let started = Instant::now();
    let tally = Tally::default();
    let next = AtomicU64::new(orders.seeds.start);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| work(orders, &next, &tally));
        }
    });
    let took = started.elapsed();
    let failures = std::mem::take(&mut *tally.failures());
    sound &= failures.is_empty();
    for (plan, failure) in failures {
        report(orders, &plan, failure)?;
    }
    if !orders.probe {
        println!("{} regressions", kept.len());
        tally.print(took);
    }
    Ok(sound)
}

fn work(orders: &Orders, next: &AtomicU64, tally: &Tally) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= orders.seeds.end || tally.stop.load(Ordering::Relaxed) {
            return;
        }
        let plan = Plan::new(seed, orders.kind);
        let outcome = if orders.once {
            run(&plan)
        } else {
            run_twice(&plan)
        };
        match outcome {
            Ok(stats) => tally.add(&stats),
            Err(failure) => {
                let mut failures = tally.failures();
                failures.push((plan, failure));
                if orders.probe || failures.len() >= 5 {
                    tally.stop.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

fn report(orders: &Orders, plan: &Plan, failure: Box<Failure>) -> io::Result<()> {
    if orders.probe {
        println!("caught {} {}", failure.violation.oracle, plan.seed);
        return Ok(());
    }
    let before = plan.scenario.steps.len();
    let (small, failure) = shrink(plan, failure);
    println!("{}", timeline(&small, &failure));
    println!("seed {} fails: {failure}", small.seed);
    println!(
        "{} of {before} steps are enough:",
        small.scenario.steps.len()
    );
    print!("{}", small.scenario);
    let path = regression::keep(&small, &failure)?;
    println!("kept in {}\n", path.display());
    Ok(())
}

/// The totals of all runs.
#[derive(Default)]
struct Tally {
    sums: Mutex<(u64, Stats)>,
    failures: Mutex<Vec<(Plan, Box<Failure>)>>,
    stop: AtomicBool,
}

impl Tally {
    fn failures(&self) -> std::sync::MutexGuard<'_, Vec<(Plan, Box<Failure>)>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, stats: &Stats) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let (runs, sum) = &mut *sums;
        *runs += 1;
        sum.virtual_time += stats.virtual_time;
        sum.steps += stats.steps;
        sum.events += stats.events;
        sum.counts += stats.counts;
    }

    fn print(&self, took: Duration) {
        let (seeds, sum) = *self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts {
            selected,
            timed_out,
            errors,
            handshakes,
            late,
            faults,
            excused,
        } = sum.counts;
        println!(
            "{seeds} seeds in {took:.1?}: {:.0} seeds per second, {:.1} virtual hours, {} steps",
            seeds as f64 / took.as_secs_f64(),
            sum.virtual_time.as_secs_f64() / 3600.0,
            sum.steps,
        );
        println!(
            "{faults} faults, {} events, {selected} servers selected, {timed_out} time-outs, \
             {errors} errors ({late} of services that were gone) and {handshakes} handshakes \
             reported, {excused} runs excused",
            sum.events,
        );
    }
}
