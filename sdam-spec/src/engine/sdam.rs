//! Discovery and monitoring, through the engine.

use std::{collections::BTreeSet, sync::Arc};

use sdam::topology::Topology;
use sdam_core::{
    event::{EventKind, EventName},
    ids::ServerId,
    options::Options,
    topology::TopologyDescription,
};
use sdam_events::channel::{self, EventStream};

use super::{Host, stage::Stage, transport::ScriptedTransport};
use crate::sdam::{ApplicationError, Observation, Response, Subject};

/// A running topology whose servers read from a script.
pub(super) struct Engine<'h> {
    stage: Stage<'h>,
    topology: Topology,
    events: EventStream,
    /// The number of the last event.
    seen: u64,
    /// Servers whose heartbeat has started and not ended.
    beating: BTreeSet<ServerId>,
}

impl<'h> Engine<'h> {
    pub(super) fn start(host: &'h Host, options: Options) -> Result<Self, String> {
        let stage = Stage::new(host, ScriptedTransport::default());
        let (sink, events) = channel::unbounded();
        let topology = stage.start(options, |builder| builder.sink(sink))?;
        Ok(Self {
            stage,
            topology,
            events,
            seen: 0,
            beating: BTreeSet::new(),
        })
    }

    fn description(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.topology.snapshot().description())
    }

    /// The events since the last call, after a look at their order.
    fn take_events(&mut self) -> Result<Vec<EventKind>, String> {
        let mut events = Vec::new();
        while let Some(event) = self.events.try_next() {
            self.seen += 1;
            if event.seq != self.seen || event.topology != self.topology.id() {
                return Err(format!("the event has not number {}: {event:?}", self.seen));
            }
            let paired = match &event.kind {
                EventKind::ServerHeartbeatStarted(heartbeat) => {
                    self.beating.insert(heartbeat.server)
                }
                EventKind::ServerHeartbeatSucceeded { heartbeat, .. }
                | EventKind::ServerHeartbeatFailed { heartbeat, .. } => {
                    self.beating.remove(&heartbeat.server)
                }
                _ => true,
            };
            if !paired {
                return Err(format!("the heartbeat starts or ends twice: {event:?}"));
            }
            events.push(event.kind);
        }
        Ok(events)
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
            .handle_error(server.id, error.report(*current));
        self.stage.settle();
        Ok(())
    }

    fn observe(&mut self) -> Result<Observation, String> {
        Ok(Observation {
            description: self.description(),
            generations: self.stage.pools.generations(),
            events: self.take_events()?,
        })
    }

    fn end(mut self) -> Result<(), String> {
        self.stage.close(&self.topology)?;
        let events = self.take_events()?;
        if !self.beating.is_empty() {
            return Err(format!("heartbeats of {:?} never end", self.beating));
        }
        match events.last().map(EventKind::name) {
            Some(EventName::TopologyClosed) => Ok(()),
            last => Err(format!("the last event is {last:?}")),
        }
    }
}
