//! Pausing and resuming monitoring.

use super::Deployment;
use crate::{
    machine,
    output::{Output, Outputs},
    time::Instant,
    topology::TopologyType,
};

impl Deployment {
    /// Returns whether monitoring is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Ends all heartbeats and closes all connections.
    pub(super) fn pause(&mut self, now: Instant, out: &mut Outputs) {
        let is_checked = self.description().topology_type() != TopologyType::LoadBalanced;
        if self.inline.is_some() || self.paused || !self.is_open() || !is_checked {
            return;
        }
        self.paused = true;
        for server in &mut self.servers {
            server.clear_suspicion(now, false, out);
            server.stop(now, out);
            // The server no longer has a deadline.
            out.push(Output::Wake { server: server.id });
        }
        self.apply(now, machine::Input::Pause, out);
    }

    /// Begins to check all servers again.
    pub(super) fn resume(&mut self, now: Instant, out: &mut Outputs) {
        if !self.paused || !self.is_open() {
            return;
        }
        self.paused = false;
        self.apply(now, machine::Input::Resume, out);
        for server in &mut self.servers {
            server.check.restart();
            out.push(Output::Wake { server: server.id });
        }
    }
}
