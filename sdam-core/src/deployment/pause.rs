//! Starts and pauses of monitoring.

use core::time::Duration;

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

    /// Returns a random delay for what no operation waits for, shorter than `Options::spread`.
    pub(super) fn random_delay(&mut self) -> Duration {
        let spread = self.config.spread.as_nanos().try_into().unwrap_or(u64::MAX);
        if spread == 0 || self.inline.is_some() {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.rng.below(spread))
    }

    /// Spreads the first checks of the seeds.
    pub(super) fn spread(&mut self, now: Instant) {
        for index in 0..self.servers.len() {
            let delay = self.random_delay();
            if let Some(server) = self.servers.get_mut(index).filter(|_| !delay.is_zero()) {
                server.check.postpone(now + delay);
            }
        }
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
            // No timer is due any more.
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
