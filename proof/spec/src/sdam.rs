//! Server discovery and monitoring tests. They check the descriptions, pool generations and events
//! that result from replies and errors.
//!
//! A file is a script of phases. The code under test is a [`Subject`]: the state machine of a
//! complete deployment ([`pure`]), or any other implementation that accepts replies and returns its
//! state.

mod events;
pub mod pure;

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use bson::Document;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    event::EventKind,
    ids::{Generation, ServerId},
    options::Options,
    reply,
    report::ErrorReport,
    server::ServerDescription,
    topology::TopologyDescription,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use self::events::{ExpectedEvent, Fields};
use crate::{fields::read, running::encode};

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
    let script: Script = read(file)?;
    if script.phases.is_empty() {
        return Err("the file has no phases".into());
    }
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

/// Runs a phase. `seen` collects all servers that have been in the topology.
fn run_phase(
    phase: &Phase,
    seen: &mut BTreeMap<ServerAddress, ServerId>,
    subject: &mut impl Subject,
) -> Result<(), String> {
    for (address, reply) in &phase.responses {
        let reply = (!reply.is_empty()).then(|| encode(reply)).transpose()?;
        let description = subject.description();
        seen.extend(description.servers().iter().map(|it| (it.address.clone(), it.id)));
        if let Some(server) = description.server(address) {
            subject.respond(server, reply.as_deref())?;
            continue;
        }
        // The server has left, and the topology has closed its connections for checks. A pooled
        // connection may still receive a reply.
        let server = *seen.get(address).ok_or_else(|| format!("{address} is no server"))?;
        if let Some(reply) = reply {
            subject.greet_late(server, &reply)?;
        } else {
            let broken = Error::network(Stage::Hello, MESSAGE);
            subject.fail(server, &ErrorReport::new(Generation::FIRST, broken));
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
        if let Some(report) = error.report(*current)? {
            subject.fail(server, &report);
        }
    }
    let (generations, events) = (subject.generations()?, subject.events()?);
    match &phase.outcome {
        Expectation::Outcome(expected) => {
            events::compare_topology(expected, &subject.description(), &generations)
        }
        Expectation::Events { events: expected } => events::compare(expected, &events),
    }
}

fn same<T: Debug + PartialEq>(what: &str, actual: &T, expected: &T) -> Result<(), String> {
    if actual == expected {
        return Ok(());
    }
    Err(format!("{what} is {actual:?}, expected {expected:?}"))
}

/// A file. Unknown keys are rejected, so everything in the file is checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(rename = "description")]
    _description: Option<IgnoredAny>,
    /// The connection string of the topology.
    uri: String,
    phases: Vec<Phase>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Phase {
    description: Option<String>,
    /// The replies to checks. An empty reply represents a network error.
    #[serde(default)]
    responses: Vec<(ServerAddress, Document)>,
    #[serde(default)]
    application_errors: Vec<ApplicationError>,
    outcome: Expectation,
}

/// The expected result of a phase.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
enum Expectation {
    /// Exactly the listed events.
    Events { events: Vec<ExpectedEvent> },
    /// A description of the topology.
    Outcome(Fields),
}

/// An application error on a pooled connection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ApplicationError {
    /// The server at the other end of the connection.
    address: ServerAddress,
    /// The connection's generation, or `None` for the current generation of the pool.
    generation: Option<Generation>,
    max_wire_version: i32,
    when: When,
    #[serde(rename = "type")]
    kind: Kind,
    response: Option<Document>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum When {
    BeforeHandshakeCompletes,
    AfterHandshakeCompletes,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Command,
    Network,
    Timeout,
}

/// The error message used when the file does not specify one.
const MESSAGE: &str = "simulated error";

impl ApplicationError {
    /// Returns the report of a pool whose generation is `current`, or `None` if the reply contains
    /// no error that concerns the server.
    ///
    /// # Errors
    ///
    /// If the reply of a command error is missing, or another kind of error has a reply.
    fn report(&self, current: Generation) -> Result<Option<ErrorReport>, String> {
        let stage = match self.when {
            When::BeforeHandshakeCompletes => Stage::Hello,
            When::AfterHandshakeCompletes => Stage::Operation,
        };
        let error = match (self.kind, &self.response) {
            (Kind::Network, None) => Some(Error::network(stage, MESSAGE)),
            (Kind::Timeout, None) => Some(Error::timeout(stage, MESSAGE)),
            (Kind::Command, Some(response)) => reply::error(&encode(response)?, stage),
            (kind, response) => return Err(format!("{kind:?} with the response {response:?}")),
        };
        let generation = self.generation.unwrap_or(current);
        let report = |error| {
            ErrorReport::new(generation, error).with_max_wire_version(self.max_wire_version)
        };
        Ok(error.map(report))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Tests both stages, because no official file distinguishes them.
    #[test]
    fn application_errors_are_reported_like_those_of_pools() {
        let reply = json!({ "ok": 1, "ismaster": true, "minWireVersion": 0, "maxWireVersion": 21 });
        // The pool labels errors that occur before the handshake as overload errors, and these do
        // not clear the pool.
        for (when, kind, generation) in [
            ("afterHandshakeCompletes", "network", 1),
            ("afterHandshakeCompletes", "timeout", 0),
            ("beforeHandshakeCompletes", "network", 0),
            ("beforeHandshakeCompletes", "timeout", 0),
        ] {
            let server_type = if generation == 0 { "Standalone" } else { "Unknown" };
            let server = json!({ "type": server_type, "pool": { "generation": generation } });
            let file = json!({ "uri": "mongodb://a/?directConnection=true", "phases": [{
                "responses": [["a:27017", reply]],
                "applicationErrors": [{
                    "address": "a:27017", "when": when, "type": kind, "maxWireVersion": 21,
                }],
                "outcome": { "topologyType": "Single", "servers": { "a:27017": server } },
            }] });
            assert_eq!(pure::check(&file), Ok(()), "{when} {kind}");
        }
    }
}
