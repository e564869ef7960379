//! Invariant P6: no check comes too early or too late.

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

use crate::plan::{Kind, Plan};

/// The minimum interval between checks (SDAM: "minHeartbeatFrequencyMS").
const MIN_INTERVAL: Duration = Duration::from_millis(500);

/// The maximum number of checks of a server within a second, even if the server continually pushes
/// replies or breaks connections. The three numbers are a full burst, the checks that the rate
/// limit allows after the burst, and the checks that it allows again after a pause.
const MAX_PER_SECOND: usize = 50 + 20 + 10;

/// The number of checks of a server within a second after which a retry may be delayed. It is
/// roughly the number of checks that the rate limit allows again after the shortest pause.
const UNPAUSED: usize = 8;

/// The state of a server's checks.
struct Checks {
    /// The time at which the current check started, the previous check ended, or the server was
    /// added.
    since: Instant,
    state: State,
    /// True if the server's type is known, from checks or other sources.
    known: bool,
    /// The time of a network error that an operation reported, which must cancel the current check.
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
    /// The connection broke. `known` is true if the server's type was known before.
    Lost {
        known: bool,
    },
    Failed,
}

struct Cadence<'o> {
    options: &'o Options,
    /// True for a single-threaded client, which checks servers only for selections.
    scans: bool,
    /// True if the host stalls, so that checks may be late.
    stalls: bool,
    /// The maximum time by which a timer is late.
    lateness: Duration,
    servers: BTreeMap<ServerId, Checks>,
    /// The waiting selections. `waiting_since` is the time at which the list became non-empty.
    waiters: Vec<Arc<Selection>>,
    waiting_since: Instant,
    /// The server for which an operation just reported an error. If the error clears the pool, it
    /// must also cancel the check.
    cancelling_error_on: Option<ServerId>,
}

/// Checks the times at which servers were checked. For a client that scans, only two rules apply:
/// the minimum interval, and the cooldown after a network error (SDAM: "cooldownMS"). If the host
/// stalls, no check counts as late.
pub(crate) fn check(plan: &Plan, options: &Options, events: &[Event]) -> Result<(), Violation> {
    let mut cadence = Cadence {
        options,
        scans: plan.kind == Kind::Scan,
        stalls: plan.stalls,
        lateness: plan.lateness(),
        servers: BTreeMap::new(),
        waiters: Vec::new(),
        waiting_since: Instant::EPOCH,
        cancelling_error_on: None,
    };
    events.iter().try_for_each(|event| {
        cadence.event(event).map_err(|message| {
            let server = event.kind.address().map(ToString::to_string).unwrap_or_default();
            let message = format!("{server}: {message}, at the event {:?}", event.kind.name());
            Oracle::Cadence.violated(event.at, message)
        })
    })
}

impl Cadence<'_> {
    fn event(&mut self, event: &Event) -> Result<(), String> {
        let at = event.at;
        match &event.kind {
            EventKind::ServerOpening { server, .. } if !self.options.load_balanced => {
                let (state, recent) = (State::New, Vec::new());
                let new = Checks { since: at, state, known: false, cancelled: None, recent };
                self.servers.insert(*server, new);
            }
            EventKind::ServerClosed { server, .. } => {
                if let Some(checks) = self.servers.get(server) {
                    self.not_overdue(checks, at)?;
                }
            }
            EventKind::ServerHeartbeatStarted(_) if self.options.load_balanced => {
                return Err("a load balancer was checked".into());
            }
            EventKind::ServerHeartbeatStarted(heartbeat) => {
                self.started(heartbeat.server, at, heartbeat.awaited)?;
            }
            EventKind::ServerDescriptionChanged { new, .. } => {
                if let Some(checks) = self.servers.get_mut(&new.id) {
                    checks.known = new.server_type.is_available();
                }
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => {
                self.ended(heartbeat.server, at, |_| State::Succeeded)?;
            }
            EventKind::ServerHeartbeatFailed { heartbeat, failure, .. } => {
                let lost = matches!(failure.kind(), ErrorKind::Network | ErrorKind::Timeout);
                self.ended(heartbeat.server, at, |checks| {
                    // Whether the check is retried depends on the server's type before the check
                    // (F-51). `known` still describes that type, because the change to Unknown is
                    // published later.
                    if lost { State::Lost { known: checks.known } } else { State::Failed }
                })?;
            }
            EventKind::Input(input) => self.input(&input.input),
            EventKind::PoolCleared { server, .. } => {
                if self.cancelling_error_on == Some(*server)
                    && let Some(checks) = self.servers.get_mut(server)
                    && matches!(checks.state, State::Running { .. })
                {
                    checks.cancelled.get_or_insert(at);
                }
            }
            kind => self.count_waiters(kind, at),
        }
        Ok(())
    }

    fn input(&mut self, input: &Input) {
        self.cancelling_error_on = None;
        let Input::Error { server, report } = input else {
            return;
        };
        // The error of the operation replaces the error of the check, and causes no cooldown.
        if self.scans
            && let Some(checks) = self.servers.get_mut(server)
            && matches!(checks.state, State::Lost { .. })
        {
            checks.state = State::Failed;
        }
        // An error cancels the check, unless the server refused the handshake (F-71, I-14, I-12).
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
        let min = match checks.state {
            State::New => Duration::ZERO,
            State::Lost { .. } if self.scans => COOLDOWN,
            _ => MIN_INTERVAL,
        };
        if gap < min && !(immediate && gap.is_zero()) {
            return Err(format!(
                "a check started {gap:?} after the previous one ({:?})",
                checks.state
            ));
        }
        let unpaused = checks.recent.len() >= UNPAUSED;
        if let State::Lost { known: true } = checks.state
            && !self.scans
            && !self.stalls
            && !(gap.is_zero() || unpaused && gap <= MIN_INTERVAL + self.lateness)
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

    /// Fails if the event that happened at `at` was overdue.
    fn not_overdue(&self, checks: &Checks, at: Instant) -> Result<(), String> {
        if self.scans || self.stalls {
            return Ok(());
        }
        let took = at.since(checks.since);
        let (limit, heartbeat) = (self.options.connect_timeout, self.options.monitor_frequency());
        // A check connects and awaits a reply. If a late timer lets the check accept a late reply,
        // the check then awaits another reply.
        let steps = if self.lateness.is_zero() { 2 } else { 3 };
        let max = match checks.state {
            State::New => Some(self.options.spread),
            State::Running { awaited: false } => limit.map(|limit| steps * limit),
            State::Running { awaited: true } => limit.map(|limit| limit + heartbeat),
            State::Succeeded | State::Lost { known: true } => Some(heartbeat),
            State::Lost { known: false } | State::Failed => Some(heartbeat + self.options.spread),
        };
        let max = max.map(|max| max + steps * self.lateness);
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
        // A waiting selection requests checks (F-44).
        let due = (checks.since + MIN_INTERVAL + self.lateness).max(self.waiting_since);
        if idle && !self.waiters.is_empty() && at > due {
            return Err(format!(
                "no check since {:?}, although a selection is waiting",
                checks.since
            ));
        }
        Ok(())
    }
}
