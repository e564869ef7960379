//! When a client without background work checks which server (SDAM: "Single-threaded monitoring",
//! Server Selection: "Single-threaded server selection").

mod order;
mod selection;
#[cfg(test)]
mod tests;

use core::time::Duration;

use crate::{
    error::{ServerError, StateChange},
    ids::ServerId,
    options::{MIN_HEARTBEAT_FREQUENCY, Options},
    rng::Rng,
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

use self::{order::Scan, selection::Selection};

/// What the scans of a topology go by.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScanConfig {
    /// `heartbeatFrequencyMS`: how long the outcome of a scan is relied upon; at least 500 ms.
    pub frequency: Duration,
    /// `serverSelectionTryOnce`: whether a selection scans once at most.
    pub try_once: bool,
    /// `socketCheckIntervalMS`: the idle time after which a connection is probed before it is used.
    pub socket_check_interval: Duration,
    /// Whether a server is checked at once that says that it is not writable primary.
    pub immediate_check: bool,
    /// How many addresses one scan visits at most.
    pub max_servers: usize,
}

impl ScanConfig {
    /// What `options` mean for a single-threaded client.
    pub fn new(options: &Options) -> Self {
        Self {
            frequency: options.scan_frequency(),
            try_once: options.server_selection_try_once.unwrap_or(true),
            socket_check_interval: options.socket_check_interval,
            immediate_check: options.single_threaded_immediate_check,
            max_servers: options.max_servers,
        }
    }
}

/// What a scan machine is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanInput {
    /// An operation needs a server.
    Select {
        /// `serverSelectionTimeoutMS`; has no effect with `serverSelectionTryOnce`.
        timeout: Duration,
    },
    /// All servers are to be checked, whether that is due or not.
    Scan,
    /// This server is to be checked on its own (SDAM: "Checking a single server").
    Check {
        /// The incarnation.
        server: ServerId,
    },
    /// The checks that errors have asked for are to be made now, and no others.
    Settle,
    /// The check that was asked for has ended, and the topology knows its outcome.
    Checked {
        /// Whether the connection broke or was silent, so that a new one may lead to an answer.
        retry: bool,
    },
    /// The instant that was to be waited for has come.
    Awake,
    /// No server is suitable.
    NotFound,
    /// A server is suitable and was chosen.
    Found {
        /// The incarnation.
        server: ServerId,
        /// How long its connection has not been used; `None` if there is none.
        idle: Option<Duration>,
    },
    /// The connection that was to be probed has answered, or the topology knows that it has not.
    Probed {
        /// Whether it has answered.
        alive: bool,
    },
}

/// What a scan machine wants; one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEffect {
    /// Nothing: what was asked for is done.
    Rest,
    /// Check the server, tell the topology, and answer with [`ScanInput::Checked`].
    Check {
        /// The incarnation.
        server: ServerId,
    },
    /// Wait, and answer with [`ScanInput::Awake`].
    SleepUntil(Instant),
    /// Look for a suitable server in what is known now; answer with [`ScanInput::Found`] or
    /// [`ScanInput::NotFound`].
    Choose,
    /// Send `ping` on the server's connection. If that breaks or is silent, close it and mark the
    /// server Unknown. Answer with [`ScanInput::Probed`].
    Probe {
        /// The incarnation.
        server: ServerId,
    },
    /// The operation may use the server.
    Select {
        /// The incarnation.
        server: ServerId,
    },
    /// The operation gets no server.
    Fail(ScanFailure),
}

/// Why an operation gets no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanFailure {
    /// A server speaks no wire version that the client speaks.
    Incompatible,
    /// `serverSelectionTimeoutMS` has passed, or would before servers may be checked again.
    Timeout,
    /// One scan has not found a suitable server, and one is all there is with
    /// `serverSelectionTryOnce`.
    TriedOnce,
}

/// The scans of one topology, inline with its operations: when they are due, in which order servers
/// are checked, and when a selection fails.
///
/// How a check goes is the business of the server's
/// [`MonitorMachine`](crate::monitor::MonitorMachine), what follows from it that of the
/// [`TopologyMachine`](crate::machine::TopologyMachine).
///
/// A scan always ends: it checks no address more than twice, and no more addresses than a topology
/// may have servers.
///
/// # Contract
///
/// The driver does what the effect says, answers with the input named at it, and does what that
/// returns, until [`ScanEffect::Rest`], [`ScanEffect::Select`] or [`ScanEffect::Fail`].
/// It always passes the description that the topology has at that moment.
/// A driver may stop half-way and begin anew with whatever it wants; the machine then asks first for
/// the end of the check or probe that is under way, and the scan goes on where it stopped; it counts
/// as old as its beginning.
/// An answer that was not asked for is ignored: the effect that is due is returned again.
#[derive(Debug)]
pub struct ScanMachine {
    config: ScanConfig,
    rng: Rng,
    /// A scan is needed before the next selection (SDAM: "stale").
    stale: bool,
    /// When the newest scan ended.
    last_scan: Option<Instant>,
    /// The server that has to be checked before anything else.
    urgent: Option<ServerId>,
    state: State,
    /// What the scan is for; `None` if it is for its own sake.
    selection: Option<Selection>,
}

/// What was asked for and has not been answered.
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
    Choosing,
    Probing {
        server: ServerId,
        /// Whether a new request came meanwhile, so that another server may be wanted.
        superseded: bool,
    },
}

impl ScanMachine {
    /// The scans of a topology that was not scanned yet.
    pub fn new(config: ScanConfig, rng: Rng) -> Self {
        Self {
            config,
            rng,
            stale: false,
            last_scan: None,
            urgent: None,
            state: State::Resting,
            selection: None,
        }
    }

    /// Takes in what happened at `now`, when `topology` is what is known.
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
            ScanInput::NotFound => self.not_found(now, topology),
            ScanInput::Found { server, idle } => self.found(server, idle),
            ScanInput::Probed { alive } => self.probed(now, topology, alive),
        }
    }

    /// Whether the next selection will scan first, if it begins at `now`.
    pub fn is_stale(&self, now: Instant) -> bool {
        self.stale || self.is_due(now)
    }

    /// When the newest scan ended; `None` if there was none.
    pub fn last_scan(&self) -> Option<Instant> {
        self.last_scan
    }

    /// From when on a selection scans first; `None` if it does so in any case.
    pub fn next_scan(&self) -> Option<Instant> {
        let last = self.last_scan.filter(|_| !self.stale)?;
        Some(last + self.config.frequency)
    }

    /// The topology has marked `server` Unknown because of an error that an operation met (SDAM:
    /// "not writable primary and node is recovering").
    pub fn server_lost(&mut self, topology: &TopologyDescription, server: ServerId) {
        let error = topology
            .server_by_id(server)
            .and_then(|server| server.error.as_deref());
        match error.and_then(ServerError::state_change) {
            Some(StateChange::NotWritablePrimary) if self.config.immediate_check => {
                self.urgent = Some(server);
            }
            Some(StateChange::NotWritablePrimary | StateChange::ShuttingDown) => self.stale = true,
            // A scan would hardly help: the server is alive, and others know no more (I-39).
            Some(StateChange::NodeIsRecovering) | None => {}
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.last_scan
            .is_none_or(|last| last + self.config.frequency < now)
    }

    /// Begins with what was just asked for, once what is under way has ended.
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
            State::Resting | State::Sleeping { .. } | State::Choosing => {
                self.advance(now, topology)
            }
        }
    }

    /// Like [`begin`](Self::begin), for the server that is urgent and nothing else.
    fn begin_urgent(&mut self, now: Instant, topology: &TopologyDescription) -> ScanEffect {
        match &mut self.state {
            State::Checking { .. } | State::Probing { .. } => self.begin(now, topology),
            State::Resting | State::Sleeping { .. } | State::Choosing => self
                .check_urgent(now, topology)
                .unwrap_or_else(|| self.rest()),
        }
    }

    /// What to do next, when nothing is under way (Server Selection: "Single-threaded server
    /// selection implementation").
    fn advance(&mut self, now: Instant, topology: &TopologyDescription) -> ScanEffect {
        if let Some(effect) = self.check_urgent(now, topology) {
            return effect;
        }
        let stale = self.stale || self.selection.is_some() && self.is_due(now);
        // H-14: behind a load balancer there is nothing to find out.
        if !stale || topology.topology_type() == TopologyType::LoadBalanced {
            return self.attempt(topology);
        }
        let earliest = self.last_scan.map(|last| last + MIN_HEARTBEAT_FREQUENCY);
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
        // Whatever makes the topology stale from now on calls for another scan after this one.
        self.stale = false;
        self.go_on(now, topology, Scan::new(now))
    }

    /// Asks for the check of the urgent server, if it is still there.
    fn check_urgent(&mut self, now: Instant, topology: &TopologyDescription) -> Option<ScanEffect> {
        let server = self.urgent.take()?;
        topology.server_by_id(server)?;
        if topology.topology_type() == TopologyType::LoadBalanced {
            return None;
        }
        Some(self.ask(topology, Scan::single(now), server))
    }

    /// Asks for the next check of the scan, or ends it.
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
            // Most of what it found out is as old as the call that was given up, so it does not
            // count as the scan of this one.
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
                // SDAM: "Network or command error during server check": only a server that was
                // known is worth another attempt, and only one.
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

    /// The effect that has not been answered.
    fn due(&self) -> ScanEffect {
        match self.state {
            State::Resting => ScanEffect::Rest,
            State::Sleeping { until } => ScanEffect::SleepUntil(until),
            State::Checking { server, .. } => ScanEffect::Check { server },
            State::Choosing => ScanEffect::Choose,
            State::Probing { server, .. } => ScanEffect::Probe { server },
        }
    }
}
