//! Timed faults in a simulated world. A scenario is a value that can be generated and shrunk, and
//! can be written as text.
//!
//! ```
//! use sdam_sim::{Blueprint, runtime::Sim, scenario::Scenario};
//!
//! let scenario: Scenario = "
//!     ## The primary dies while one of the others cannot be reached.
//!     0.5s net blackhole 1
//!     1s   kill primary
//!     20s  restart 0
//!     20s  net heal
//! "
//! .parse()?;
//! let sim = Sim::new(42, &Blueprint::replica_set(3));
//! let refused = sim.block_on(scenario.play(&sim));
//! assert!(refused.is_empty());
//! assert_ne!(sim.status().primary().unwrap().id.0, 0);
//! # Ok::<(), sdam_sim::scenario::ParseScenarioError>(())
//! ```

mod net;
#[cfg(test)]
mod tests;

use std::{fmt, str::FromStr, time::Duration};

pub use self::net::{CertificateChange, NetFault};
use crate::{
    Action,
    action::{ActionError, ParseActionError, parse_seconds, seconds},
    runtime::Sim,
};

/// A list of timed faults in a simulated world.
///
/// In its text form, a scenario has one line `AT VERB ...` for each step. `AT` is the time from the
/// start in seconds (`1.5s`) or milliseconds (`250ms`). Empty lines are skipped, and `#` begins a
/// comment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// The steps, each with its time from the start. Steps with the same time are performed in
    /// order.
    pub steps: Vec<(Duration, Step)>,
}

/// One event in a simulated world.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// An action on the deployment.
    Act(Action),
    /// A fault in the network between the program and the deployment.
    Net(NetFault),
}

/// A step that could not be performed when its time came.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FailedStep {
    /// The time of the step, from the start.
    pub at: Duration,
    /// The step.
    pub step: Step,
    /// The reason why the step was not possible.
    pub error: ActionError,
}

impl Scenario {
    /// Performs the steps at their times on the clock of `sim`. Returns the steps that were not
    /// possible. For example, there may be no primary to kill because an earlier step was removed
    /// or the deployment is a different one.
    ///
    /// Run the future concurrently with the program under test, for example with `join!`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future skips the remaining steps.
    pub async fn play(&self, sim: &Sim) -> Vec<FailedStep> {
        let clock = sim.clock();
        let start = clock.now();
        let mut steps: Vec<_> = self.steps.iter().collect();
        steps.sort_by_key(|(at, _)| *at);
        let mut failed = Vec::new();
        for (at, step) in steps {
            clock.sleep_until(start + *at).await;
            if let Err(error) = step.apply(sim) {
                failed.push(FailedStep { at: *at, step: step.clone(), error });
            }
        }
        failed
    }

    /// Returns the time of the last step, from the start.
    pub fn duration(&self) -> Duration {
        let times = self.steps.iter().map(|(at, _)| *at);
        times.max().unwrap_or_default()
    }
}

impl Step {
    /// Performs the step immediately.
    ///
    /// # Errors
    ///
    /// If the step is not possible in the current state.
    pub fn apply(&self, sim: &Sim) -> Result<(), ActionError> {
        match self {
            Self::Act(action) => sim.apply(action),
            Self::Net(fault) => fault.apply(sim),
        }
    }
}

impl From<Action> for Step {
    fn from(action: Action) -> Self {
        Self::Act(action)
    }
}

impl From<NetFault> for Step {
    fn from(fault: NetFault) -> Self {
        Self::Net(fault)
    }
}

impl FromIterator<(Duration, Step)> for Scenario {
    fn from_iter<I: IntoIterator<Item = (Duration, Step)>>(steps: I) -> Self {
        Self { steps: steps.into_iter().collect() }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|(at, step)| writeln!(f, "{}s {step}", seconds(*at)))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Act(action) => action.fmt(f),
            Self::Net(fault) => write!(f, "net {fault}"),
        }
    }
}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s {}: {}", seconds(self.at), self.step, self.error)
    }
}

/// The error returned when a [`Scenario`] cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct ParseScenarioError {
    line: usize,
    error: ParseStepError,
}

impl ParseScenarioError {
    /// Returns the line number, starting at 1.
    pub fn line(&self) -> usize {
        self.line
    }
}

impl FromStr for Scenario {
    type Err = ParseScenarioError;

    fn from_str(text: &str) -> Result<Self, ParseScenarioError> {
        let lines = text.lines().enumerate();
        lines
            .map(|(index, line)| (index + 1, line.split('#').next().unwrap_or_default().trim()))
            .filter(|(_, line)| !line.is_empty())
            .map(|(line, text)| {
                timed_step(text).map_err(|error| ParseScenarioError { line, error })
            })
            .collect()
    }
}

impl FromStr for Step {
    type Err = ParseStepError;

    fn from_str(text: &str) -> Result<Self, ParseStepError> {
        let verb = text.split_whitespace().next().unwrap_or_default();
        if verb == "net" {
            return text.parse().map(Self::Net);
        }
        text.parse().map(Self::Act).map_err(|error: ParseActionError| {
            let verbs = std::iter::once("net").chain(words(Action::SYNTAX));
            ParseStepError::of_step(error, &[verb], Action::SYNTAX, verbs)
        })
    }
}

/// Parses a time and a step.
fn timed_step(line: &str) -> Result<(Duration, Step), ParseStepError> {
    let (at, step) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let at = parse_time(at)?;
    if step.is_empty() {
        return Err(ParseStepError::of_line("the step is missing"));
    }
    Ok((at, step.trim().parse()?))
}

/// Parses the time at the beginning of a line in a scenario, such as `1.5s` or `250ms`.
///
/// # Errors
///
/// If `text` is not a valid time.
pub fn parse_time(text: &str) -> Result<Duration, ParseStepError> {
    let time = match text.strip_suffix("ms") {
        Some(millis) => millis.parse().ok().map(Duration::from_millis),
        None => text.strip_suffix('s').and_then(|text| parse_seconds(text).ok()),
    };
    time.ok_or_else(|| ParseStepError::of_line(format_args!("`{text}` is not a time")))
}

/// Returns the first word of each line of `syntax` that begins with a verb.
fn words(syntax: &'static str) -> impl Iterator<Item = &'static str> {
    syntax
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(|line| line.split_whitespace().next())
}

/// The error returned when a [`Step`], or a time and a step, cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; {remedy}")]
pub struct ParseStepError {
    reason: String,
    remedy: String,
}

impl ParseStepError {
    /// Returns the reason, with the invalid word in backquotes, such as "`explode` is not an
    /// action".
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns a suggested correction, such as "write it as `kill MEMBER`".
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// Creates the error for an invalid line in a scenario.
    fn of_line(what: impl fmt::Display) -> Self {
        Self {
            reason: what.to_string(),
            remedy: "write a line as `AT VERB ...`, such as `1.5s kill primary`".to_owned(),
        }
    }

    /// Creates the error for a step that begins with `words`. If `syntax` has a line for this step,
    /// the error quotes the part of that line that precedes the first double space. Otherwise it
    /// lists all `verbs`.
    fn of_step(
        what: impl fmt::Display,
        words: &[&str],
        syntax: &'static str,
        verbs: impl Iterator<Item = &'static str>,
    ) -> Self {
        let is_it = |line: &&str| {
            let mut line = line.split_whitespace();
            words.iter().all(|word| line.next() == Some(*word))
        };
        let remedy = if let Some(line) = syntax.lines().find(is_it) {
            let usage = line.split_once("  ").map_or(line, |(usage, _)| usage);
            format!("write it as `{usage}`")
        } else {
            let verbs: Vec<_> = verbs.collect();
            format!("the verbs are {}", verbs.join(", "))
        };
        let reason = what.to_string();
        Self { reason, remedy }
    }
}
