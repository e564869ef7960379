//! Recordings of versions 2 to 4, which contain only the inputs of the topology.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sdam_core::{
    address::ServerAddress,
    deployment::{Input, Output, RecordedInput},
    document::SharedDocument,
    error::Error,
    event::{ConnectionId, EventKind, EventName, Heartbeat},
    hello::{Hello, HelloReply},
    ids::{Generation, ObjectId, ServerId},
    machine::{self, Effect, Effects, TopologyMachine},
    options::Options,
    report::ErrorReport,
    server::Rtt,
    time::{Instant, UnixTime},
    topology::TopologyDescription,
};
use serde::Deserialize;

use super::read::{misfit, parse};

/// The first version that contains the inputs of a deployment.
const END: u32 = 5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "serde rejects keys without a field")]
struct InputLine {
    seq: u64,
    at: Instant,
    time: Option<UnixTime>,
    topology: ObjectId,
    input: Recorded,
}

/// An input of the topology.
#[derive(Clone, Deserialize)]
#[serde(rename_all_fields = "camelCase", deny_unknown_fields)]
pub(super) enum Recorded {
    Open,
    Checked {
        server: ServerId,
        error: Option<Error>,
        rtt: Option<Rtt>,
    },
    Handshake {
        server: ServerId,
        generation: Generation,
        reply: Box<HelloReply>,
        rtt: Option<Rtt>,
    },
    ServiceConnectionClosed {
        server: ServerId,
        #[serde(rename = "serviceId")]
        service: ObjectId,
        generation: Generation,
    },
    #[serde(rename = "AppError")]
    Error {
        server: ServerId,
        #[serde(rename = "error")]
        report: ErrorReport,
    },
    Hosts(Box<[ServerAddress]>),
    MonitorDied {
        server: ServerId,
    },
    Close,
}

/// A line with a heartbeat event. Which of the last three keys it has depends on the event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "serde rejects keys without a field")]
struct HeartbeatLine {
    seq: u64,
    at: Instant,
    time: Option<UnixTime>,
    topology: ObjectId,
    event: EventName,
    server: ServerId,
    address: ServerAddress,
    driver_connection_id: u64,
    server_connection_id: Option<i64>,
    awaited: bool,
    duration: Option<u64>,
    reply: Option<String>,
    error: Option<Error>,
}

/// Returns whether recordings of the given version contain only the inputs of the topology.
pub(super) fn is_of(version: u32) -> bool {
    version < END
}

/// Reads a line with an input.
pub(super) fn input(text: &str) -> Result<Recorded, Box<str>> {
    Ok(parse::<InputLine>(text)?.input)
}

/// Reads a line with a heartbeat.
pub(super) fn heartbeat(text: &str) -> Result<EventKind, Box<str>> {
    parse::<HeartbeatLine>(text)?.event()
}

impl HeartbeatLine {
    fn event(self) -> Result<EventKind, Box<str>> {
        let connection =
            ConnectionId { driver: self.driver_connection_id, server: self.server_connection_id };
        let heartbeat = Heartbeat::new(self.server, self.address, connection, self.awaited);
        let duration = self.duration.map(Duration::from_nanos);
        Ok(match (self.event, duration, self.reply, self.error) {
            (EventName::ServerHeartbeatStarted, None, None, None) => {
                EventKind::ServerHeartbeatStarted(heartbeat)
            }
            (EventName::ServerHeartbeatSucceeded, Some(duration), Some(reply), None) => {
                let reply = STANDARD.decode(reply);
                EventKind::ServerHeartbeatSucceeded {
                    heartbeat,
                    duration,
                    reply: reply.map_err(|error| format!("`reply` is not base64: {error}"))?.into(),
                }
            }
            (EventName::ServerHeartbeatFailed, Some(duration), None, Some(error)) => {
                EventKind::ServerHeartbeatFailed { heartbeat, duration, failure: error }
            }
            (name, ..) => {
                let keys = match name {
                    EventName::ServerHeartbeatSucceeded => "`duration` and `reply`",
                    EventName::ServerHeartbeatFailed => "`duration` and `error`",
                    _ => "none",
                };
                return Err(misfit(name, "`duration`, `reply` and `error`", keys));
            }
        })
    }
}

/// A topology whose checks are not replayed.
pub(super) struct Unmonitored {
    machine: TopologyMachine,
    /// The latest successful reply from each server.
    replies: BTreeMap<ServerId, SharedDocument>,
}

impl Unmonitored {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            // The topology's id is irrelevant, because events do not contain it.
            machine: TopologyMachine::new(options),
            replies: BTreeMap::new(),
        }
    }

    pub(super) fn description(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.machine.description())
    }

    /// Stores the reply to which the input of a check may refer.
    pub(super) fn note(&mut self, heartbeat: &EventKind) {
        if let EventKind::ServerHeartbeatSucceeded { heartbeat, reply, .. } = heartbeat {
            self.replies.insert(heartbeat.server, reply.clone());
        }
    }

    /// Applies an input. Returns the outputs that a deployment would return.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        input: Recorded,
    ) -> Result<Vec<Output>, Box<str>> {
        let mut handle =
            |shown, input| (Some(recorded(now, shown)), self.machine.handle(now, input));
        let (shown, effects) = match input {
            Recorded::Open => handle(Input::Open, machine::Input::Open),
            Recorded::Close => handle(Input::Close, machine::Input::Close),
            Recorded::Checked { server, error, rtt } => self.checked(now, (server, rtt), error)?,
            Recorded::Handshake { server, generation, reply, rtt } => {
                let hello = reply.hello.clone().map_err(|error| error.to_string())?;
                let input = machine::Input::Handshake { server, generation, hello, rtt };
                handle(Input::Handshake { server, generation, reply: *reply }, input)
            }
            Recorded::ServiceConnectionClosed { server, service, generation } => {
                let input = machine::Input::ServiceConnectionClosed { server, service, generation };
                handle(Input::ServiceConnectionClosed { server, service, generation }, input)
            }
            Recorded::Error { server, report } => {
                let (_, effects) = self.machine.handle_error(now, server, &report);
                (Some(recorded(now, Input::Error { server, report })), effects)
            }
            Recorded::Hosts(hosts) => {
                handle(Input::Hosts(hosts.clone()), machine::Input::Hosts(&hosts))
            }
            Recorded::MonitorDied { server } => {
                handle(Input::Deserted { server }, machine::Input::MonitorDied { server })
            }
        };
        let outputs = effects.into_iter().filter_map(output);
        Ok(shown.map(Output::Emit).into_iter().chain(outputs).collect())
    }

    fn checked(
        &mut self,
        now: Instant,
        (server, rtt): (ServerId, Option<Rtt>),
        error: Option<Error>,
    ) -> Result<(Option<EventKind>, Effects), Box<str>> {
        let outcome = match error {
            Some(error) => Err(error),
            None => Ok(self.hello_of(server)?),
        };
        let input = machine::Input::Checked { server, outcome, rtt };
        let measured = self.measured(server, rtt);
        Ok((measured, self.machine.handle(now, input)))
    }

    fn measured(&self, server: ServerId, rtt: Option<Rtt>) -> Option<EventKind> {
        let description = self.machine.description().server_by_id(server)?;
        Some(EventKind::RttMeasured { server, address: description.address.clone(), rtt: rtt? })
    }

    fn hello_of(&self, server: ServerId) -> Result<Hello, Box<str>> {
        let reply = self
            .replies
            .get(&server)
            .ok_or_else(|| format!("no heartbeat of server {server} came before its check"))?;
        Ok(Hello::parse(reply).map_err(|error| error.to_string())?)
    }
}

/// Returns the event that later versions record for an input.
fn recorded(now: Instant, input: Input) -> EventKind {
    EventKind::Input(Arc::new(RecordedInput { now, input, setup: None }))
}

fn output(effect: Effect) -> Option<Output> {
    Some(match effect {
        Effect::OpenServer { server, address, monitored } => {
            Output::OpenServer { server, address, monitored }
        }
        Effect::CloseServer { server } => Output::CloseServer { server },
        Effect::PoolReady { server } => Output::PoolReady { server },
        Effect::PoolClear { server, clear } => Output::PoolClear { server, clear },
        Effect::Emit(event) => Output::Emit(event),
        Effect::Publish(_)
        | Effect::ResetRtt { .. }
        | Effect::CancelCheck { .. }
        | Effect::RequestCheck { .. } => return None,
    })
}
