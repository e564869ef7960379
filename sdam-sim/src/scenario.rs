//! Timed faults of a simulated world, as a value that can be generated and shrunk, and as text.
//!
//! ```
//! use sdam_core::address::ServerAddress;
//! use sdam_sim::{Blueprint, config::SetConfig, runtime::Sim, scenario::Scenario};
//!
//! let scenario: Scenario = "
//!     ## The primary dies while one of the others cannot be reached.
//!     0.5s net blackhole 1
//!     1s   kill primary
//!     20s  restart 0
//!     20s  net heal
//! "
//! .parse()?;
//! let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
//! let sim = Sim::new(42, &Blueprint::replica_set(SetConfig::new("rs", hosts)));
//! let refused = sim.block_on(scenario.play(&sim));
//! assert!(refused.is_empty());
//! assert_ne!(sim.status().primary().unwrap().id.0, 0);
//! # Ok::<(), sdam_sim::scenario::ParseScenarioError>(())
//! ```

mod parse;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

pub use self::parse::{ParseScenarioError, ParseStepError};
use crate::{
    Action, MemberId,
    action::{ActionError, Target, Word, seconds},
    deployment::Role,
    runtime::{Latency, Sim},
};

/// A list of timed faults of a simulated world.
///
/// Its text has one line `AT VERB ...` for each step, with `AT` in seconds (`1.5s`) or
/// milliseconds (`250ms`) from the start; empty lines are skipped, and `#` begins a comment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// The steps, each with its time from the start; steps of the same time are taken in order.
    pub steps: Vec<(Duration, Step)>,
}

/// One event in a simulated world.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// An action on the deployment.
    Act(Action),
    /// A fault of the network between the program and the deployment.
    Net(NetFault),
}

/// A fault of the network between the program and the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetFault {
    /// Whether new connections to the member are refused.
    Refuse(Target, bool),
    /// Whether all bytes between the program and the member are dropped silently.
    Blackhole(Target, bool),
    /// Every connection to the member is reset now.
    Reset(Target),
    /// Every new connection to the member is reset after this many bytes from it; `None` turns
    /// this off.
    ResetAfter(Target, Option<usize>),
    /// DNS look-ups take this long; with `None` they fail.
    Dns(Option<Duration>),
    /// The latency of bytes changes.
    Latency(Latency),
    /// All faults of the network end.
    Heal,
}

/// A step that was not possible at its time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FailedStep {
    /// Its time, from the start.
    pub at: Duration,
    /// The step.
    pub step: Step,
    /// Why it was not possible.
    pub error: ActionError,
}

impl Scenario {
    /// Takes the steps at their times on the clock of `sim`, and returns those that were not
    /// possible. For example, there may be no primary to kill after a step was removed, or in
    /// another world.
    ///
    /// Run it beside the program under test, for example with `join!`.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, the steps whose time has not come are not taken.
    pub async fn play(&self, sim: &Sim) -> Vec<FailedStep> {
        let clock = sim.runtime().io.clock;
        let start = clock.now();
        let mut steps: Vec<_> = self.steps.iter().collect();
        steps.sort_by_key(|(at, _)| *at);
        let mut failed = Vec::new();
        for (at, step) in steps {
            clock.sleep_until(start + *at).await;
            if let Err(error) = step.apply(sim) {
                failed.push(FailedStep {
                    at: *at,
                    step: step.clone(),
                    error,
                });
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
    /// Takes the step now.
    ///
    /// # Errors
    ///
    /// If the step is not possible now.
    pub fn apply(&self, sim: &Sim) -> Result<(), ActionError> {
        match self {
            Self::Act(action) => sim.apply(action),
            Self::Net(fault) => fault.apply(sim),
        }
    }
}

impl NetFault {
    fn apply(self, sim: &Sim) -> Result<(), ActionError> {
        let network = sim.network();
        match self {
            Self::Refuse(target, on) => network.refuse(resolve(sim, target)?, on),
            Self::Blackhole(target, on) => network.blackhole(resolve(sim, target)?, on),
            Self::Reset(target) => network.reset(resolve(sim, target)?),
            Self::ResetAfter(target, bytes) => network.reset_after(resolve(sim, target)?, bytes),
            Self::Dns(delay) => network.set_dns(delay),
            Self::Latency(latency) => network.set_latency(latency),
            Self::Heal => network.heal(),
        }
        Ok(())
    }
}

/// Returns the member that `target` names now.
fn resolve(sim: &Sim, target: Target) -> Result<MemberId, ActionError> {
    let status = sim.status();
    let found = match target {
        Target::Member(id) => status.members.iter().find(|member| member.id == id),
        Target::Primary => status.primary(),
        Target::Secondary => status.with_role(Role::Secondary).next(),
    };
    let found = found.ok_or(ActionError::NoTarget(target))?;
    Ok(found.id)
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
        Self {
            steps: steps.into_iter().collect(),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps
            .iter()
            .try_for_each(|(at, step)| writeln!(f, "{}s {step}", seconds(*at)))
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

impl fmt::Display for NetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on| if on { "" } else { " off" };
        match *self {
            Self::Refuse(target, on) => write!(f, "refuse {}{}", Word(target), switch(on)),
            Self::Blackhole(target, on) => write!(f, "blackhole {}{}", Word(target), switch(on)),
            Self::Reset(target) => write!(f, "reset {}", Word(target)),
            Self::ResetAfter(target, Some(bytes)) => {
                write!(f, "reset_after {} {bytes}", Word(target))
            }
            Self::ResetAfter(target, None) => write!(f, "reset_after {} off", Word(target)),
            Self::Dns(Some(delay)) => write!(f, "dns {}", seconds(delay)),
            Self::Dns(None) => f.write_str("dns fail"),
            Self::Latency(latency) => {
                let (min, spread) = (seconds(latency.min), seconds(latency.spread));
                let chunked = if latency.chunked { " chunked" } else { "" };
                write!(f, "latency {min} {spread}{chunked}")
            }
            Self::Heal => f.write_str("heal"),
        }
    }
}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s {}: {}", seconds(self.at), self.step, self.error)
    }
}
