//! Single-threaded server selection, until it succeeds or fails (Server Selection: "Single-threaded
//! server selection").

use core::time::Duration;

use super::{ScanEffect, ScanFailure, ScanMachine, State};
use crate::{
    ids::ServerId,
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

/// A selection in progress.
#[derive(Debug)]
pub(super) struct Selection {
    /// "maxTime": no further attempt is made after this time.
    pub(super) deadline: Instant,
    /// True if a scan has ended since the selection began, or since its probe failed.
    pub(super) scanned: bool,
    /// True if a connection was probed. Servers selected later are not probed again.
    probed: bool,
}

impl Selection {
    pub(super) fn new(now: Instant, timeout: Duration) -> Self {
        Self {
            deadline: now + timeout,
            scanned: false,
            probed: false,
        }
    }
}

impl ScanMachine {
    /// Requests a choice from the current description; rests if no selection is in progress.
    pub(super) fn attempt(&mut self, topology: &TopologyDescription) -> ScanEffect {
        if self.selection.is_none() {
            return self.rest();
        }
        if !topology.is_compatible() {
            self.stale = true;
            return self.fail(ScanFailure::Incompatible);
        }
        self.state = State::Choosing;
        ScanEffect::Choose
    }

    pub(super) fn not_found(&mut self, now: Instant, topology: &TopologyDescription) -> ScanEffect {
        let (State::Choosing, Some(selection)) = (&self.state, &self.selection) else {
            return self.due();
        };
        if topology.topology_type() == TopologyType::LoadBalanced {
            // The single server is always suitable, so the application's selector has dropped it,
            // and another scan would not change that.
            return self.fail(ScanFailure::TriedOnce);
        }
        self.stale = true;
        if self.config.try_once {
            if selection.scanned {
                return self.fail(ScanFailure::TriedOnce);
            }
        } else if now > selection.deadline {
            return self.fail(ScanFailure::Timeout);
        }
        self.advance(now, topology)
    }

    pub(super) fn found(&mut self, server: ServerId, idle: Option<Duration>) -> ScanEffect {
        let (State::Choosing, Some(selection)) = (&self.state, &mut self.selection) else {
            return self.due();
        };
        let unused = idle.is_some_and(|idle| idle >= self.config.socket_check_interval);
        if unused && !selection.probed {
            selection.probed = true;
            self.state = State::Probing {
                server,
                superseded: false,
            };
            return ScanEffect::Probe { server };
        }
        self.select(server)
    }

    /// Handles the end of a probe. A failure leads to exactly one more selection, whose server is
    /// not probed (Server Selection: "socketCheckIntervalMS").
    pub(super) fn probed(
        &mut self,
        now: Instant,
        topology: &TopologyDescription,
        alive: bool,
    ) -> ScanEffect {
        let State::Probing { server, superseded } = self.state else {
            return self.due();
        };
        self.state = State::Resting;
        if alive && !superseded && self.selection.is_some() {
            return self.select(server);
        }
        if let Some(selection) = &mut self.selection
            && !alive
        {
            selection.probed = true;
            selection.scanned = false;
            if !self.config.try_once && now > selection.deadline {
                // There is no time for a scan, but another server may be known.
                return self.attempt(topology);
            }
        }
        self.advance(now, topology)
    }

    pub(super) fn fail(&mut self, failure: ScanFailure) -> ScanEffect {
        self.selection = None;
        self.state = State::Resting;
        ScanEffect::Fail(failure)
    }

    fn select(&mut self, server: ServerId) -> ScanEffect {
        self.selection = None;
        self.state = State::Resting;
        ScanEffect::Select { server }
    }
}
