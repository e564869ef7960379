//! Runs discovery and monitoring tests in single-threaded mode.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sdam_core::{
    event::EventKind,
    ids::{Generation, ServerId},
    options::Options,
    report::ErrorReport,
    server::ServerDescription,
    topology::TopologyDescription,
};
use sdam_events::channel;
use sdam_testkit::fixed_reply;
use serde_json::Value;

use super::harness::{Harness, ready};
use crate::running::ScanTopology;
use crate::{running::events::EventLog, sdam::Subject};

/// The delay before each reply.
const DELAY: Duration = Duration::from_millis(1);

/// Checks one file from `server-discovery-and-monitoring/tests`. Each reply in a phase answers one
/// check; if it breaks the connection to a known server, it answers a second check, too. Also
/// verifies the number of checks, that events are numbered without gaps, that every heartbeat ends,
/// and that no connection is left after the topology was closed.
pub fn check(file: &Value) -> Result<(), String> {
    crate::sdam::check(file, Scanned::start)
}

/// A topology whose servers are checked one by one, when the script requires it.
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
    fn description(&self) -> Arc<TopologyDescription> {
        self.topology.description()
    }

    fn generations(&self) -> Result<BTreeMap<ServerId, Generation>, String> {
        Ok(self.harness.pools.generations())
    }

    fn events(&mut self) -> Result<Vec<EventKind>, String> {
        self.events.take(self.topology.id())
    }

    fn respond(&mut self, server: &ServerDescription, reply: Option<&[u8]>) -> Result<(), String> {
        let address = &server.address;
        // If the connection to a known server breaks, the server is immediately checked once more
        // (SDAM: "Network or command error during server check"). The new connection breaks, too.
        let times = if reply.is_none() && server.server_type.is_available() { 2 } else { 1 };
        self.harness.serve(address, DELAY, fixed_reply(reply.map(<[u8]>::to_vec)));
        ready(self.topology.check(server.id))?;
        match self.harness.servers.remove(address).len() {
            asked if asked == times => Ok(()),
            asked => Err(format!("expected {times} checks of {address}, got {asked}")),
        }
    }

    /// Does nothing: in this mode, a connection to a server that has left is closed.
    fn greet_late(&mut self, _: ServerId, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn fail(&mut self, server: ServerId, report: &ErrorReport) {
        self.topology.handle_error(server, report);
    }

    fn end(mut self) -> Result<(), String> {
        self.harness.close(&mut self.topology)?;
        self.events.end(self.topology.id())
    }
}
