//! Inline scans of a client without background tasks (SDAM: "Single-threaded monitoring", Server
//! Selection: "Single-threaded server selection").

mod order;
mod selection;
#[cfg(test)]
mod tests;

use core::time::Duration;

use crate::{
    error::{Error, StateChange},
    ids::ServerId,
    options::Options,
    rng::Rng,
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

use self::{order::Scan, selection::Selection};

/// The configuration of a topology's scans.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScanConfig {
    /// `heartbeatFrequencyMS`: the time for which the outcome of a scan is valid.
    pub frequency: Duration,
    /// `minHeartbeatFrequencyMS`: the minimum time between two scans, 500 ms outside tests.
    pub min_frequency: Duration,
    /// `serverSelectionTryOnce`: true if a selection scans at most once.
    pub try_once: bool,
    /// `socketCheckIntervalMS`: the idle time after which a connection is probed before it is used.
    pub socket_check_interval: Duration,
    /// True to check a server at once after its "not writable primary" error.
    pub immediate_check: bool,
    /// The maximum number of addresses in one scan.
    pub max_servers: usize,
}

impl ScanConfig {
    /// Creates the configuration of a single-threaded client from `options`.
    pub fn new(options: &Options) -> Self {
        Self {
            frequency: options.scan_frequency(),
            min_frequency: options.min_heartbeat_frequency,
            try_once: options.server_selection_try_once.unwrap_or(true),
            socket_check_interval: options.socket_check_interval,
            immediate_check: options.single_threaded_immediate_check,
            max_servers: options.max_servers,
        }
    }
}

/// An input of [`ScanMachine::handle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanInput {
    /// An operation needs a server.
    Select {
        /// `serverSelectionTimeoutMS`; has no effect with `serverSelectionTryOnce`.
        timeout: Duration,
    },
    /// All servers must be checked, whether or not a scan is due.
    Scan,
    /// Only this server must be checked (SDAM: "Checking a single server").
    Check {
        /// The server's id.
        server: ServerId,
    },
    /// Only the checks requested by errors must run now.
    Settle,
    /// The requested check has ended, and its outcome is in the topology.
    Checked {
        /// True if the connection broke or timed out, so that a retry on a new connection may
        /// succeed.
        retry: bool,
    },
    /// The instant of [`ScanEffect::SleepUntil`] has been reached.
    Awake,
    /// The look-up of the SRV record has ended: its hosts are in the topology, and the next look-up
    /// is [scheduled](ScanMachine::schedule_rescan).
    LookedUp,
    /// No server is suitable.
    NotFound,
    /// A suitable server was chosen.
    Found {
        /// The server's id.
        server: ServerId,
        /// The idle time of its connection; `None` if there is none.
        idle: Option<Duration>,
    },
    /// The probe of a connection has ended; a failure is already in the topology.
    Probed {
        /// True if the server has answered.
        alive: bool,
    },
}

/// The next effect for the driver to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEffect {
    /// Do nothing: the request is complete.
    Rest,
    /// Check the server, report the outcome to the topology, and answer with
    /// [`ScanInput::Checked`].
    Check {
        /// The server's id.
        server: ServerId,
    },
    /// Wait, and answer with [`ScanInput::Awake`].
    SleepUntil(Instant),
    /// Look up the SRV record, and answer with [`ScanInput::LookedUp`]. A scan follows (H-13).
    LookUp,
    /// Select a suitable server from the current description; answer with [`ScanInput::Found`] or
    /// [`ScanInput::NotFound`].
    Choose,
    /// Send `ping` on the server's connection. If it breaks or times out, close it and mark the
    /// server Unknown. Answer with [`ScanInput::Probed`].
    Probe {
        /// The server's id.
        server: ServerId,
    },
    /// Selection succeeds with this server.
    Select {
        /// The server's id.
        server: ServerId,
    },
    /// Selection fails.
    Fail(ScanFailure),
}

/// The reason why server selection fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanFailure {
    /// A server and the client have no wire version in common.
    Incompatible,
    /// `serverSelectionTimeoutMS` has passed, or would pass before servers may be checked again.
    Timeout,
    /// One scan found no suitable server, and `serverSelectionTryOnce` allows only one.
    TriedOnce,
}

/// The scans of one topology, inline with its operations. Decides when scans are due, in which
/// order servers are checked, and when a selection fails.
///
/// A [`Deployment`](crate::deployment::Deployment) with inline checks runs each check and handles
/// its outcome.
///
/// A scan always ends: it checks each address at most twice, and at most as many addresses as a
/// topology may have servers.
///
/// # Contract
///
/// The driver executes the effect, answers with the corresponding input, and executes the next
/// effect, until [`ScanEffect::Rest`], [`ScanEffect::Select`] or [`ScanEffect::Fail`]. It always
/// passes the topology's current description. A driver may stop in the middle and start again with
/// any request. The machine then first requires the end of the check or probe in progress, and the
/// scan resumes where it stopped. The age of a resumed scan counts from its beginning. An answer
/// without a request is ignored: the outstanding effect is returned again.
#[derive(Debug)]
pub struct ScanMachine {
    config: ScanConfig,
    rng: Rng,
    /// A scan is needed before the next selection (SDAM: "stale").
    stale: bool,
    /// The time when the newest scan ended.
    last_scan: Option<Instant>,
    /// The server to check before all others.
    urgent: Option<ServerId>,
    /// The time at which the SRV record must be looked up; `None` if there is none.
    next_rescan: Option<Instant>,
    state: State,
    /// The selection in progress; `None` for a scan or a check without one.
    selection: Option<Selection>,
}

/// The outstanding effect.
#[derive(Debug)]
enum State {
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
        /// True if a new request arrived meanwhile, which may need another server.
        superseded: bool,
    },
}

impl ScanMachine {
    /// Creates the scan machine of a topology that has not been scanned yet.
    pub fn new(config: ScanConfig, rng: Rng) -> Self {
        Self {
            config,
            rng,
            stale: false,
            last_scan: None,
            urgent: None,
            next_rescan: None,
            state: State::Resting,
            selection: None,
        }
    }

    /// Handles an input that occurred at `now`, with the current description `topology`, and
    /// returns the next effect.
    #[must_use = "the effect has to be carried out"]
    pub fn handle(
        &mut self,
        now: Instant,
        topology: &TopologyDescription,
        input: ScanInput,
    ) -> ScanEffect {
        match input {
            ScanInput::Select { timeout } => {
                self.selection = Some(Selection::new(now, timeout));
                self.begin(now, topology)
            }
            ScanInput::Scan => {
                self.stale = true;
                self.selection = None;
                self.begin(now, topology)
            }
            ScanInput::Check { server } => {
                self.urgent = Some(server);
                self.selection = None;
                self.begin_urgent(now, topology)
            }
            ScanInput::Settle => {
                self.selection = None;
                self.begin_urgent(now, topology)
            }
            ScanInput::Checked { retry } => self.checked(now, topology, retry),
            ScanInput::Awake => match self.state {
                State::Sleeping { until } if until <= now => self.advance(now, topology),
                _ => self.due(),
            },
            ScanInput::LookedUp => match self.state {
                State::LookingUp => self.begin_scan(now, topology),
                _ => self.due(),
            },
            ScanInput::NotFound => self.not_found(now, topology),
            ScanInput::Found { server, idle } => self.found(server, idle),
            ScanInput::Probed { alive } => self.probed(now, topology, alive),
        }
    }

    /// Returns whether a selection that begins at `now` scans first.
    pub fn is_stale(&self, now: Instant) -> bool {
        self.stale || self.is_due(now)
    }

    /// Returns the time at which the last scan ended; `None` if there was none.
    pub fn last_scan(&self) -> Option<Instant> {
        self.last_scan
    }

    /// Returns the time from which selections scan first; `None` if they always do.
    pub fn next_scan(&self) -> Option<Instant> {
        let last = self.last_scan.filter(|_| !self.stale)?;
        Some(last + self.config.frequency)
    }

    /// Schedules a look-up of the SRV record before the first scan after `instant` (Polling SRV
    /// Records for mongos Discovery: "Single-Threaded Drivers").
    pub fn schedule_rescan(&mut self, instant: Instant) {
        self.next_rescan = Some(instant);
    }

    /// Schedules a scan or a check after the topology has marked `server` Unknown because of an
    /// operation's error (SDAM: "not writable primary and node is recovering").
    pub fn server_lost(&mut self, topology: &TopologyDescription, server: ServerId) {
        let error = topology
            .server_by_id(server)
            .and_then(|server| server.error.as_ref());
        match error.and_then(Error::state_change) {
            Some(StateChange::NotWritablePrimary) if self.config.immediate_check => {
                self.urgent = Some(server);
            }
            Some(StateChange::NotWritablePrimary | StateChange::ShuttingDown) => self.stale = true,
            // A scan would hardly help: the server is alive, and other servers add no information
            // (I-39).
            Some(StateChange::NodeIsRecovering) | None => {}
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.last_scan
            .is_none_or(|last| last + self.config.frequency < now)
    }

    /// Begins the new request after the end of the check or probe in progress.
    fn begin(&mut self, now: Instant, topology: &TopologyDescription) -> ScanEffect {
        match &mut self.state {
            State::Checking { scan, .. } => {
                scan.resume();
                self.due()
            }
            State::Probing { superseded, .. } => {
                *superseded = true;
                self.due()
            }
            State::Resting | State::Sleeping { .. } | State::LookingUp | State::Choosing => {
                self.advance(now, topology)
            }
        }
    }

    /// Like [`begin`](Self::begin), but only for the urgent server.
    fn begin_urgent(&mut self, now: Instant, topology: &TopologyDescription) -> ScanEffect {
        match &mut self.state {
            State::Checking { .. } | State::Probing { .. } => self.begin(now, topology),
            State::Resting | State::Sleeping { .. } | State::LookingUp | State::Choosing => self
                .check_urgent(now, topology)
                .unwrap_or_else(|| self.rest()),
        }
    }

    /// Decides the next effect when no check or probe is in progress (Server Selection:
    /// "Single-threaded server selection implementation").
    fn advance(&mut self, now: Instant, topology: &TopologyDescription) -> ScanEffect {
        if let Some(effect) = self.check_urgent(now, topology) {
            return effect;
        }
        let stale = self.stale || self.selection.is_some() && self.is_due(now);
        // H-14: there is no discovery behind a load balancer.
        if !stale || topology.topology_type() == TopologyType::LoadBalanced {
            return self.attempt(topology);
        }
        let earliest = self.last_scan.map(|last| last + self.config.min_frequency);
        if let Some(earliest) = earliest {
            if let Some(selection) = &self.selection
                && !self.config.try_once
                && earliest > selection.deadline
            {
                return self.fail(ScanFailure::Timeout);
            }
            if now < earliest {
                self.state = State::Sleeping { until: earliest };
                return ScanEffect::SleepUntil(earliest);
            }
        }
        if self.next_rescan.is_some_and(|instant| instant <= now)
            && topology.topology_type().polls_srv()
        {
            self.state = State::LookingUp;
            return ScanEffect::LookUp;
        }
        self.begin_scan(now, topology)
    }

    fn begin_scan(&mut self, now: Instant, topology: &TopologyDescription) -> ScanEffect {
        // If the topology becomes stale after this, another scan follows.
        self.stale = false;
        self.go_on(now, topology, Scan::new(now))
    }

    /// Requests the check of the urgent server, if the topology still has it.
    fn check_urgent(&mut self, now: Instant, topology: &TopologyDescription) -> Option<ScanEffect> {
        let server = self.urgent.take()?;
        topology.server_by_id(server)?;
        if topology.topology_type() == TopologyType::LoadBalanced {
            return None;
        }
        Some(self.ask(topology, Scan::single(now), server))
    }

    /// Requests the next check of the scan, or ends the scan.
    fn go_on(&mut self, now: Instant, topology: &TopologyDescription, scan: Scan) -> ScanEffect {
        let next = scan.next(topology, self.config.max_servers, &mut self.rng);
        if let Some(server) = next {
            return self.ask(topology, scan, server);
        }
        if scan.is_single() {
            self.state = State::Resting;
            return match self.selection {
                Some(_) => self.advance(now, topology),
                None => self.rest(),
            };
        }
        self.last_scan = Some(scan.ended(now));
        if scan.is_resumed() {
            // Most of its results are as old as the abandoned call, so it does not count as this
            // call's scan.
            return self.advance(now, topology);
        }
        if let Some(selection) = &mut self.selection {
            selection.scanned = true;
        }
        self.check_urgent(now, topology)
            .unwrap_or_else(|| self.attempt(topology))
    }

    fn ask(
        &mut self,
        topology: &TopologyDescription,
        mut scan: Scan,
        server: ServerId,
    ) -> ScanEffect {
        let description = topology.server_by_id(server);
        let known = description.is_some_and(|server| server.server_type.is_available());
        if let Some(description) = description {
            scan.count(&description.address);
        }
        self.state = State::Checking {
            scan,
            server,
            known,
        };
        ScanEffect::Check { server }
    }

    fn checked(&mut self, now: Instant, topology: &TopologyDescription, retry: bool) -> ScanEffect {
        match core::mem::replace(&mut self.state, State::Resting) {
            State::Checking {
                scan,
                server,
                known,
            } => {
                // SDAM: "Network or command error during server check": only a known server is
                // retried, and only once.
                let again = retry
                    && known
                    && topology
                        .server_by_id(server)
                        .is_some_and(|server| scan.may_repeat(&server.address));
                if again {
                    return self.ask(topology, scan, server);
                }
                self.go_on(now, topology, scan)
            }
            other => {
                self.state = other;
                self.due()
            }
        }
    }

    fn rest(&mut self) -> ScanEffect {
        self.state = State::Resting;
        ScanEffect::Rest
    }

    /// Returns the outstanding effect.
    fn due(&self) -> ScanEffect {
        match self.state {
            State::Resting => ScanEffect::Rest,
            State::Sleeping { until } => ScanEffect::SleepUntil(until),
            State::Checking { server, .. } => ScanEffect::Check { server },
            State::LookingUp => ScanEffect::LookUp,
            State::Choosing => ScanEffect::Choose,
            State::Probing { server, .. } => ScanEffect::Probe { server },
        }
    }
}
