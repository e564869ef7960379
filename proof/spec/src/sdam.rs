//! Server discovery and monitoring tests: from replies and errors to descriptions, generations and
//! events.
//!
//! A file is a [`Script`] of phases. The code under test is a [`Subject`]: the state machine of the
//! topology alone, that of the whole deployment ([`pure`]), or any other implementation that accepts
//! replies and returns its state.

mod deployment;
mod events;
mod outcome;
pub mod pure;
mod script;
#[cfg(test)]
pub(crate) mod tests;

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use sdam_core::{
    event::EventKind,
    ids::{Generation, ServerId},
    options::Options,
    topology::TopologyDescription,
};
use serde_json::Value;

pub use self::script::{ApplicationError, Response, Script};
use self::script::{Expectation, Phase};
use crate::fields::Stated;

/// A started implementation of discovery and monitoring.
pub trait Subject {
    /// Processes the reply of the server at `response.address` to a check. Does nothing if the
    /// server has left the topology. All effects have run on return.
    fn respond(&mut self, response: &Response) -> Result<(), String>;

    /// Processes an application error. All effects have run on return.
    fn fail(&mut self, error: &ApplicationError) -> Result<(), String>;

    /// Returns the current state and the new events.
    fn observe(&mut self) -> Result<Observation, String>;

    /// Ends the subject. The error names any leftovers.
    fn end(self) -> Result<(), String>;
}

/// The state and the events of a subject.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The current description.
    pub description: Arc<TopologyDescription>,
    /// The generation of each server's pool, according to the calls to the pool.
    pub generations: BTreeMap<ServerId, Generation>,
    /// The events since the last observation, or since the start.
    pub events: Vec<EventKind>,
}

/// Runs `file` against the subject that `start` creates from its connection string.
///
/// # Errors
///
/// The first difference, with the phase in which it was found.
pub fn check<S: Subject>(
    file: &Value,
    start: impl FnOnce(Options) -> Result<S, String>,
) -> Result<(), String> {
    let script = Script::parse(file)?;
    let options = Options::parse(&script.uri).map_err(|error| error.to_string())?;
    let mut subject = start(options)?;
    for (index, phase) in script.phases.iter().enumerate() {
        run_phase(phase, &mut subject).map_err(|difference| match &phase.description {
            None => format!("phase {}: {difference}", index + 1),
            Some(description) => format!("phase {} ({description}): {difference}", index + 1),
        })?;
    }
    let left = |difference| format!("after the last phase: {difference}");
    subject.end().map_err(left)
}

fn run_phase(phase: &Phase, subject: &mut impl Subject) -> Result<(), String> {
    for response in &phase.responses {
        subject.respond(response)?;
    }
    for error in &phase.application_errors {
        subject.fail(error)?;
    }
    let observation = subject.observe()?;
    match &phase.expectation {
        Expectation::Outcome(expected) => outcome::compare(expected, &observation),
        Expectation::Events(expected) => events::compare(expected, &observation.events),
    }
}

/// Compares a value with the expected one: an absent key asserts nothing, `null` asserts absence.
fn compare<T: Debug + PartialEq>(
    key: &str,
    actual: Option<&T>,
    expected: &Stated<T>,
) -> Result<(), String> {
    match expected {
        Stated::Nothing => Ok(()),
        Stated::Value(expected) => same(key, &actual, &expected.as_ref()),
    }
}

fn same<T: Debug + PartialEq>(what: &str, actual: &T, expected: &T) -> Result<(), String> {
    if actual == expected {
        return Ok(());
    }
    Err(format!("{what} is {actual:?}, expected {expected:?}"))
}
