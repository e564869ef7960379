//! The state machines alone, without tasks, connections or clock.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::EventKind,
    hello::Hello,
    ids::{Generation, ServerId},
    machine::{Effect, Effects, Input, TopologyMachine},
    options::Options,
    report::ErrorReport,
    server::{Rtt, ServerDescription},
    time::Instant,
    topology::TopologyDescription,
};
use serde_json::Value;

use super::{Subject, deployment};

/// Runs `file` against a [`TopologyMachine`], and against a
/// [`Deployment`](sdam_core::deployment::Deployment).
pub fn check(file: &Value) -> Result<(), String> {
    super::check(file, |options| Ok(PureMachine::start(&options)))?;
    deployment::check(file).map_err(|difference| format!("as a deployment: {difference}"))
}

/// A state machine, and the state that its effects produce.
struct PureMachine {
    machine: TopologyMachine,
    now: Instant,
    /// The pool generations, derived from the calls to the pools.
    generations: BTreeMap<ServerId, Generation>,
    events: Vec<EventKind>,
}

impl PureMachine {
    fn start(options: &Options) -> Self {
        let mut subject = Self {
            machine: TopologyMachine::new(options),
            now: Instant::EPOCH,
            generations: BTreeMap::new(),
            events: Vec::new(),
        };
        let effects = subject.machine.handle(subject.now, Input::Open);
        subject.perform(effects);
        subject
    }

    fn perform(&mut self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::OpenServer { server, .. } => {
                    self.generations.insert(server, Generation::FIRST);
                }
                Effect::PoolClear { server, clear } => {
                    self.generations.insert(server, clear.generation);
                }
                Effect::CloseServer { server } => {
                    self.generations.remove(&server);
                }
                Effect::Emit(event) => self.events.push(event),
                Effect::PoolReady { .. }
                | Effect::Publish(_)
                | Effect::ResetRtt { .. }
                | Effect::CancelCheck { .. }
                | Effect::RequestCheck { .. } => {}
            }
        }
        // Each input happens at a different time.
        self.now = self.now + Duration::from_millis(1);
    }
}

impl Subject for PureMachine {
    fn description(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.machine.description())
    }

    fn generations(&self) -> Result<BTreeMap<ServerId, Generation>, String> {
        for (server, commanded) in &self.generations {
            let counted = self.machine.generation(*server, None);
            if counted != Some(*commanded) {
                return Err(format!(
                    "the machine has generation {counted:?} of {server:?}, but its effects set \
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
        let outcome = reply.map_or_else(|| Err(broken()), Hello::parse);
        let rtt = Some(Rtt { average: Duration::from_millis(1), ..Rtt::default() });
        let input = Input::Checked { server: server.id, outcome, rtt };
        let effects = self.machine.handle(self.now, input);
        self.perform(effects);
        Ok(())
    }

    fn fail(&mut self, server: ServerId, report: &ErrorReport) {
        let (_, effects) = self.machine.handle_error(self.now, server, report);
        self.perform(effects);
    }

    fn end(mut self) -> Result<(), String> {
        let effects = self.machine.handle(self.now, Input::Close);
        self.perform(effects);
        match self.generations.len() {
            0 => Ok(()),
            number => Err(format!("{number} pools are left after the topology was closed")),
        }
    }
}

/// Returns the error for a connection that the test file breaks.
pub(super) fn broken() -> Error {
    Error::new(ErrorKind::Network, Stage::Hello, "network error of the test file")
}
