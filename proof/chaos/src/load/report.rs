//! The errors and handshakes that applications report, and the effects that these reports must
//! have.

use std::sync::Arc;

use bson::{doc, oid};
use sdam_core::{
    document::SharedDocument,
    error::{Error, ErrorOutcome, Stage},
    event::EventKind,
    ids::{Generation, ObjectId, ServerId, TopologyVersion},
    reply,
    report::ErrorReport,
    rng::Rng,
    server::ServerDescription,
    topology::{TopologyDescription, TopologyType},
};
use sdam_sim::oracle::Oracle;

use super::Application;
use crate::{
    plan::pick,
    record::{RunRecord, lock},
};

/// The codes of state change errors.
const STATE_CHANGES: [i32; 4] = [10107, 13435, 91, 11600];

/// A randomly drawn error that an application reports.
pub(crate) struct DrawnError {
    pub(crate) error: Error,
    /// The expected outcome if the server is monitored, or `None` if the outcome cannot be
    /// predicted.
    expected: Option<ErrorOutcome>,
    balanced: bool,
}

impl DrawnError {
    /// Returns the outcome that the report should have, or `None` if the outcome cannot be
    /// predicted.
    pub(crate) fn expected(&self, service_id: Option<ObjectId>) -> Option<ErrorOutcome> {
        let expected = self.expected?;
        // After the hello, the client knows which service it is connected to. The load balancer
        // itself never becomes Unknown.
        let of_service = service_id.is_some() && !self.error.stage().is_before_hello_completes();
        Some(match expected {
            expected if !self.balanced => expected,
            ErrorOutcome::Cleared if of_service => ErrorOutcome::ServiceCleared,
            _ => ErrorOutcome::Irrelevant,
        })
    }

    /// Counts this error as reported, and checks the outcome of the report.
    pub(crate) fn reported(
        &self,
        record: &RunRecord,
        server: &ServerDescription,
        outcome: ErrorOutcome,
        expected: Option<ErrorOutcome>,
    ) {
        lock(&record.counts).errors += 1;
        record.ensure(expected.is_none_or(|expected| expected == outcome), Oracle::Errors, || {
            let error = &self.error;
            format!("{error:?} on {server} resulted in {outcome:?}, expected {expected:?}")
        });
    }

    /// Returns the report of this error on a connection to `server`.
    pub(crate) fn on(
        &self,
        server: &ServerDescription,
        generation: Generation,
        service_id: Option<ObjectId>,
    ) -> ErrorReport {
        ErrorReport::new(generation, self.error.clone())
            .with_service(service_id)
            .with_max_wire_version(server.wire_versions.max.max(8))
    }
}

impl Application {
    /// Reports a handshake or an error on a connection to the server.
    pub(super) fn report_on(&mut self, server: ServerId) {
        if self.topology.options().load_balanced {
            let snapshot = self.topology.snapshot();
            if let Some(balancer) = snapshot.description().server_by_id(server) {
                self.use_balancer(balancer);
            }
        } else if self.rng.below(4) == 0 {
            self.report_handshake(server);
        } else {
            self.report_error(server);
        }
    }

    /// Reports a successful handshake, sometimes on a connection of an earlier generation.
    fn report_handshake(&mut self, server: ServerId) {
        let Some(pool) = self.record.pool(server) else {
            return;
        };
        let replies: Vec<SharedDocument> = {
            let events = lock(&self.record.events);
            let of_server = events.iter().rev().filter_map(|event| match &event.kind {
                EventKind::ServerHeartbeatSucceeded { heartbeat, reply, .. }
                    if heartbeat.server == server =>
                {
                    Some(reply.clone())
                }
                _ => None,
            });
            of_server.take(3).collect()
        };
        let Some(reply) = replies.get(self.rng.below(3) as usize) else {
            return;
        };
        let generation = possibly_stale(&mut self.rng, pool.generation);
        lock(&self.record.counts).handshakes += 1;
        self.record.note(format!("handshake with server {server}, generation {generation}"));
        let before = self.topology.snapshot().version();
        if let Err(error) = self.topology.reporter(server).handle_handshake(generation, &**reply) {
            self.record.violated(Oracle::Errors, error.to_string());
        }
        let current = pool.generation;
        let counts = generation >= current || self.topology.snapshot().version() == before;
        self.record.ensure(counts, Oracle::Errors, || {
            format!("a handshake of generation {generation} of {current} changed the topology")
        });
    }

    fn report_error(&mut self, server: ServerId) {
        let Some(pool) = self.record.pool(server) else {
            return;
        };
        let description = Arc::clone(self.topology.snapshot().description());
        let before = self.topology.snapshot().version();
        let Some(known) = description.server_by_id(server) else {
            return;
        };
        let drawn = draw(&mut self.rng, &description, known);
        let current = pool.generation;
        let generation = possibly_stale(&mut self.rng, current);
        let error = drawn.on(known, generation, None);
        let outcome = self.topology.reporter(server).handle_error(&error);
        self.record.note(format!(
            "{} on {}, generation {generation} of {current}: {outcome:?}",
            drawn.error, known.address
        ));
        let expected =
            if generation < current { Some(ErrorOutcome::Stale) } else { drawn.expected(None) };
        drawn.reported(&self.record, known, outcome, expected);
        self.check_effect(server, outcome, before, current);
    }

    /// Checks the effects that a reported error must have had when `handle_error` returned.
    fn check_effect(
        &self,
        server: ServerId,
        outcome: ErrorOutcome,
        version: u64,
        generation: Generation,
    ) {
        let (description, after) = {
            let snapshot = self.topology.snapshot();
            (Arc::clone(snapshot.description()), snapshot.version())
        };
        let available = description
            .server_by_id(server)
            .is_some_and(|server| server.server_type.is_available());
        let cleared = self.record.pool(server).is_none_or(|pool| pool.generation > generation);
        let complaint = match outcome {
            ErrorOutcome::Stale | ErrorOutcome::Irrelevant if after != version => {
                "the topology changed"
            }
            ErrorOutcome::MarkedUnknown | ErrorOutcome::Cleared if available => {
                "the server is still available"
            }
            ErrorOutcome::Cleared if !cleared => "the pool was not cleared",
            ErrorOutcome::MarkedUnknown if cleared => "the pool was cleared",
            _ => return,
        };
        let message = format!("{outcome:?} of server {server}: {complaint}");
        self.record.violated(Oracle::Errors, message);
    }
}

/// Returns the current generation, or sometimes an earlier one.
pub(crate) fn possibly_stale(rng: &mut Rng, generation: Generation) -> Generation {
    let age = pick(rng, &[0, 0, 0, 1, 2]);
    Generation::from_u64(generation.as_u64().saturating_sub(age))
}

pub(crate) fn draw(
    rng: &mut Rng,
    topology: &TopologyDescription,
    server: &ServerDescription,
) -> DrawnError {
    let balanced = topology.topology_type() == TopologyType::LoadBalanced;
    let stage =
        pick(rng, &[Stage::Operation, Stage::Operation, Stage::Auth, Stage::Hello, Stage::Dns]);
    let established = stage == Stage::Operation;
    let (error, expected) = match rng.below(6) {
        0..3 => {
            let (timeout, message) = (rng.below(2) == 0, "the connection broke");
            let expected = if stage == Stage::Hello || established && timeout {
                ErrorOutcome::Irrelevant
            } else {
                ErrorOutcome::Cleared
            };
            let error = if timeout {
                Error::timeout(stage, message)
            } else {
                Error::network(stage, message)
            };
            (error, Some(expected))
        }
        3 | 4 => {
            let (reply, expected) = state_change(rng, server);
            let malformed = || Error::protocol(stage, "the reply has no error");
            let error = reply::error(&reply, stage).unwrap_or_else(malformed);
            (error, expected.filter(|_| established))
        }
        _ => {
            let expected =
                if established { ErrorOutcome::Irrelevant } else { ErrorOutcome::Cleared };
            let error = Error::auth("authentication failed").at(stage);
            (error, Some(expected))
        }
    };
    DrawnError { error, expected, balanced }
}

/// Creates a state change error for the server, sometimes a stale one.
fn state_change(rng: &mut Rng, server: &ServerDescription) -> (Vec<u8>, Option<ErrorOutcome>) {
    let code = pick(rng, &STATE_CHANGES);
    let mut reply = doc! { "ok": 0, "code": code, "errmsg": "state changed" };
    let shuts_down = matches!(code, 91 | 11600);
    let fresh = if shuts_down { ErrorOutcome::Cleared } else { ErrorOutcome::MarkedUnknown };
    let mut expected = fresh;
    if let Some(TopologyVersion { process_id, counter }) = server.topology_version {
        // An error whose topology version is already known is stale. The version in the error must
        // not be newer than the server's own, or the reply to the next check would be treated as
        // stale.
        let age = rng.below(3) as i64;
        if age > 0 {
            expected = ErrorOutcome::Stale;
            reply.insert(
                "topologyVersion",
                doc! {
                    "processId": oid::ObjectId::from_bytes(process_id.bytes()),
                    "counter": counter - (age - 1),
                },
            );
        }
    }
    let bytes = reply.to_vec().unwrap_or_default();
    (bytes, Some(expected))
}
