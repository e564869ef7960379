//! Discovery and monitoring tests, through the engine.

use std::sync::Arc;

use sdam_core::{options::Options, topology::TopologyDescription};
use sdam_events::channel;

use super::{Host, stage::Stage};
use crate::running::Topology;
use crate::{
    running::events::EventLog,
    sdam::{ApplicationError, Observation, Response, Subject},
};

/// A running topology with scripted servers.
pub(super) struct Engine<'h> {
    stage: Stage<'h>,
    topology: Topology,
    events: EventLog,
}

impl<'h> Engine<'h> {
    pub(super) fn start(host: &'h Host, options: Options) -> Result<Self, String> {
        let stage = Stage::new(host);
        let (sink, events) = channel::unbounded();
        let topology = stage.start(options, |builder| builder.sink(sink))?;
        Ok(Self {
            stage,
            topology,
            events: EventLog::new(events),
        })
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
        self.stage
            .answer(&response.address, response.reply.as_deref())
    }

    fn fail(&mut self, error: &ApplicationError) -> Result<(), String> {
        let description = self.description();
        let server = description.server(&error.address);
        let server = server.ok_or_else(|| format!("{} is not known", error.address))?;
        let generations = self.stage.pools.generations();
        let current = generations.get(&server.id);
        let current = current.ok_or_else(|| format!("{} has no pool", error.address))?;
        self.topology
            .handle_error(server.id, &error.report(*current));
        self.stage.settle();
        Ok(())
    }

    fn observe(&mut self) -> Result<Observation, String> {
        Ok(Observation {
            description: self.description(),
            generations: self.stage.pools.generations(),
            events: self.events.take(self.topology.id())?,
        })
    }

    fn end(self) -> Result<(), String> {
        self.stage.close(&self.topology)?;
        self.events.end(self.topology.id())
    }
}
