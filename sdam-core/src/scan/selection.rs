//! Runs a single-threaded server selection until it succeeds or fails (Server Selection:
//! "Single-threaded server selection").

use core::time::Duration;

use super::{Scans, State, Step, View};
use crate::{
    ids::ServerId,
    output::{Output, ScanFailure},
    time::Instant,
};

/// A selection in progress.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    /// "maxTime": no further attempt is made after this time.
    pub(super) deadline: Instant,
    /// True if a scan has ended since the selection began, or since its probe failed.
    pub(super) scanned: bool,
    /// True if a connection was already probed: a selection makes only one probe.
    probed: bool,
}

impl Selection {
    pub(super) fn new(now: Instant, timeout: Duration) -> Self {
        Self { deadline: now + timeout, scanned: false, probed: false }
    }

    /// Returns the state that determines future steps.
    #[cfg(feature = "model")]
    pub(super) fn key(&self, now: Instant) -> impl core::hash::Hash {
        let late = self.deadline < now;
        (self.deadline.since(now), late, self.scanned, self.probed)
    }
}

impl Scans {
    /// Asks the caller to choose a server from the current description, or finishes the request if
    /// no selection is in progress.
    pub(super) fn attempt(&mut self, view: View<'_>) -> Step {
        if self.selection.is_none() {
            return self.finish(Ok(None));
        }
        if !view.topology.is_compatible() {
            self.stale = true;
            return self.finish(Err(ScanFailure::Incompatible));
        }
        self.state = State::Choosing;
        Step::Output(Output::Choose)
    }

    /// Handles the caller's choice: `server` is the chosen server, if any is suitable, and `idle`
    /// is the time for which its connection, if there is one, has been idle.
    pub(crate) fn chosen(
        &mut self,
        view: View<'_>,
        server: Option<ServerId>,
        idle: Option<Duration>,
    ) -> Step {
        let (State::Choosing, Some(selection)) = (&self.state, &mut self.selection) else {
            return Step::Wait;
        };
        let Some(server) = server else {
            return self.not_found(view);
        };
        let unused = idle.is_some_and(|idle| idle >= self.setup.socket_check_interval);
        if unused && !selection.probed {
            selection.probed = true;
            self.state = State::Probing { server, superseded: false };
            return Step::Output(Output::Probe { server });
        }
        self.finish(Ok(Some(server)))
    }

    fn not_found(&mut self, view: View<'_>) -> Step {
        if view.is_load_balanced() {
            // The single server is always suitable, so the application's own selector must have
            // rejected it, and another scan would not change that.
            return self.finish(Err(ScanFailure::TriedOnce));
        }
        self.stale = true;
        let selection = self.selection.as_ref();
        if self.setup.try_once {
            if selection.is_some_and(|selection| selection.scanned) {
                return self.finish(Err(ScanFailure::TriedOnce));
            }
        } else if selection.is_some_and(|selection| view.now > selection.deadline) {
            return self.finish(Err(ScanFailure::Timeout));
        }
        self.advance(view)
    }

    /// Handles the end of a probe. If the probe failed, the topology already reflects the failure,
    /// and exactly one more selection attempt follows, which does not probe the server that it
    /// chooses (Server Selection: "socketCheckIntervalMS").
    pub(crate) fn probed(&mut self, view: View<'_>, alive: bool) -> Step {
        let State::Probing { server, superseded } = self.state else {
            return Step::Wait;
        };
        self.state = State::Resting;
        if alive && !superseded {
            return self.finish(Ok(Some(server)));
        }
        if let Some(selection) = &mut self.selection
            && !alive
        {
            selection.probed = true;
            selection.scanned = false;
            if !self.setup.try_once && view.now > selection.deadline {
                // There is no time left for a scan, but another known server may be suitable.
                return self.attempt(view);
            }
        }
        self.advance(view)
    }
}
