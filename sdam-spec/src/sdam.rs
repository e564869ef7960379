//! Server discovery and monitoring: replies and errors in; descriptions, generations and events
//! out.
//!
//! A file is a [`Script`] of phases. What is under test is a [`Subject`]: the state machine alone
//! ([`pure`]), or anything else that can be handed a reply and asked what it knows.

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
use crate::json::Stated;

/// Something that discovers and monitors, and has been started.
pub trait Subject {
    /// Takes in what the server at `response.address` says to a check; if the server has left the
    /// topology, nothing happens. All that follows has happened on return.
    fn respond(&mut self, response: &Response) -> Result<(), String>;

    /// Takes in an error that an operation met. All that follows has happened on return.
    fn fail(&mut self, error: &ApplicationError) -> Result<(), String>;

    /// What is known now.
    fn observe(&mut self) -> Result<Observation, String>;

    /// Ends; the error says what is left behind.
    fn end(self) -> Result<(), String>;
}

/// What a subject knows, and what it has told.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The present description.
    pub description: Arc<TopologyDescription>,
    /// The generation that each server's pool has reached, by what the pool was commanded.
    pub generations: BTreeMap<ServerId, Generation>,
    /// The events since the last observation, or since the topology was made.
    pub events: Vec<EventKind>,
}

/// Plays `file` to what `start` makes of its connection string.
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
        play(phase, &mut subject).map_err(|difference| match &phase.description {
            None => format!("phase {}: {difference}", index + 1),
            Some(description) => format!("phase {} ({description}): {difference}", index + 1),
        })?;
    }
    let left = |difference| format!("at the end: {difference}");
    subject.end().map_err(left)
}

fn play(phase: &Phase, subject: &mut impl Subject) -> Result<(), String> {
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

/// Compares with what the file states: an absent key asserts nothing, `null` that there is nothing.
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
