//! P6: checks are neither too early nor too late.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sdam_core::{
    deployment::Input,
    error::ErrorKind,
    event::{Event, EventKind, Selection},
    ids::ServerId,
    options::{COOLDOWN, Options},
    time::Instant,
};
use sdam_sim::oracle::{Oracle, Violation};

/// SDAM: "minHeartbeatFrequencyMS".
const MIN_INTERVAL: Duration = Duration::from_millis(500);

/// The maximum number of checks of a server in any second, however often it pushes or breaks: a
/// burst, the checks that may follow within the second, and checks after a pause.
const MAX_PER_SECOND: usize = 50 + 20 + 10;

/// A retry may be delayed only after this many checks in a second without a pause, which is about
/// the number that a burst regains within the shortest pause.
const UNPAUSED: usize = 8;

/// The state of the checks of a server.
struct Checks {
    /// The time at which the running check started, the last one ended, or the server was added.
    since: Instant,
    state: State,
    /// True if the type of the server is known, from checks or other sources.
    known: bool,
    /// The time at which the running check had to be cancelled because of an operation's network
    /// error.
    cancelled: Option<Instant>,
    /// The start times of the checks in the last second.
    recent: Vec<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Running {
        awaited: bool,
    },
    Succeeded,
    /// The connection broke. `known` is true if the server was known before.
    Lost {
        known: bool,
    },
    Failed,
}

struct Cadence {
    heartbeat: Duration,
    connect_timeout: Option<Duration>,
    servers: BTreeMap<ServerId, Checks>,
    /// The waiting selections. `waiting_since` is the time at which this list became non-empty.
    waiters: Vec<Arc<Selection>>,
    waiting_since: Instant,
    /// The server for which an operation just reported an error that cancels the check if it clears
    /// the pool.
    cancelling_error_on: Option<ServerId>,
}

/// Checks the cadence of every server that is monitored according to `options`.
pub(crate) fn check(events: &[Event], options: &Options) -> Result<(), Violation> {
    let mut cadence = Cadence {
        heartbeat: options.monitor_frequency(),
        connect_timeout: options.connect_timeout,
        servers: BTreeMap::new(),
        waiters: Vec::new(),
        waiting_since: Instant::EPOCH,
        cancelling_error_on: None,
    };
    if options.load_balanced {
        let checked = |event: &&Event| matches!(event.kind, EventKind::ServerHeartbeatStarted(_));
        return match events.iter().find(checked) {
            Some(event) => Err(Oracle::Cadence.violated(event.at, "a load balancer was checked")),
            None => Ok(()),
        };
    }
    events.iter().try_for_each(|event| {
        cadence.event(event).map_err(|message| Oracle::Cadence.violated(event.at, message))
    })
}

/// Checks the cadence of a single-threaded client, which checks servers only for selections. Two
/// rules apply: the minimum interval, and the cooldown after a network error (SDAM: "cooldownMS").
pub(crate) fn check_scans(events: &[Event]) -> Result<(), Violation> {
    let mut ended = BTreeMap::<ServerId, (Instant, State)>::new();
    let mut known = BTreeMap::<ServerId, bool>::new();
    for event in events {
        match &event.kind {
            EventKind::ServerHeartbeatStarted(heartbeat) => {
                let Some((end, state)) = ended.get(&heartbeat.server) else {
                    continue;
                };
                let gap = event.at.since(*end);
                let min = match state {
                    State::Lost { known: true } if gap.is_zero() => gap,
                    State::Lost { .. } => COOLDOWN,
                    _ => MIN_INTERVAL,
                };
                if gap < min {
                    let address = &heartbeat.address;
                    let message =
                        format!("{address}: a check started {gap:?} after the previous one");
                    return Err(Oracle::Cadence.violated(event.at, message));
                }
            }
            EventKind::ServerDescriptionChanged { new, .. } => {
                known.insert(new.id, new.server_type.is_available());
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => {
                ended.insert(heartbeat.server, (event.at, State::Succeeded));
            }
            EventKind::ServerHeartbeatFailed { heartbeat, failure, .. } => {
                // F-51: the type before the check counts, and the change is published later.
                let known = known.get(&heartbeat.server) == Some(&true);
                let lost = matches!(failure.kind(), ErrorKind::Network | ErrorKind::Timeout);
                let state = if lost { State::Lost { known } } else { State::Failed };
                ended.insert(heartbeat.server, (event.at, state));
            }
            EventKind::Input(own) => {
                // A later error of an operation replaces that of the check, and causes no cooldown.
                if let Input::Error { server, .. } = &own.input
                    && let Some((_, state)) = ended.get_mut(server)
                {
                    *state = State::Failed;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

impl Cadence {
    fn event(&mut self, event: &Event) -> Result<(), String> {
        let at = event.at;
        match &event.kind {
            EventKind::ServerOpening { server, .. } => {
                self.servers.insert(
                    *server,
                    Checks {
                        since: at,
                        state: State::New,
                        known: false,
                        cancelled: None,
                        recent: Vec::new(),
                    },
                );
                Ok(())
            }
            EventKind::ServerClosed { server, address, .. } => match self.servers.get(server) {
                Some(checks) => self
                    .not_overdue(checks, at)
                    .map_err(|late| format!("{address}, when it was closed: {late}")),
                None => Ok(()),
            },
            EventKind::ServerHeartbeatStarted(heartbeat) => self
                .started(heartbeat.server, at, heartbeat.awaited)
                .map_err(|message| format!("{}: {message}", heartbeat.address)),
            EventKind::ServerDescriptionChanged { new, .. } => {
                if let Some(checks) = self.servers.get_mut(&new.id) {
                    checks.known = new.server_type.is_available();
                }
                Ok(())
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => self
                .ended(heartbeat.server, at, |_| State::Succeeded)
                .map_err(|message| format!("{}: {message}", heartbeat.address)),
            EventKind::ServerHeartbeatFailed { heartbeat, failure, .. } => {
                let lost = matches!(failure.kind(), ErrorKind::Network | ErrorKind::Timeout);
                self.ended(heartbeat.server, at, |checks| {
                    // F-51: the type before the check counts, and the change is published later.
                    if lost { State::Lost { known: checks.known } } else { State::Failed }
                })
                .map_err(|message| format!("{}: {message}", heartbeat.address))
            }
            EventKind::Input(input) => {
                self.input(&input.input);
                Ok(())
            }
            EventKind::PoolCleared { server, .. } => {
                if self.cancelling_error_on == Some(*server)
                    && let Some(checks) = self.servers.get_mut(server)
                    && matches!(checks.state, State::Running { .. })
                {
                    checks.cancelled.get_or_insert(at);
                }
                Ok(())
            }
            kind => {
                self.count_waiters(kind, at);
                Ok(())
            }
        }
    }

    fn input(&mut self, input: &Input) {
        self.cancelling_error_on = None;
        let Input::Error { server, report } = input else {
            return;
        };
        // F-71, I-14, I-12: a handshake that was refused without reporting a state change.
        let refused = report.error.reply().is_some();
        if !refused && report.error.kind() != ErrorKind::Protocol {
            self.cancelling_error_on = Some(*server);
        }
    }

    fn count_waiters(&mut self, kind: &EventKind, at: Instant) {
        match kind {
            EventKind::ServerSelectionWaiting { selection, .. } => {
                if self.waiters.is_empty() {
                    self.waiting_since = at;
                }
                self.waiters.push(Arc::clone(selection));
            }
            EventKind::ServerSelectionSucceeded { selection, .. }
            | EventKind::ServerSelectionFailed { selection, .. } => {
                self.waiters.retain(|own| !Arc::ptr_eq(own, selection));
            }
            _ => {}
        }
    }

    fn started(&mut self, server: ServerId, at: Instant, awaited: bool) -> Result<(), String> {
        let Some(checks) = self.servers.get(&server) else {
            return Ok(());
        };
        self.not_overdue(checks, at)?;
        let gap = at.since(checks.since);
        let immediate = match checks.state {
            State::New => true,
            State::Succeeded => awaited,
            State::Lost { known } => known,
            State::Running { .. } | State::Failed => false,
        };
        if gap < MIN_INTERVAL && !(immediate && gap.is_zero()) && checks.state != State::New {
            return Err(format!(
                "a check started {gap:?} after the previous one ({:?})",
                checks.state
            ));
        }
        let unpaused = checks.recent.len() >= UNPAUSED;
        if let State::Lost { known: true } = checks.state
            && !(gap.is_zero() || unpaused && gap == MIN_INTERVAL)
        {
            return Err(format!("the retry started only after {gap:?}"));
        }
        let Some(checks) = self.servers.get_mut(&server) else {
            return Ok(());
        };
        checks.since = at;
        checks.state = State::Running { awaited };
        checks.recent.push(at);
        checks.recent.retain(|start| at.since(*start) < Duration::from_secs(1));
        if checks.recent.len() > MAX_PER_SECOND {
            return Err(format!("{} checks started within a second", checks.recent.len()));
        }
        Ok(())
    }

    fn ended(
        &mut self,
        server: ServerId,
        at: Instant,
        state: impl FnOnce(&mut Checks) -> State,
    ) -> Result<(), String> {
        let Some(checks) = self.servers.get(&server) else {
            return Ok(());
        };
        self.not_overdue(checks, at)?;
        if let Some(checks) = self.servers.get_mut(&server) {
            checks.since = at;
            checks.cancelled = None;
            checks.state = state(checks);
        }
        Ok(())
    }

    /// Checks that an event at `at` is not overdue.
    fn not_overdue(&self, checks: &Checks, at: Instant) -> Result<(), String> {
        let took = at.since(checks.since);
        let max = match checks.state {
            State::New => Some(Duration::ZERO),
            State::Running { awaited: false } => self.connect_timeout.map(|limit| 2 * limit),
            State::Running { awaited: true } => {
                self.connect_timeout.map(|limit| limit + self.heartbeat)
            }
            State::Succeeded | State::Lost { .. } | State::Failed => Some(self.heartbeat),
        };
        if max.is_some_and(|max| took > max) {
            return Err(format!("{:?} for {took:?}, allowed are {max:?}", checks.state));
        }
        if let Some(cancelled) = checks.cancelled
            && at > cancelled
        {
            return Err(format!(
                "F-71: the check continues, although it was cancelled at {cancelled:?}"
            ));
        }
        let idle = matches!(checks.state, State::Succeeded | State::Lost { .. } | State::Failed);
        // F-44: a waiting selection requests checks.
        let due = (checks.since + MIN_INTERVAL).max(self.waiting_since);
        if idle && !self.waiters.is_empty() && at > due {
            return Err(format!(
                "no check since {:?}, although a selection is waiting",
                checks.since
            ));
        }
        Ok(())
    }
}
