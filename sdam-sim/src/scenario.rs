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

mod error;
mod net;
mod parse;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

pub use self::{
    error::ParseStepError,
    net::{CertificateChange, NetFault},
    parse::{ParseScenarioError, parse_time},
};
use crate::{
    Action,
    action::{ActionError, seconds},
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
