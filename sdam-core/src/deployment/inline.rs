//! Inline mode: checks that begin only on request, for a client without background tasks.

use super::{
    Deployment, Outputs, ScanRequest,
    scan::{Scans, Step, View},
};
use crate::{error::Error, ids::ServerId, monitor::Check, time::Instant, topology::TopologyType};

/// The state of inline mode.
#[derive(Clone, Debug)]
pub(super) struct Inline {
    pub(super) scans: Scans,
    check: Progress,
}

/// The progress of the check that a scan has requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The check begins as soon as `minHeartbeatFrequencyMS` allows.
    Waiting,
    Running,
    /// A new request came after the check's deadline had passed. Nothing was read in the meantime,
    /// so the server may have answered in time.
    Suspended,
}

impl Inline {
    pub(super) fn new(scans: Scans) -> Self {
        Self { scans, check: Progress::Waiting }
    }

    /// Writes the state that determines future outputs.
    #[cfg(feature = "model")]
    pub(super) fn write_key(
        &self,
        now: Instant,
        topology: &crate::topology::TopologyDescription,
        hasher: &mut impl core::hash::Hasher,
    ) {
        self.scans.write_key(now, topology, hasher);
        hasher.write_u8(self.check as u8);
    }
}

impl Deployment {
    /// Returns whether the next selection begins with a scan (SDAM: "stale"). Always false outside
    /// inline mode and behind a load balancer.
    pub fn is_stale(&self, now: Instant) -> bool {
        let inline = self.inline.as_ref();
        self.description().topology_type() != TopologyType::LoadBalanced
            && inline.is_some_and(|own| own.scans.is_stale(now))
    }

    /// Returns the time at which the newest scan ended.
    pub fn last_scan(&self) -> Option<Instant> {
        self.inline.as_ref()?.scans.last_scan
    }

    /// Begins to handle `request`.
    pub(super) fn request(&mut self, now: Instant, request: ScanRequest, out: &mut Outputs) {
        self.step(now, out, |scans, view| scans.request(view, request));
        self.go_on(now, out);
        // A check whose deadline passed between two calls of the application was left unattended:
        // its server may have answered, so the check is repeated, not failed.
        let check = self.checking().and_then(|server| self.check(server));
        let is_late = check.is_some_and(|check| {
            check.is_running() && check.deadline().is_some_and(|deadline| deadline <= now)
        });
        if let Some(inline) = self.inline.as_mut().filter(|_| is_late) {
            inline.check = Progress::Suspended;
        }
    }

    /// Handles the deadline of a request.
    pub(super) fn request_due(&mut self, now: Instant, out: &mut Outputs) {
        match self.checking() {
            Some(server) if self.is_suspended() => self.abandon(now, server, out),
            Some(server) => self.server_due(now, server, false, out),
            None => self.step(now, out, Scans::awake),
        }
        self.go_on(now, out);
    }

    /// Handles the end of a probe. A failure makes the server Unknown, unless the server is a load
    /// balancer.
    pub(super) fn probed(
        &mut self,
        now: Instant,
        server: ServerId,
        outcome: Result<(), Error>,
        out: &mut Outputs,
    ) {
        let alive = outcome.is_ok();
        if let (Err(error), Some(own)) = (outcome, self.servers.get_mut(server)) {
            own.check.connection_lost();
            self.checked(now, server, Err(error), out);
        }
        self.step(now, out, |scans, view| scans.probed(view, alive));
    }

    /// Takes the next step of the current request, which `decide` chooses.
    pub(super) fn step(
        &mut self,
        now: Instant,
        out: &mut Outputs,
        decide: impl FnOnce(&mut Scans, View<'_>) -> Step,
    ) {
        let look_up_is_due = self.look_up_is_due(now);
        let Some(inline) = &mut self.inline else {
            return;
        };
        let view = View { now, topology: self.topology.description(), look_up_is_due };
        match decide(&mut inline.scans, view) {
            Step::Check(server) => self.begin(now, server, out),
            Step::LookUp => self.look_up(now, out),
            Step::Wait => {}
            Step::Output(output) => out.push(output),
        }
    }

    /// Continues the request if its check has ended, which may be due to an operation's error.
    pub(super) fn go_on(&mut self, now: Instant, out: &mut Outputs) {
        let Some(server) = self.checking() else {
            return;
        };
        let deadline = self.check(server).and_then(Check::deadline);
        if self.is_over(server) {
            let retry = deadline.is_some_and(|deadline| deadline <= now);
            self.step(now, out, |scans, view| scans.checked(view, retry));
        } else if self.check(server).is_some_and(Check::is_running)
            && let Some(inline) = &mut self.inline
        {
            inline.check = Progress::Running;
        }
    }

    /// Abandons a check that was left unattended, without an outcome, and begins another check.
    pub(super) fn abandon(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        self.with(server, |own| own.check.abandon(now, out));
        self.begin(now, server, out);
    }

    /// Returns the time at which the request continues even if no answer arrives, or `None` if
    /// there is no such time.
    pub(super) fn next_step(&self) -> Option<Instant> {
        match self.checking() {
            _ if self.is_closed() => None,
            Some(server) if self.is_over(server) => Some(Instant::EPOCH),
            Some(server) => self.check(server)?.deadline(),
            None => self.inline.as_ref()?.scans.sleeps_until(),
        }
    }

    pub(super) fn is_suspended(&self) -> bool {
        let inline = self.inline.as_ref();
        inline.is_some_and(|own| own.check == Progress::Suspended)
    }

    fn begin(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        if let Some(inline) = &mut self.inline {
            inline.check = Progress::Waiting;
        }
        self.with(server, |own| {
            own.check.request(now);
            own.check.proceed(now, out);
        });
        self.go_on(now, out);
    }

    /// Returns whether the check that a scan has requested is over.
    fn is_over(&self, server: ServerId) -> bool {
        let inline = self.inline.as_ref();
        let waits = inline.is_some_and(|own| own.check == Progress::Waiting);
        self.check(server)
            .is_none_or(|check| !(check.is_running() || waits && check.deadline().is_some()))
    }

    fn checking(&self) -> Option<ServerId> {
        self.inline.as_ref()?.scans.checking()
    }

    fn check(&self, server: ServerId) -> Option<&Check> {
        self.servers.get(server).map(|own| &own.check)
    }
}
