//! Records the events of a topology, and checks their order.

use std::collections::BTreeSet;

use sdam_core::{
    event::{EventKind, EventName},
    ids::{ObjectId, ServerId},
};
use sdam_events::channel::EventStream;

/// The recorded events of a topology.
pub(crate) struct EventLog {
    events: EventStream,
    /// The number of the last event.
    last_seq: u64,
    /// Servers with a heartbeat in progress.
    in_progress: BTreeSet<ServerId>,
}

impl EventLog {
    pub(crate) fn new(events: EventStream) -> Self {
        Self { events, last_seq: 0, in_progress: BTreeSet::new() }
    }

    /// Returns the events of `topology` since the last call, and checks their order.
    pub(crate) fn take(&mut self, topology: ObjectId) -> Result<Vec<EventKind>, String> {
        let mut events = Vec::new();
        while let Some(event) = self.events.try_next() {
            self.last_seq += 1;
            if event.seq != self.last_seq || event.topology != topology {
                return Err(format!("expected event number {}, got {event:?}", self.last_seq));
            }
            let paired = match &event.kind {
                EventKind::ServerHeartbeatStarted(heartbeat) => {
                    self.in_progress.insert(heartbeat.server)
                }
                EventKind::ServerHeartbeatSucceeded { heartbeat, .. }
                | EventKind::ServerHeartbeatFailed { heartbeat, .. } => {
                    self.in_progress.remove(&heartbeat.server)
                }
                _ => true,
            };
            if !paired {
                return Err(format!("a heartbeat starts or ends twice: {event:?}"));
            }
            events.push(event.kind);
        }
        Ok(events)
    }

    /// Fails unless the remaining events are those of a properly closed topology.
    pub(crate) fn end(mut self, topology: ObjectId) -> Result<(), String> {
        let events = self.take(topology)?;
        if !self.in_progress.is_empty() {
            return Err(format!("heartbeats of {:?} have no end", self.in_progress));
        }
        match events.last().map(EventKind::name) {
            Some(EventName::TopologyClosed) => Ok(()),
            last => Err(format!("the last event is {last:?}, expected TopologyClosed")),
        }
    }
}
