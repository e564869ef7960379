//! The format of the files.

use sdam_core::{
    address::ServerAddress,
    app_error::{AppError, Cause, Phase as Progress},
    error::{RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR},
    ids::Generation,
};
use serde_json::Value;

use super::{address, events::ExpectedEvent};
use crate::json::{self, Object};

/// A file, read as a whole before anything is played.
#[derive(Debug)]
pub struct Script<'v> {
    /// The connection string that the topology is started with.
    pub uri: String,
    pub(super) phases: Vec<Phase<'v>>,
}

#[derive(Debug)]
pub(super) struct Phase<'v> {
    pub(super) description: Option<&'v str>,
    pub(super) responses: Vec<Response>,
    pub(super) errors: Vec<ApplicationError>,
    pub(super) expectation: Expectation<'v>,
}

/// What a phase has to lead to.
#[derive(Debug)]
pub(super) enum Expectation<'v> {
    /// A description of the topology.
    Outcome(Object<'v>),
    /// These events, and no others.
    Events(Vec<ExpectedEvent<'v>>),
}

/// What a server says to a check.
#[derive(Clone, Debug)]
pub struct Response {
    /// Who is asked.
    pub address: ServerAddress,
    /// The BSON document of the reply; `None` if there is a network error instead.
    pub reply: Option<Vec<u8>>,
}

/// An error that an operation meets on a pooled connection.
#[derive(Clone, Debug)]
pub struct ApplicationError {
    /// Whose connection it is.
    pub address: ServerAddress,
    /// The connection's generation; `None` for the pool's present one.
    pub generation: Option<Generation>,
    max_wire_version: i32,
    progress: Progress,
    failure: Failure,
}

#[derive(Clone, Debug)]
enum Failure {
    Network { timeout: bool },
    Command { reply: Vec<u8> },
}

const OUTCOME_KEYS: &[&str] = &[
    "topologyType",
    "setName",
    "servers",
    "logicalSessionTimeoutMinutes",
    "maxSetVersion",
    "maxElectionId",
    "compatible",
    "events",
];

impl<'v> Script<'v> {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If there is anything in it that is not known, so that nothing is left unchecked.
    pub fn parse(file: &'v Value) -> Result<Self, String> {
        let file = Object::new(file, "file", &["description", "uri", "phases"])?;
        let phases = file.read("phases", |phases| json::list(phases, phase))?;
        if phases.is_empty() {
            return Err("there is no phase in the file".into());
        }
        Ok(Self {
            uri: file.read("uri", json::text)?.to_owned(),
            phases,
        })
    }
}

fn phase(value: &Value) -> Result<Phase<'_>, String> {
    let keys = ["description", "responses", "applicationErrors", "outcome"];
    let phase = Object::new(value, "phase", &keys)?;
    let responses = phase.read_optional("responses", |list| json::list(list, response))?;
    let errors = phase.read_optional("applicationErrors", |list| json::list(list, error))?;
    Ok(Phase {
        description: phase.read_optional("description", json::text)?,
        responses: responses.unwrap_or_default(),
        errors: errors.unwrap_or_default(),
        expectation: phase.read("outcome", expectation)?,
    })
}

fn expectation(value: &Value) -> Result<Expectation<'_>, String> {
    let outcome = Object::new(value, "outcome", OUTCOME_KEYS)?;
    if outcome.present("events").is_some() {
        let outcome = Object::new(value, "outcome", &["events"])?;
        let events = outcome.read("events", |events| json::list(events, ExpectedEvent::parse))?;
        return Ok(Expectation::Events(events));
    }
    Ok(Expectation::Outcome(outcome))
}

fn response(value: &Value) -> Result<Response, String> {
    let [name, reply] = value.as_array().map_or(&[][..], Vec::as_slice) else {
        return Err(format!("{value} is no pair of address and reply"));
    };
    let is_empty = reply.as_object().is_some_and(serde_json::Map::is_empty);
    Ok(Response {
        address: address(name)?,
        reply: if is_empty {
            None
        } else {
            Some(json::document(reply)?)
        },
    })
}

fn error(value: &Value) -> Result<ApplicationError, String> {
    let keys = [
        "address",
        "generation",
        "maxWireVersion",
        "when",
        "type",
        "response",
    ];
    let error = Object::new(value, "applicationError", &keys)?;
    let generation = error.read_optional("generation", json::natural)?;
    let response = error.read_optional("response", json::document)?;
    let failure = match (error.read("type", json::text)?, response) {
        ("network", None) => Failure::Network { timeout: false },
        ("timeout", None) => Failure::Network { timeout: true },
        ("command", Some(reply)) => Failure::Command { reply },
        (other, _) => {
            return Err(format!(
                "{other} is no type of error, or lacks its response"
            ));
        }
    };
    let progress = match error.read("when", json::text)? {
        "beforeHandshakeCompletes" => Progress::BeforeHello,
        "afterHandshakeCompletes" => Progress::AfterHandshake,
        other => return Err(format!("{other} is no progress of a connection")),
    };
    let max_wire_version = error.read("maxWireVersion", json::integer)?;
    Ok(ApplicationError {
        address: error.read("address", address)?,
        generation: generation.map(Generation::from_u64),
        max_wire_version: max_wire_version as i32,
        progress,
        failure,
    })
}

impl ApplicationError {
    /// What the pool reports, if its generation is `current`.
    ///
    /// A pool labels network errors that it meets while it opens a connection, which is what makes
    /// them errors of an overloaded server.
    pub fn report(&self, current: Generation) -> AppError<'_> {
        let cause = match &self.failure {
            Failure::Command { reply } => Cause::Reply(reply),
            Failure::Network { timeout } => Cause::Network {
                timeout: *timeout,
                labels: match self.progress {
                    Progress::BeforeHello => &[SYSTEM_OVERLOADED_ERROR, RETRYABLE_ERROR],
                    _ => &[],
                },
                message: "the script says so",
            },
        };
        AppError {
            generation: self.generation.unwrap_or(current),
            service_id: None,
            phase: self.progress,
            cause,
            max_wire_version: self.max_wire_version,
        }
    }
}
