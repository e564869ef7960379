//! Runs discovery and monitoring tests through the engine.

use std::{collections::BTreeMap, sync::Arc};

use sdam_core::{
    event::EventKind,
    ids::{Generation, ServerId},
    options::Options,
    report::ErrorReport,
    server::ServerDescription,
    topology::TopologyDescription,
};
use sdam_events::channel;

use super::harness::Harness;
use crate::host::Host;
use crate::running::Topology;
use crate::{running::events::EventLog, sdam::Subject};

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
}

impl Subject for Engine<'_> {
    fn description(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.topology.snapshot().description())
    }

    fn generations(&self) -> Result<BTreeMap<ServerId, Generation>, String> {
        Ok(self.harness.pools.generations())
    }

    fn events(&mut self) -> Result<Vec<EventKind>, String> {
        self.events.take(self.topology.id())
    }

    fn respond(&mut self, server: &ServerDescription, reply: Option<&[u8]>) -> Result<(), String> {
        self.harness.answer(&server.address, reply)
    }

    fn greet_late(&mut self, server: ServerId, reply: &[u8]) -> Result<(), String> {
        let accepted = self.topology.reporter(server).handle_handshake(Generation::FIRST, reply);
        self.harness.settle();
        accepted.map(drop).map_err(|error| error.to_string())
    }

    fn fail(&mut self, server: ServerId, report: &ErrorReport) {
        self.topology.reporter(server).handle_error(report);
        self.harness.settle();
    }

    fn end(self) -> Result<(), String> {
        self.harness.close(&self.topology)?;
        self.events.end(self.topology.id())
    }
}
