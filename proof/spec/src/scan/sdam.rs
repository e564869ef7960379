//! Discovery and monitoring tests, in single-threaded mode.

use std::time::Duration;

use sdam_core::options::Options;
use sdam_events::channel;
use sdam_testkit::fixed_reply;
use serde_json::Value;

use super::harness::{Harness, ready};
use crate::running::ScanTopology;
use crate::{
    running::events::EventLog,
    sdam::{ApplicationError, Observation, Response, Subject},
};

/// The delay of replies.
const DELAY: Duration = Duration::from_millis(1);

pub(super) fn check(file: &Value) -> Result<(), String> {
    crate::sdam::check(file, Scanned::start)
}

/// A topology whose servers are checked one by one, as the script requires.
struct Scanned {
    harness: Harness,
    topology: ScanTopology,
    events: EventLog,
}

impl Scanned {
    fn start(options: Options) -> Result<Self, String> {
        let harness = Harness::new();
        let (sink, events) = channel::unbounded();
        Ok(Self {
            topology: harness.start(options, |builder| builder.sink(sink))?,
            events: EventLog::new(events),
            harness,
        })
    }
}

impl Subject for Scanned {
    fn respond(&mut self, response: &Response) -> Result<(), String> {
        let address = &response.address;
        let description = self.topology.description();
        let Some(server) = description.server(address) else {
            return Ok(());
        };
        let (id, was_known) = (server.id, server.server_type.is_available());
        // SDAM: "Network or command error during server check": if the connection breaks, a known
        // server is immediately checked once more, and breaks that connection as well.
        let times = if response.reply.is_none() && was_known { 2 } else { 1 };
        let reply = fixed_reply(response.reply.clone());
        self.harness.serve(address, DELAY, reply);
        ready(self.topology.check(id))?;
        match self.harness.servers.remove(address).len() {
            asked if asked == times => Ok(()),
            asked => Err(format!("expected {times} checks of {address}, got {asked}")),
        }
    }

    fn fail(&mut self, error: &ApplicationError) -> Result<(), String> {
        let description = self.topology.description();
        let server = description.server(&error.address);
        let server = server.ok_or_else(|| format!("{} is not in the topology", error.address))?;
        let id = server.id;
        let generations = self.harness.pools.generations();
        let current = generations.get(&id);
        let current = current.ok_or_else(|| format!("{} has no pool", error.address))?;
        if let Some(report) = error.report(*current) {
            self.topology.handle_error(id, &report);
        }
        Ok(())
    }

    fn observe(&mut self) -> Result<Observation, String> {
        Ok(Observation {
            description: self.topology.description(),
            generations: self.harness.pools.generations(),
            events: self.events.take(self.topology.id())?,
        })
    }

    fn end(mut self) -> Result<(), String> {
        self.harness.close(&mut self.topology)?;
        self.events.end(self.topology.id())
    }
}
