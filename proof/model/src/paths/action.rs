//! The events of tests: what a server answers, and errors on its pooled connections.

use std::time::Duration;

use bson::{Bson, Document};
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    hello::Hello,
    ids::Generation,
    machine::{Input, TopologyMachine},
    reply,
    report::ErrorReport,
    server::{Rtt, ServerType},
    time::Instant,
    topology::TopologyType,
};
use serde_json::{Value, json};

use super::outcome;
use crate::step::address;

/// A cell of the SDAM table "TopologyType".
pub(super) type Cell = (&'static str, &'static str);

/// Something that happens to one server.
#[derive(Clone, Debug)]
pub(super) struct Action {
    /// The number of the member to which it happens.
    pub(super) on: u8,
    pub(super) event: Event,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A check is answered with this document. If it is empty, the connection breaks.
    Checked(Document),
    /// An operation on a pooled connection fails.
    Failed(Failure),
}

/// An error on a pooled connection.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) cause: Cause,
    /// True if the connection was not established yet.
    pub(super) early: bool,
    /// True if the connection belongs to the previous pool generation.
    pub(super) late: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Cause {
    Network,
    Timeout,
    /// The server answered with this error.
    Command(Document),
}

impl Action {
    /// Performs the action, and returns the phase of a test that describes it. Returns `None` if
    /// the action is impossible, because there is no such server or pool generation.
    pub(super) fn take(&self, machine: &mut TopologyMachine) -> Option<String> {
        let server = machine.description().server(&address(self.on))?.id;
        let now = Instant::EPOCH;
        let (key, what) = match &self.event {
            Event::Checked(document) => {
                let outcome = hello(document);
                let rtt = outcome
                    .is_ok()
                    .then(|| Rtt { average: Duration::from_millis(1), ..Rtt::default() });
                drop(machine.handle(now, Input::Checked { server, outcome, rtt }));
                ("responses", json!([address(self.on).to_string(), plain(document)]))
            }
            Event::Failed(failure) => {
                let current = machine.generation(server, None)?;
                let earlier = current.as_u64().checked_sub(failure.late.into())?;
                let generation = Generation::from_u64(earlier);
                drop(machine.handle_error(now, server, &failure.report(generation)?));
                ("applicationErrors", failure.value(self.on, generation))
            }
        };
        let outcome = outcome::of(machine, u64::MAX);
        Some(json!({ key: [what], "outcome": outcome }).to_string())
    }

    /// Returns the cell of the SDAM table that decides the result of a check.
    pub(super) fn cell(&self, machine: &TopologyMachine) -> Option<Cell> {
        let Event::Checked(document) = &self.event else {
            return None;
        };
        let server = hello(document).map_or(ServerType::Unknown, |hello| hello.server_type);
        let topology: TopologyType = machine.description().topology_type();
        Some((topology.as_str(), server.as_str()))
    }
}

impl Failure {
    fn report(&self, generation: Generation) -> Option<ErrorReport> {
        let stage = if self.early { Stage::Hello } else { Stage::Operation };
        let error = match &self.cause {
            Cause::Network => Error::network(stage, "broken"),
            Cause::Timeout => Error::timeout(stage, "silent"),
            Cause::Command(reply) => reply::error(&reply.to_vec().ok()?, stage)?,
        };
        Some(ErrorReport::new(generation, error).with_max_wire_version(WIRE_VERSION))
    }

    fn value(&self, on: u8, generation: Generation) -> Value {
        let (kind, response) = match &self.cause {
            Cause::Network => ("network", None),
            Cause::Timeout => ("timeout", None),
            Cause::Command(reply) => ("command", Some(plain(reply))),
        };
        let mut value = json!({
            "address": address(on).to_string(),
            "generation": generation.as_u64(),
            "maxWireVersion": WIRE_VERSION,
            "when": if self.early { "beforeHandshakeCompletes" } else { "afterHandshakeCompletes" },
            "type": kind,
        });
        if let Some(response) = response {
            value["response"] = response;
        }
        value
    }
}

/// The wire version of pooled connections, that of MongoDB 7.0.
pub(super) const WIRE_VERSION: i32 = 21;

/// Returns what the client makes of a reply.
fn hello(document: &Document) -> Result<Hello, Error> {
    if document.is_empty() {
        return Err(Error::new(ErrorKind::Network, Stage::Hello, "broken"));
    }
    Hello::parse(&document.to_vec().unwrap_or_default())
}

fn plain(document: &Document) -> Value {
    Bson::Document(document.clone()).into_relaxed_extjson()
}
