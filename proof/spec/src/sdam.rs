//! Server discovery and monitoring tests. They check the descriptions, pool generations and events
//! that result from replies and errors.
//!
//! A file is a script of phases. The code under test is a [`Subject`]: the state machine of a
//! complete deployment ([`pure`]), or any other implementation that accepts replies and returns its
//! state.

mod events;
mod outcome;
pub mod pure;
mod script;
#[cfg(test)]
pub(crate) mod tests;

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use sdam_core::{
    address::ServerAddress,
    event::EventKind,
    ids::{Generation, ServerId},
    options::Options,
    report::ErrorReport,
    server::ServerDescription,
    topology::TopologyDescription,
};
use serde_json::Value;

use self::script::{Expectation, Phase, Response, Script};

/// A running implementation of discovery and monitoring. Each method returns only when all of its
/// effects are complete.
pub trait Subject {
    /// Returns the current description.
    fn description(&self) -> Arc<TopologyDescription>;

    /// Returns the generation of each server's pool, derived from the calls to the pool.
    fn generations(&self) -> Result<BTreeMap<ServerId, Generation>, String>;

    /// Returns the events that were published since the last call or, at the first call, since the
    /// start.
    fn events(&mut self) -> Result<Vec<EventKind>, String>;

    /// Processes a server's reply to a check. `None` means that the connection broke.
    fn respond(&mut self, server: &ServerDescription, reply: Option<&[u8]>) -> Result<(), String>;

    /// Processes the reply to a pooled connection's handshake with a server that has left.
    fn greet_late(&mut self, server: ServerId, reply: &[u8]) -> Result<(), String>;

    /// Processes an error that an application reports.
    fn fail(&mut self, server: ServerId, report: &ErrorReport);

    /// Closes the subject. If anything is left behind, the error names it.
    fn end(self) -> Result<(), String>;
}

/// Runs `file` against the subject that `start` creates from the file's connection string.
///
/// # Errors
///
/// Returns the first difference, with the phase in which it was found.
pub fn check<S: Subject>(
    file: &Value,
    start: impl FnOnce(Options) -> Result<S, String>,
) -> Result<(), String> {
    let script = Script::parse(file)?;
    let options = Options::parse(&script.uri).map_err(|error| error.to_string())?;
    let mut subject = start(options)?;
    let mut seen = BTreeMap::new();
    for (index, phase) in script.phases.iter().enumerate() {
        run_phase(phase, &mut seen, &mut subject).map_err(|difference| {
            match &phase.description {
                None => format!("phase {}: {difference}", index + 1),
                Some(description) => format!("phase {} ({description}): {difference}", index + 1),
            }
        })?;
    }
    let left = |difference| format!("after the last phase: {difference}");
    subject.end().map_err(left)
}

/// Runs a phase. `seen` contains all servers that the topology has had.
fn run_phase(
    phase: &Phase,
    seen: &mut BTreeMap<ServerAddress, ServerId>,
    subject: &mut impl Subject,
) -> Result<(), String> {
    for Response { address, reply } in &phase.responses {
        let description = subject.description();
        seen.extend(description.servers().iter().map(|it| (it.address.clone(), it.id)));
        if let Some(server) = description.server(address) {
            subject.respond(server, reply.as_deref())?;
            continue;
        }
        // The topology has closed the connection of the check. A pool may still get a reply.
        let server = *seen.get(address).ok_or_else(|| format!("{address} is no server"))?;
        match reply {
            Some(reply) => subject.greet_late(server, reply)?,
            None => subject.fail(server, &script::broken_before_hello()),
        }
        if subject.description() != description {
            return Err(format!("{address} has left, and its reply had an effect"));
        }
    }
    for error in &phase.application_errors {
        let (address, description) = (&error.address, subject.description());
        let server = description.server(address);
        let server = server.ok_or_else(|| format!("{address} is not in the topology"))?.id;
        let generations = subject.generations()?;
        let current = generations.get(&server);
        let current = current.ok_or_else(|| format!("{address} has no pool"))?;
        if let Some(report) = error.report(*current) {
            subject.fail(server, &report);
        }
    }
    let (generations, events) = (subject.generations()?, subject.events()?);
    match &phase.expectation {
        Expectation::Outcome(expected) => {
            outcome::compare_topology(expected, &subject.description(), &generations)
        }
        Expectation::Events(expected) => events::compare(expected, &events),
    }
}

fn same<T: Debug + PartialEq>(what: &str, actual: &T, expected: &T) -> Result<(), String> {
    if actual == expected {
        return Ok(());
    }
    Err(format!("{what} is {actual:?}, expected {expected:?}"))
}
