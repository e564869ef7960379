//! The state machine of a complete deployment, without tasks or a clock. All connections open
//! immediately, and all requests are answered immediately.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sdam_core::{
    deployment::{ConnId, Deployment, Input, Output, Outputs, Role, Timer},
    error::{Error, ErrorKind, Stage},
    event::{EventKind, EventName},
    hello::{Handshake, HelloReply},
    ids::{Generation, ServerId},
    monitor::MonitorConfig,
    options::Options,
    report::ErrorReport,
    rng::Rng,
    server::ServerDescription,
    time::Instant,
    topology::TopologyDescription,
};
use serde_json::Value;

use super::Subject;

/// Runs `file` against a [`Deployment`].
pub fn check(file: &Value) -> Result<(), String> {
    super::check(file, |options| Ok(Driven::start(&options)))
}

/// A deployment, and the state that its outputs produce.
struct Driven {
    deployment: Deployment,
    now: Instant,
    /// The connections on which checks wait for answers.
    asked: BTreeMap<ServerId, (ConnId, Asked)>,
    /// The pool generations, derived from the calls to the pools.
    generations: BTreeMap<ServerId, Generation>,
    events: Vec<EventKind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Connection,
    Reply,
}

impl Driven {
    fn start(options: &Options) -> Self {
        let config = MonitorConfig::new(options, Arc::new(Handshake::new([])), false);
        let mut driven = Self {
            deployment: Deployment::new(options.clone(), Arc::new(config), Rng::new(1)),
            now: Instant::EPOCH,
            asked: BTreeMap::new(),
            generations: BTreeMap::new(),
            events: Vec::new(),
        };
        driven.handle(Input::Open);
        driven
    }

    fn handle(&mut self, input: Input) {
        let outputs = self.deployment.handle(self.now, input);
        self.perform(outputs);
    }

    fn perform(&mut self, outputs: Outputs) {
        for output in outputs {
            match output {
                Output::Connect { conn, .. } => self.ask(conn, Asked::Connection),
                Output::Send { conn, .. } | Output::Read { conn, .. } => {
                    self.ask(conn, Asked::Reply);
                }
                Output::Disconnect { conn } if conn.role == Role::Check => {
                    self.asked.remove(&conn.server);
                }
                Output::OpenServer { server, .. } => {
                    self.generations.insert(server, Generation::FIRST);
                }
                Output::PoolClear { server, clear } => {
                    self.generations.insert(server, clear.generation);
                }
                Output::CloseServer { server } => {
                    self.generations.remove(&server);
                }
                Output::Emit(event) if !is_heartbeat(&event) => self.events.push(event),
                Output::Emit(_)
                | Output::Disconnect { .. }
                | Output::Wake { .. }
                | Output::PoolReady { .. }
                | Output::Publish(_)
                | Output::LookUp { .. }
                | Output::Choose
                | Output::Probe { .. }
                | Output::Finish(_) => {}
            }
        }
        // Time passes after each input, so that no two inputs happen at the same time.
        self.now = self.now + Duration::from_millis(1);
    }

    fn ask(&mut self, conn: ConnId, asked: Asked) {
        if conn.role == Role::Check {
            self.asked.insert(conn.server, (conn, asked));
        }
    }

    /// Returns the connection on which a check of the server waits for the reply.
    fn connection(&mut self, server: ServerId) -> Option<ConnId> {
        if !self.asked.contains_key(&server) {
            // The files do not specify the time between checks, so let enough time pass for the
            // next check to be due.
            self.now = self.now + Duration::from_secs(1);
            self.handle(Input::Due { timer: Timer::Server(server), wanted: true });
        }
        let (conn, asked) = *self.asked.get(&server)?;
        if asked == Asked::Connection {
            self.handle(Input::Connected { conn });
        }
        let (conn, asked) = *self.asked.get(&server)?;
        (asked == Asked::Reply).then_some(conn)
    }
}

impl Subject for Driven {
    fn description(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.deployment.description())
    }

    fn generations(&self) -> Result<BTreeMap<ServerId, Generation>, String> {
        for (server, commanded) in &self.generations {
            let counted = self.deployment.generation(*server, None);
            if counted != Some(*commanded) {
                return Err(format!(
                    "the machine has generation {counted:?} of {server:?}, but its outputs set \
                     {commanded:?}"
                ));
            }
        }
        Ok(self.generations.clone())
    }

    fn events(&mut self) -> Result<Vec<EventKind>, String> {
        Ok(std::mem::take(&mut self.events))
    }

    fn respond(&mut self, server: &ServerDescription, reply: Option<&[u8]>) -> Result<(), String> {
        let conn = self.connection(server.id);
        let conn = conn.ok_or_else(|| format!("{} is not checked", server.address))?;
        self.asked.remove(&server.id);
        let at = self.now;
        let message = "network error of the test file";
        let error = || Error::new(ErrorKind::Network, Stage::Hello, message);
        self.handle(match reply.map(HelloReply::parse) {
            Some(reply) => Input::Reply { conn, sent: at, at, reply, more_to_come: false },
            None => Input::Failed { conn, at, error: error() },
        });
        Ok(())
    }

    fn greet_late(&mut self, server: ServerId, reply: &[u8]) -> Result<(), String> {
        let reply = HelloReply::parse(reply);
        self.handle(Input::Handshake { server, generation: Generation::FIRST, reply });
        Ok(())
    }

    fn fail(&mut self, server: ServerId, report: &ErrorReport) {
        let (_, outputs) = self.deployment.handle_error(self.now, server, report);
        self.perform(outputs);
    }

    fn end(mut self) -> Result<(), String> {
        self.handle(Input::Close);
        match (self.generations.len(), self.asked.len()) {
            (0, 0) => Ok(()),
            (pools, checks) => Err(format!(
                "{pools} pools and {checks} checks are left after the deployment was closed"
            )),
        }
    }
}

fn is_heartbeat(event: &EventKind) -> bool {
    matches!(
        event.name(),
        EventName::ServerHeartbeatStarted
            | EventName::ServerHeartbeatSucceeded
            | EventName::ServerHeartbeatFailed
    )
}
