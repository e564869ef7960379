//! Simulates the same scenario with many seeds.

use std::{
    io::{self, Write},
    time::Duration,
};

use super::{Seeds, outcome::Outcome, plan::Plan, plan::Show};
use crate::{
    console::Console,
    duration::short,
    exit::Exit,
    progress::progress,
    terminal::{Palette, json_line},
    watch::Access,
};

/// Simulates the scenario with each seed, and prints a line for each and a summary.
///
/// On a terminal, standard error shows the progress.
pub(super) fn run<O: Write, R: Write>(
    plan: &Plan,
    seeds: &Seeds,
    json: bool,
    console: Console<O, R>,
) -> io::Result<Exit> {
    let Console { mut output, mut remarks, .. } = console;
    let template = "{bar:40} {pos} of {len} seeds, {eta} left";
    let bar = progress(seeds.0.end - seeds.0.start, template, String::new());
    let mut summary = Summary::default();
    for seed in seeds.0.clone() {
        let show = Show {
            console: Console { output: io::sink(), remarks: io::sink(), palette: Palette::Plain },
            json: false,
            record: None,
        };
        let outcome = match plan.simulate(seed, show)? {
            Ok(outcome) => outcome,
            Err(failure) => return failure.report(&mut remarks),
        };
        let line = if json { json_line(&outcome.json()) } else { outcome.line(plan.wanted()) };
        bar.suspend(|| -> io::Result<()> {
            writeln!(output, "{line}")?;
            for refusal in outcome.refusals().filter(|_| !json) {
                writeln!(remarks, "warning: seed {seed}: {refusal}")?;
            }
            Ok(())
        })?;
        summary.add(&outcome);
        bar.inc(1);
    }
    bar.finish_and_clear();
    for line in summary.lines(seeds, plan.wanted()) {
        if json {
            writeln!(remarks, "{line}")?;
        } else {
            writeln!(output, "{line}")?;
        }
    }
    output.flush()?;
    Ok(summary.worst.map_or(Exit::SUCCESS, Access::exit))
}

/// The combined outcomes of the simulations with all seeds.
#[derive(Debug, Default)]
struct Summary {
    /// The seeds, each preceded by the time without a known writable server.
    times: Vec<(Duration, u64)>,
    /// The numbers of simulations at the end of which the deployment was writable, readable only,
    /// and neither.
    ends: [u64; 3],
    worst: Option<Access>,
    writes: Option<Writes>,
}

/// The combined writes in the simulations with all seeds.
#[derive(Debug, Default)]
struct Writes {
    all: u64,
    failed: u64,
    longest: (Duration, u64),
}

impl Summary {
    fn add(&mut self, outcome: &Outcome) {
        self.times.push((outcome.without(), outcome.seed));
        self.ends[outcome.client.access as usize] += 1;
        self.worst = self.worst.max(Some(outcome.client.access));
        if let Some(own) = &outcome.writes {
            let writes = self.writes.get_or_insert_default();
            writes.all += own.succeeded + own.failed;
            writes.failed += own.failed;
            writes.longest = writes.longest.max((own.longest.took, outcome.seed));
        }
    }

    fn lines(&mut self, seeds: &Seeds, wanted: &str) -> Vec<String> {
        self.times.sort_unstable();
        let [writable, readable, neither] = self.ends;
        let at = |index: usize| self.times.get(index).copied().unwrap_or_default();
        let last = self.times.len().saturating_sub(1);
        let [(minimum, best), (median, _), (maximum, worst)] = [at(0), at(last / 2), at(last)];
        let mut lines = vec![
            format!(
                "seeds {seeds}: {writable} writable at the end, {readable} readable only, \
                 {neither} neither"
            ),
            format!(
                "no {wanted}: {} at least (seed {best}), {} in the median, {} at most (seed {worst})",
                short(minimum),
                short(median),
                short(maximum),
            ),
        ];
        if let Some(writes) = &self.writes {
            let (longest, seed) = writes.longest;
            lines.push(format!(
                "writes: {} of {} failed, the longest took {} (seed {seed})",
                writes.failed,
                writes.all,
                short(longest)
            ));
        }
        lines
    }
}
