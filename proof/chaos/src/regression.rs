//! Minimizes plans that fail, formats the timelines of their failures, and stores the plans in
//! files.
//!
//! A run whose file contains `access plain` uses neither TLS nor a proxy, regardless of its seed.
//! With `disturbed on`, the simulation is disturbed.
//!
//! ```text
//! # P9-waiters at 12.5s: a selection of write operation is waiting, but ...
//! seed 4711
//! scenario random
//! load off
//! access plain
//! ---
//! 1.5s kill primary
//! ```

use std::{
    fmt::{self, Write as _},
    fs, io,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use sdam_core::{deployment::Input, event::EventKind, time::Instant};
use sdam_sim::{
    oracle::Oracle,
    scenario::{ParseScenarioError, Scenario},
};

use crate::{
    plan::{Access, Plan},
    run::{Failure, run},
};

/// A stored plan that once failed.
#[derive(Clone, Debug)]
pub struct Regression {
    /// The plan to run.
    pub plan: Plan,
    /// A description of the failure.
    pub about: String,
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.about.lines() {
            writeln!(f, "# {line}")?;
        }
        writeln!(f, "seed {}", self.plan.seed)?;
        writeln!(f, "scenario {}", self.plan.kind)?;
        if !self.plan.load {
            writeln!(f, "load off")?;
        }
        if self.plan.disturbance.is_some() {
            writeln!(f, "disturbed on")?;
        }
        if self.plan.access == Access::PLAIN {
            writeln!(f, "access plain")?;
        }
        write!(f, "---\n{}", self.plan.scenario)
    }
}

impl FromStr for Regression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (head, steps) =
            text.split_once("---\n").ok_or("a line `---` is missing before the steps")?;
        let (mut seed, mut kind, mut load) = (None, None, true);
        let (mut access, mut disturbed) = (None, false);
        let mut about = Vec::new();
        for line in head.lines() {
            match line.split_once(' ') {
                Some(("#", words)) => about.push(words),
                Some(("seed", number)) => {
                    seed = Some(number.parse().map_err(|_| format!("`{number}` is not a seed"))?);
                }
                Some(("scenario", name)) => kind = Some(name.parse()?),
                Some(("load", "off")) => load = false,
                Some(("disturbed", "on")) => disturbed = true,
                Some(("access", "plain")) => access = Some(Access::PLAIN),
                _ => {
                    return Err(format!(
                        "`{line}` is not a comment, `seed NUMBER`, `scenario NAME`, `load off`, \
                         `disturbed on` or `access plain`"
                    ));
                }
            }
        }
        let (Some(seed), Some(kind)) = (seed, kind) else {
            return Err("the lines `seed NUMBER` and `scenario NAME` are required".into());
        };
        let scenario = steps.parse().map_err(|error: ParseScenarioError| error.to_string())?;
        let mut plan = Plan::new(seed, kind).with_scenario(scenario);
        plan.load = load;
        plan.disturbance = disturbed.then_some(seed);
        plan.access = access.unwrap_or(plan.access);
        Ok(Self { plan, about: about.join("\n") })
    }
}

/// Returns the folder of the stored regressions.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdam-sim/regressions")
}

/// Returns every stored regression with its file name, sorted by name.
///
/// # Errors
///
/// If a file cannot be read or parsed.
pub fn all() -> io::Result<Vec<(String, Regression)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder())? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let regression = fs::read_to_string(&path)?
            .parse()
            .map_err(|error| io::Error::other(format!("{name}: {error}")))?;
        found.push((name, regression));
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// Stores a failing plan. Returns the path of the file.
///
/// # Errors
///
/// If the file cannot be written.
pub fn keep(plan: &Plan, failure: &Failure) -> io::Result<PathBuf> {
    let oracle = failure.violation.oracle.to_string().to_lowercase();
    let path = folder().join(format!("{oracle}-{}-{}.txt", plan.kind, plan.seed));
    let regression = Regression { plan: plan.clone(), about: failure.violation.to_string() };
    fs::write(&path, regression.to_string())?;
    Ok(path)
}

/// The maximum number of runs for minimizing a plan.
const BUDGET: u32 = 400;

/// Returns a plan with as few faults as possible that violates the same invariant as `plan`, and
/// its failure.
///
/// Steps are removed in halves, quarters and so on, as long as the invariant is still violated.
pub fn shrink(plan: &Plan, failure: Box<Failure>) -> (Plan, Box<Failure>) {
    let mut shrinker =
        Shrinker { oracle: failure.violation.oracle, plan: plan.clone(), failure, budget: BUDGET };
    let mut calm = plan.clone();
    calm.disturbance = None;
    shrinker.accept(calm);
    let mut idle = shrinker.plan.clone();
    idle.load = false;
    shrinker.accept(idle);
    // SRV records are kept, because some faults prevent only clients without SRV records from
    // recovering.
    if !plan.access.srv {
        let mut direct = shrinker.plan.clone();
        direct.access = Access::PLAIN;
        shrinker.accept(direct);
    }
    let mut chunk = plan.scenario.steps.len().max(1);
    loop {
        let mut at = 0;
        while at < shrinker.plan.scenario.steps.len() {
            if !shrinker.without(at, chunk) {
                at += chunk;
            }
        }
        if chunk == 1 || shrinker.budget == 0 {
            return (shrinker.plan, shrinker.failure);
        }
        chunk = chunk.div_ceil(2);
    }
}

struct Shrinker {
    oracle: Oracle,
    plan: Plan,
    failure: Box<Failure>,
    budget: u32,
}

impl Shrinker {
    /// Removes `count` steps, starting at `at`, if the plan still fails without them. Returns
    /// whether the steps were removed.
    fn without(&mut self, at: usize, count: usize) -> bool {
        let mut steps = self.plan.scenario.steps.clone();
        steps.drain(at..(at + count).min(steps.len()));
        let plan = self.plan.with_scenario(Scenario { steps });
        self.accept(plan)
    }

    fn accept(&mut self, plan: Plan) -> bool {
        let Some(left) = self.budget.checked_sub(1) else {
            return false;
        };
        self.budget = left;
        match run(&plan) {
            Err(failure) if failure.violation.oracle == self.oracle => {
                self.plan = plan;
                self.failure = failure;
                true
            }
            _ => false,
        }
    }
}

/// Formats what happened before and just after the violation, in order of time: faults, actions of
/// applications, and published events.
pub fn timeline(plan: &Plan, failure: &Failure) -> String {
    let mut lines: Vec<(Instant, u8, String)> = Vec::new();
    for (at, step) in &plan.scenario.steps {
        lines.push((Instant::EPOCH + *at, 0, format!("!! {step}")));
    }
    for (at, note) in &failure.notes {
        lines.push((*at, 1, format!("-- {note}")));
    }
    for event in &failure.events {
        if let Some(line) = line(&event.kind) {
            lines.push((event.at, 2, format!("   {line}")));
        }
    }
    let violation = &failure.violation;
    lines.push((violation.at, 3, format!("** {}", violation.message)));
    // The lines of each kind are already in order. The stable sort preserves that order.
    lines.sort_by_key(|(at, kind, _)| (*at, *kind));
    let mut text = format!("seed {} ({}): {plan}\n", plan.seed, plan.kind);
    for (at, _, line) in lines {
        let at: Duration = at.since(Instant::EPOCH);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:>11.6} {line}", at.as_secs_f64());
    }
    text
}

fn line(kind: &EventKind) -> Option<String> {
    Some(match kind {
        EventKind::TopologyDescriptionChanged { new, .. } => {
            let servers = new.servers().iter();
            let servers: Vec<String> = servers
                .map(|server| format!("{}={}", server.address, server.server_type))
                .collect();
            let election = new.max_election();
            format!("topology {} {} {election}", new.topology_type(), servers.join(" "))
        }
        EventKind::ServerDescriptionChanged { previous, new } => {
            let error = new.error.as_ref();
            let error = error.map_or_else(String::new, |error| format!(" ({error:#})"));
            let (before, after) = (previous.server_type, new.server_type);
            format!("server {} {} {before} -> {after}{error}", new.id, new.address)
        }
        EventKind::ServerHeartbeatStarted(heartbeat) => {
            let awaited = if heartbeat.awaited { ", awaited" } else { "" };
            format!(
                "check of {} starts on #{}{awaited}",
                heartbeat.address, heartbeat.connection.driver
            )
        }
        EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => {
            format!("check of {} succeeds", heartbeat.address)
        }
        EventKind::ServerHeartbeatFailed { heartbeat, failure, .. } => {
            format!("check of {} fails: {failure:#}", heartbeat.address)
        }
        EventKind::PoolCleared { server, clear, .. } => {
            format!("pool of {server} cleared, generation {}", clear.generation)
        }
        EventKind::Input(own) => match &own.input {
            Input::Deserted { server } => format!("the task of {server} was dropped"),
            _ => return None,
        },
        EventKind::RttMeasured { .. } => return None,
        EventKind::ServerSelectionWaiting { selection, remaining, .. } => {
            format!("waits for {} up to {remaining:?}", selection.selector)
        }
        EventKind::ServerSelectionSucceeded { selection, address, .. } => {
            format!("selects {address} for {}", selection.selector)
        }
        EventKind::ServerSelectionFailed { selection, reason, .. } => {
            format!("{}: {}", selection.selector, reason.as_str())
        }
        other => match other.address() {
            Some(address) => format!("{} {address}", other.name().as_str()),
            None => other.name().as_str().to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Kind;

    #[test]
    fn written_regressions_are_read_back() {
        for seed in 0..200 {
            let mut plan = Plan::new(seed, Kind::ALL[seed as usize % Kind::ALL.len()]);
            plan.load = seed % 3 != 0;
            plan.disturbance = (seed % 5 != 0).then_some(seed);
            let about = "P9: a selection waits\nwithout end".to_owned();
            let text = Regression { plan, about }.to_string();
            let read: Regression = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
    }
}
