//! Scans that a client without background tasks runs inline (SDAM: "Single-threaded monitoring",
//! Server Selection: "Single-threaded server selection").

mod order;

use core::time::Duration;

use self::order::Scan;
use super::{Output, ScanFailure, ScanRequest, ScanSetup};
use crate::{
    error::{Error, StateChange},
    ids::ServerId,
    options::Options,
    rng::Rng,
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

/// The next action for a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Check the server.
    Check(ServerId),
    /// Look up the SRV record. A scan follows (H-13).
    LookUp,
    /// Wait for the check in progress, or for the next scan.
    Wait,
    Output(Output),
}

/// The topology state that scans depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'t> {
    pub(crate) now: Instant,
    pub(crate) topology: &'t TopologyDescription,
    /// True if the SRV record has to be looked up before the next scan.
    pub(crate) look_up_is_due: bool,
}

/// The scans of one topology, which run inline with its operations. Decides when scans are due, in
/// which order they check servers, and when a selection fails.
///
/// A request leads to checks, waits, look-ups, choices and probes until it is finished. Each method
/// returns the next [`Step`], and an unexpected answer is ignored.
///
/// A scan always ends: it checks each address at most twice, and at most `max_servers` addresses.
///
/// A caller may abandon a request and begin another one. The check or probe in progress is then
/// finished first, and the scan resumes where it stopped. The age of a resumed scan is measured
/// from its start rather than its end.
#[derive(Clone, Debug)]
pub(crate) struct Scans {
    pub(crate) setup: ScanSetup,
    /// `minHeartbeatFrequencyMS`: the minimum time between two scans, 500 ms outside tests.
    min_frequency: Duration,
    /// The maximum number of addresses in one scan.
    max_servers: usize,
    rng: Rng,
    /// True if the next selection needs a scan (SDAM: "stale").
    stale: bool,
    /// The time when the newest scan ended.
    pub(crate) last_scan: Option<Instant>,
    /// The server to check before all others.
    urgent: Option<ServerId>,
    state: ScanState,
    /// The selection in progress; `None` if the request is only a scan or a check.
    selection: Option<Selection>,
}

/// The state after the most recent step.
#[derive(Clone, Debug)]
enum ScanState {
    Resting,
    Sleeping {
        until: Instant,
    },
    Checking {
        scan: Scan,
        server: ServerId,
        known: bool,
    },
    LookingUp,
    Choosing,
    Probing {
        server: ServerId,
        /// True if a new request, which may need another server, has arrived in the meantime.
        superseded: bool,
    },
}

/// A selection in progress.
#[derive(Clone, Debug)]
struct Selection {
    /// "maxTime": no further attempt is made after this time.
    deadline: Instant,
    /// True if a scan has ended since the selection began, or since its probe failed.
    scanned: bool,
    /// True if a connection was already probed: a selection makes only one probe.
    probed: bool,
}

impl Scans {
    /// Creates the scans of a single-threaded client that has not scanned yet.
    pub(crate) fn new(options: &Options, rng: Rng) -> Self {
        Self {
            setup: ScanSetup {
                frequency: options.scan_frequency(),
                try_once: options.server_selection_try_once.unwrap_or(true),
                socket_check_interval: options.socket_check_interval,
                immediate_check: options.deviations.single_threaded_immediate_check,
            },
            min_frequency: options.deviations.min_heartbeat_frequency,
            max_servers: options.max_servers,
            rng,
            stale: false,
            last_scan: None,
            urgent: None,
            state: ScanState::Resting,
            selection: None,
        }
    }

    /// Begins a request.
    pub(crate) fn request(&mut self, view: View<'_>, request: ScanRequest) -> Step {
        self.selection = None;
        match request {
            ScanRequest::Select { timeout } => {
                self.selection = Some(Selection::new(view.now, timeout));
                self.begin(view)
            }
            ScanRequest::Scan => {
                self.stale = true;
                self.begin(view)
            }
            ScanRequest::Check { server } => {
                self.urgent = Some(server);
                self.begin_urgent(view)
            }
            ScanRequest::Settle => self.begin_urgent(view),
        }
    }

    /// Continues after a wait, even if the wait ended early.
    pub(crate) fn awake(&mut self, view: View<'_>) -> Step {
        match self.state {
            ScanState::Sleeping { .. } => self.advance(view),
            _ => Step::Wait,
        }
    }

    /// Continues after the look-up of the SRV record; the hosts found are already in the topology.
    pub(crate) fn looked_up(&mut self, view: View<'_>) -> Step {
        match self.state {
            ScanState::LookingUp => self.begin_scan(view),
            _ => Step::Wait,
        }
    }

    /// Continues after the check in progress, whose outcome is already in the topology. `retry` is
    /// true if the connection broke or timed out, so that a retry on a new connection may succeed.
    pub(crate) fn checked(&mut self, view: View<'_>, retry: bool) -> Step {
        match core::mem::replace(&mut self.state, ScanState::Resting) {
            ScanState::Checking { scan, server, known } => {
                // SDAM: "Network or command error during server check": only a known server is
                // retried, and only once.
                let own = view.topology.server_by_id(server);
                if retry && known && own.is_some_and(|server| scan.may_repeat(&server.address)) {
                    return self.check(view, scan, server);
                }
                self.go_on(view, scan)
            }
            other => {
                self.state = other;
                Step::Wait
            }
        }
    }

    /// Returns the server whose check is in progress.
    pub(crate) fn checking(&self) -> Option<ServerId> {
        match self.state {
            ScanState::Checking { server, .. } => Some(server),
            _ => None,
        }
    }

    /// Returns the time at which the wait for the next scan ends, if a request is waiting.
    pub(crate) fn sleeps_until(&self) -> Option<Instant> {
        match self.state {
            ScanState::Sleeping { until } => Some(until),
            _ => None,
        }
    }

    /// Returns whether a selection that begins at `now` scans first.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        self.stale || self.is_due(now)
    }

    /// Schedules a scan or a check after the topology has marked `server` Unknown because of an
    /// operation's error (SDAM: "not writable primary and node is recovering").
    pub(crate) fn server_lost(&mut self, topology: &TopologyDescription, server: ServerId) {
        let error = topology.server_by_id(server).and_then(|server| server.error.as_ref());
        match error.and_then(Error::state_change) {
            Some(StateChange::NotWritablePrimary) if self.setup.immediate_check => {
                self.urgent = Some(server);
            }
            Some(StateChange::NotWritablePrimary | StateChange::ShuttingDown) => self.stale = true,
            // A scan would be of little use: the server is alive, and other servers add no
            // information (I-39).
            Some(StateChange::NodeIsRecovering) | None => {}
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.last_scan.is_none_or(|last| last + self.setup.frequency < now)
    }

    /// Begins the new request, once the check or probe in progress, if any, has ended.
    fn begin(&mut self, view: View<'_>) -> Step {
        match &mut self.state {
            ScanState::Checking { scan, .. } => {
                scan.resumed = true;
                Step::Wait
            }
            ScanState::Probing { superseded, server } => {
                *superseded = true;
                Step::Output(Output::Probe { server: *server })
            }
            ScanState::Resting
            | ScanState::Sleeping { .. }
            | ScanState::LookingUp
            | ScanState::Choosing => self.advance(view),
        }
    }

    /// Begins the request like [`begin`](Self::begin), but checks only the urgent server.
    fn begin_urgent(&mut self, view: View<'_>) -> Step {
        match &mut self.state {
            ScanState::Checking { .. } | ScanState::Probing { .. } => self.begin(view),
            ScanState::Resting
            | ScanState::Sleeping { .. }
            | ScanState::LookingUp
            | ScanState::Choosing => {
                self.check_urgent(view).unwrap_or_else(|| self.finish(Ok(None)))
            }
        }
    }

    /// Decides the next step when no check or probe is in progress (Server Selection:
    /// "Single-threaded server selection implementation").
    fn advance(&mut self, view: View<'_>) -> Step {
        if let Some(step) = self.check_urgent(view) {
            return step;
        }
        let stale = self.stale || self.selection.is_some() && self.is_due(view.now);
        // There is no discovery behind a load balancer (H-14).
        if !stale || view.is_load_balanced() {
            return self.attempt(view);
        }
        let earliest = self.last_scan.map(|last| last + self.min_frequency);
        if let Some(earliest) = earliest {
            if let Some(selection) = &self.selection
                && !self.setup.try_once
                && earliest > selection.deadline
            {
                return self.finish(Err(ScanFailure::Timeout));
            }
            if view.now < earliest {
                self.state = ScanState::Sleeping { until: earliest };
                return Step::Wait;
            }
        }
        if view.look_up_is_due {
            self.state = ScanState::LookingUp;
            return Step::LookUp;
        }
        self.begin_scan(view)
    }

    fn begin_scan(&mut self, view: View<'_>) -> Step {
        // If the topology becomes stale again after this point, another scan follows.
        self.stale = false;
        self.go_on(view, Scan::new(view.now))
    }

    /// Checks the urgent server, if the topology still has it.
    fn check_urgent(&mut self, view: View<'_>) -> Option<Step> {
        let server = self.urgent.take()?;
        view.topology.server_by_id(server)?;
        if view.is_load_balanced() {
            return None;
        }
        Some(self.check(view, Scan::single(view.now), server))
    }

    /// Makes the next check of the scan, or ends the scan.
    fn go_on(&mut self, view: View<'_>, scan: Scan) -> Step {
        let next = scan.next(view.topology, self.max_servers, &mut self.rng);
        if let Some(server) = next {
            return self.check(view, scan, server);
        }
        if scan.single {
            self.state = ScanState::Resting;
            return match self.selection {
                Some(_) => self.advance(view),
                None => self.finish(Ok(None)),
            };
        }
        self.last_scan = Some(scan.ended(view.now));
        if scan.resumed {
            // Most results of this scan date from the abandoned call, so the scan does not count as
            // the one that the current call needs.
            return self.advance(view);
        }
        if let Some(selection) = &mut self.selection {
            selection.scanned = true;
        }
        self.check_urgent(view).unwrap_or_else(|| self.attempt(view))
    }

    fn check(&mut self, view: View<'_>, mut scan: Scan, server: ServerId) -> Step {
        let description = view.topology.server_by_id(server);
        let known = description.is_some_and(|server| server.server_type.is_available());
        if let Some(description) = description {
            scan.count(&description.address);
        }
        self.state = ScanState::Checking { scan, server, known };
        Step::Check(server)
    }

    /// Ends the request.
    fn finish(&mut self, outcome: Result<Option<ServerId>, ScanFailure>) -> Step {
        self.selection = None;
        self.state = ScanState::Resting;
        Step::Output(Output::Finish(outcome))
    }
}

impl Scans {
    /// Asks the caller to choose a server from the current description, or finishes the request if
    /// no selection is in progress.
    fn attempt(&mut self, view: View<'_>) -> Step {
        if self.selection.is_none() {
            return self.finish(Ok(None));
        }
        if !view.topology.is_compatible() {
            self.stale = true;
            return self.finish(Err(ScanFailure::Incompatible));
        }
        self.state = ScanState::Choosing;
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
        let (ScanState::Choosing, Some(selection)) = (&self.state, &mut self.selection) else {
            return Step::Wait;
        };
        let Some(server) = server else {
            return self.not_found(view);
        };
        let unused = idle.is_some_and(|idle| idle >= self.setup.socket_check_interval);
        if unused && !selection.probed {
            selection.probed = true;
            self.state = ScanState::Probing { server, superseded: false };
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
        let ScanState::Probing { server, superseded } = self.state else {
            return Step::Wait;
        };
        self.state = ScanState::Resting;
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

impl View<'_> {
    fn is_load_balanced(&self) -> bool {
        self.topology.topology_type() == TopologyType::LoadBalanced
    }
}

impl Selection {
    fn new(now: Instant, timeout: Duration) -> Self {
        Self { deadline: now + timeout, scanned: false, probed: false }
    }

    /// Returns the state that determines future steps.
    #[cfg(feature = "model")]
    fn key(&self, now: Instant) -> impl core::hash::Hash {
        let late = self.deadline < now;
        (self.deadline.since(now), late, self.scanned, self.probed)
    }
}

/// Computes keys that identify the state of scans, for state-space searches.
#[cfg(feature = "model")]
mod key {
    use core::{
        hash::{Hash, Hasher},
        time::Duration,
    };

    use super::{ScanState, Scans};
    use crate::{ids::ServerId, options::COOLDOWN, time::Instant, topology::TopologyDescription};

    impl Scans {
        /// Writes all state that determines the behavior of the scans from `now` on, except for the
        /// random order of servers of equal rank. All ages at which a scan is no longer valid are
        /// treated as equal.
        pub(crate) fn write_key(
            &self,
            now: Instant,
            topology: &TopologyDescription,
            hasher: &mut impl Hasher,
        ) {
            let valid = self.setup.frequency.max(COOLDOWN) + Duration::from_secs(1);
            let age = |instant: Instant| now.since(instant).min(valid);
            let address = |server: ServerId| {
                let server = topology.server_by_id(server);
                server.map(|server| server.address.clone())
            };
            for server in topology.servers() {
                server.last_update_time.map(age).hash(hasher);
            }
            self.stale.hash(hasher);
            self.last_scan.map(age).hash(hasher);
            self.urgent.and_then(address).hash(hasher);
            let selection = self.selection.as_ref();
            selection.map(|own| own.key(now)).hash(hasher);
            match &self.state {
                ScanState::Resting => 1_u8.hash(hasher),
                ScanState::Sleeping { until } => (2_u8, until.since(now)).hash(hasher),
                ScanState::Checking { scan, server, known } => {
                    (3_u8, scan.key(age), address(*server), known).hash(hasher);
                }
                ScanState::LookingUp => 4_u8.hash(hasher),
                ScanState::Choosing => 5_u8.hash(hasher),
                ScanState::Probing { server, superseded } => {
                    (6_u8, address(*server), superseded).hash(hasher);
                }
            }
        }
    }
}
