//! Discovery and monitoring tests, through the engine.

use std::sync::Arc;

use sdam_core::{options::Options, topology::TopologyDescription};
use sdam_events::channel;

use super::harness::Harness;
use crate::host::Host;
use crate::running::Topology;
use crate::{
    running::events::EventLog,
    sdam::{ApplicationError, Observation, Response, Subject},
};

/// A running topology with scripted servers.
pub(super) struct Engine<'h> {
    harness: Harness<'h>,
    topology: Topology,
    events: EventLog,
}

impl<'h> Engine<'h> {
    pub(super) fn start(host: &'h Host, options: Options) -> Result<Self, String> {
        let harness = Harness::new(host);
        let (sink, events) = channel::unbounded();
        let topology = harness.start(options, |builder| builder.sink(sink))?;
        Ok(Self { harness, topology, events: EventLog::new(events) })
    }

    fn description(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.topology.snapshot().description())
    }
}

impl Subject for Engine<'_> {
    fn respond(&mut self, response: &Response) -> Result<(), String> {
        if self.description().server(&response.address).is_none() {
            return Ok(());
        }
        self.harness.answer(&response.address, response.reply.as_deref())
    }

    fn fail(&mut self, error: &ApplicationError) -> Result<(), String> {
        let description = self.description();
        let server = description.server(&error.address);
        let server = server.ok_or_else(|| format!("{} is not in the topology", error.address))?;
        let generations = self.harness.pools.generations();
        let current = generations.get(&server.id);
        let current = current.ok_or_else(|| format!("{} has no pool", error.address))?;
        if let Some(report) = error.report(*current) {
            self.topology.handle_error(server.id, &report);
        }
        self.harness.settle();
        Ok(())
    }

    fn observe(&mut self) -> Result<Observation, String> {
        Ok(Observation {
            description: self.description(),
            generations: self.harness.pools.generations(),
            events: self.events.take(self.topology.id())?,
        })
    }

    fn end(self) -> Result<(), String> {
        self.harness.close(&self.topology)?;
        self.events.end(self.topology.id())
    }
}
