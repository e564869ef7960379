//! The known state of a deployment, derived from the events of a topology and the time.
//!
//! The model does no I/O. It has a log of changes, a stopwatch for failovers, and the primary's
//! writes, against which the lag of secondaries is measured.

mod server;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use sdam_core::{
    address::ServerAddress,
    event::{Event, EventKind, EventName},
    options::Options,
    read_preference::ReadPreference,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{DepartureReason, TopologyDescription, TopologyType},
};
use sdam_events::{
    facts::{Fact, Facts, Failover, Outage},
    sink::Interest,
};
use sdam_select::{criteria::Criteria, explain::Explanation, settings::Settings, staleness};

#[cfg(feature = "tui")]
pub(crate) use self::server::{Column, Probe};
pub(crate) use self::server::{Mode, Server, brief};
use super::{screen, view::Access};
use crate::terminal::Tone;

/// The time for which a secondary may lack a known write before it counts as lagging. Without this
/// grace period, secondaries would appear to lag after an election, because the new primary's first
/// write is much newer than the old primary's last one.
const GRACE: Duration = Duration::from_secs(3);

/// The maximum number of writes to keep.
const WRITES: usize = 100;

/// The maximum number of entries to keep.
const ENTRIES: usize = 2000;

/// The period over which server losses are counted.
const FLAP_PERIOD: Duration = Duration::from_secs(60 * 60);
/// The maximum number of server losses to keep.
const FLAPS: usize = 10_000;

/// The state of a deployment according to its monitors.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The facts derived from the events so far.
    pub(crate) facts: Facts,
    settings: Settings,
    /// The description of the deployment as of its last change.
    pub(crate) topology: Arc<TopologyDescription>,
    servers: BTreeMap<ServerAddress, Server>,
    pub(crate) stopwatch: Stopwatch,
    /// The log of changes.
    pub(super) log: Log,
    /// The server losses and primary changes, oldest first.
    flaps: VecDeque<(Instant, ServerAddress)>,
    writes: Writes,
    opened: Option<Instant>,
    /// The time at which the topology's type last changed.
    pub(super) type_since: Instant,
    pub(super) now: Instant,
}

impl Model {
    /// The events that the model needs.
    pub(crate) const INTEREST: Interest =
        Interest::SDAM.union(Interest::POOL_STATES).union(Interest::of(&[EventName::RttMeasured]));

    /// Creates the state before the first event; `options` determine how servers are selected.
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            facts: Facts::new(),
            settings: Settings::new(options),
            topology: Arc::default(),
            servers: BTreeMap::new(),
            stopwatch: Stopwatch::default(),
            log: Log::default(),
            flaps: VecDeque::new(),
            writes: Writes::default(),
            opened: None,
            type_since: Instant::EPOCH,
            now: Instant::EPOCH,
        }
    }

    /// Sets the time to `now`, unless this would move it back.
    pub(super) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Processes the next event.
    pub(crate) fn observe(&mut self, event: &Event) {
        self.advance(event.at);
        let facts = self.facts.observe(event);
        self.take_in(event.at, &event.kind);
        for fact in &facts {
            self.learn(event.at, fact);
        }
    }

    /// Adds a note to the log.
    pub(super) fn note(&mut self, subject: &str, tone: Tone, words: &str) {
        self.log.add(self.now, subject, tone, words);
    }

    fn take_in(&mut self, at: Instant, kind: &EventKind) {
        match kind {
            EventKind::TopologyOpening => {
                self.opened = Some(at);
                self.type_since = at;
            }
            EventKind::ServerOpening { server, address } => {
                let new = Server::new(at, *server, address);
                self.servers.insert(address.clone(), new);
                self.log.add(at, address, Tone::Strong, "joined");
            }
            EventKind::ServerClosed { address, reason, .. } => self.leave(at, address, reason),
            EventKind::ServerDescriptionChanged { previous, new } => {
                self.change_server(at, previous, new);
            }
            EventKind::TopologyDescriptionChanged { previous, new } => {
                self.change_topology(at, previous, new);
            }
            EventKind::ServerHeartbeatStarted(heartbeat) if heartbeat.awaited => {
                if let Some(server) = self.servers.get_mut(&heartbeat.address) {
                    server.mode = Some(Mode::Streaming);
                }
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, duration, reply } => {
                if let Some(server) = self.servers.get_mut(&heartbeat.address) {
                    server.succeeded(at, heartbeat, *duration, reply);
                    self.writes.note(at, &server.description);
                }
                self.stopwatch.checked(at, &heartbeat.address);
            }
            EventKind::ServerHeartbeatFailed { heartbeat, failure, .. } => {
                if let Some(server) = self.servers.get_mut(&heartbeat.address) {
                    server.failed(at, failure);
                }
                self.stopwatch.checked(at, &heartbeat.address);
            }
            EventKind::RttMeasured { address, rtt, .. } => {
                if let Some(server) = self.servers.get_mut(address) {
                    server.timed(at, *rtt);
                }
            }
            kind => self.take_rest(at, kind),
        }
    }

    /// Processes pool commands and warnings.
    fn take_rest(&mut self, at: Instant, kind: &EventKind) {
        match kind {
            EventKind::PoolReady { address, .. } => {
                if let Some(server) = self.servers.get_mut(address) {
                    server.pool.is_ready = true;
                }
            }
            EventKind::PoolCleared { address, clear, .. } => {
                if let Some(server) = self.servers.get_mut(address) {
                    server.cleared(at, clear);
                }
                self.stopwatch.cleared(at, address);
                let words = format!("pool cleared, now generation {}", clear.generation.as_u64());
                self.log.add(at, address, Tone::Doubtful, words);
            }
            EventKind::ConfigWarning(warning) => {
                self.log.add(at, "options", Tone::Doubtful, warning.to_string());
            }
            EventKind::MembersIgnored { ignored, limit } => {
                let words = format!("{ignored} members ignored: at most {limit} are watched");
                self.log.add(at, "set", Tone::Doubtful, words);
            }
            EventKind::EventsDropped { total } => {
                let words = format!("{total} events lost: the screen may be incomplete");
                self.log.add(at, "watch", Tone::Bad, words);
            }
            EventKind::ServerSuspected { address, silence, .. } => {
                let words =
                    format!("silent for {:.1} s while others answer", silence.as_secs_f64());
                self.log.add(at, address, Tone::Bad, words);
            }
            EventKind::ServerSuspicionEnded { address, answered: true, .. } => {
                self.log.add(at, address, Tone::Doubtful, "answers again");
            }
            EventKind::TopologyEmptied => {
                self.log.add(at, "set", Tone::Bad, "no server is left");
            }
            _ => {}
        }
    }

    fn leave(&mut self, at: Instant, address: &ServerAddress, reason: &DepartureReason) {
        self.servers.remove(address);
        self.stopwatch.left(address);
        let tone = if reason.is_mistake() { Tone::Bad } else { Tone::Doubtful };
        if !matches!(reason, DepartureReason::Closed) {
            self.log.add(at, address, tone, format!("left: {reason}"));
        }
    }

    fn change_server(
        &mut self,
        at: Instant,
        previous: &ServerDescription,
        new: &Arc<ServerDescription>,
    ) {
        if let Some(server) = self.servers.get_mut(&new.address) {
            server.change(at, new);
            self.writes.note(at, new);
        }
        let (old, role) = (previous.server_type, new.server_type);
        if old != role {
            let mut words = format!("{} > {}", state(old), state(role));
            if let Some(error) = &new.error {
                words = format!("{words}: {}", brief(error));
            }
            let tone = screen::tone_of(new);
            self.log.add(at, &new.address, tone, words);
        } else if previous.error != new.error
            && let Some(error) = &new.error
        {
            self.log.add(at, &new.address, Tone::Faint, brief(error));
        } else if let Some(news) = screen::changed_fields(previous, new) {
            self.log.add(at, &new.address, Tone::Faint, news);
        }
    }

    fn change_topology(
        &mut self,
        at: Instant,
        previous: &TopologyDescription,
        new: &Arc<TopologyDescription>,
    ) {
        let (old, kind) = (previous.topology_type(), new.topology_type());
        if old != kind {
            let tone = Access::of(new, &self.settings).tone();
            self.log.add(at, "set", tone, format!("{} > {}", brief_type(old), brief_type(kind)));
            self.type_since = at;
        }
        let (before, now) = (previous.compatibility_error(), new.compatibility_error());
        if let Some(error) = now.filter(|_| before != now) {
            self.log.add(at, "set", Tone::Bad, error);
        }
        self.topology = Arc::clone(new);
    }

    fn learn(&mut self, at: Instant, fact: &Fact) {
        match fact {
            Fact::OutageStarted(outage) => {
                let lost = outage.lost.as_ref();
                let others = self.servers.keys().filter(|own| Some(*own) != lost);
                self.stopwatch.start(outage, others.cloned().collect());
            }
            Fact::FailoverEnded(failover) => {
                self.stopwatch.end(failover);
                let words = screen::describe(failover);
                self.log.add(at, "set", Tone::Good, words);
            }
            Fact::FailoverExplained(failover) => {
                self.stopwatch.explain(failover);
                self.log.add(at, "set", Tone::Good, screen::explain(failover));
            }
            Fact::ServerLost { address, .. } => self.flap(at, address),
            Fact::PrimaryChanged { new: Some(new), .. }
                if self.stopwatch.last.is_none() && self.stopwatch.current.is_none() =>
            {
                self.log.add(at, "set", Tone::Good, format!("primary found: {new}"));
            }
            Fact::PrimaryChanged { old: Some(old), new: None, .. } => {
                // Count only a step-down here, because the loss of a primary is already counted as
                // the loss of a server.
                let still = self.servers.get(old);
                if still.is_some_and(|old| old.description.server_type.is_available()) {
                    self.flap(at, old);
                }
            }
            _ => {}
        }
    }

    fn flap(&mut self, at: Instant, address: &ServerAddress) {
        push(&mut self.flaps, FLAPS, (at, address.clone()));
    }

    /// Returns the time at which monitoring began.
    pub(super) fn opened(&self) -> Instant {
        self.opened.unwrap_or(self.now)
    }

    /// Returns the time since the last answer of `server`, if it is available but has fallen
    /// silent.
    pub(crate) fn silence(&self, server: &Server) -> Option<Duration> {
        let facts = self.facts.server(&server.description.address)?;
        let is_suspected = facts.server_type.is_available() && facts.suspected.is_some();
        facts.last_answer.filter(|_| is_suspected).map(|last| self.now.since(last))
    }

    /// Iterates over the servers in the order of their addresses.
    pub(super) fn servers(&self) -> impl ExactSizeIterator<Item = &Server> + Clone {
        self.servers.values()
    }

    /// Returns how often in the last hour a server was lost or the primary stepped down. If
    /// `address` is given, counts only that server.
    pub(crate) fn flaps(&self, address: Option<&ServerAddress>) -> usize {
        let now = self.now;
        let recent = self.flaps.iter().rev();
        let recent = recent.take_while(|(at, _)| now.since(*at) < FLAP_PERIOD);
        recent.filter(|(_, own)| address.is_none_or(|address| own == address)).count()
    }

    /// Returns the lag of `server` according to `current`, the description as of the last checks.
    /// Returns `None` if the lag is large but the secondary may have replicated a new write since
    /// its last answer.
    pub(super) fn lag(&self, current: &TopologyDescription, server: &Server) -> Option<Duration> {
        let lag = staleness::lag(current, &server.description)?;
        let is_certain =
            current.primary().is_none() || self.writes.is_missed_by(&server.description);
        (lag < GRACE || is_certain).then_some(lag)
    }

    /// Explains server selection for reads with `preference` or, if there is none, for writes.
    /// Returns `None` if the read preference is invalid.
    pub(super) fn explain(&self, preference: Option<&ReadPreference>) -> Option<Explanation> {
        let criteria = match preference {
            None => Criteria::write(),
            Some(preference) => Criteria::read(preference.clone()).ok()?,
        };
        Some(sdam_select::explain::explain(&self.current(), &self.settings, &criteria))
    }

    /// Returns the description of the topology with the round-trip times and write dates from the
    /// last checks, which the stored description may lack because new values alone cause no event.
    pub(super) fn current(&self) -> TopologyDescription {
        if !self.topology.is_compatible() {
            return TopologyDescription::clone(&self.topology);
        }
        let servers = self.topology.servers().iter().map(|server| {
            let own = self.servers.get(&server.address);
            let own = own.filter(|own| own.description == *server);
            ServerDescription::clone(own.map_or(server, |own| &own.description))
        });
        TopologyDescription::new(self.topology.topology_type(), servers)
    }
}

/// The steps of one failover, or of an outage of a deployment without primaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The number of the failover, counted from 1.
    pub(crate) number: u64,
    /// The outage, which begins with the loss of a writable server.
    pub(crate) outage: Outage,
    /// The time when the pool of the lost server was cleared.
    pub(crate) pool_cleared: Option<Instant>,
    /// The time at which all other servers had been checked.
    pub(crate) all_checked: Option<Instant>,
    /// The failover that ended the outage.
    pub(crate) end: Option<Failover>,
    /// The servers for which no check has been completed since the loss.
    unchecked: BTreeSet<ServerAddress>,
}

impl Run {
    fn conclude(&mut self, failover: &Failover) {
        self.outage = failover.outage.clone();
        self.end = Some(failover.clone());
    }
}

/// The current outage and the last failover.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopwatch {
    pub(crate) current: Option<Run>,
    /// The last completed failover.
    pub(crate) last: Option<Run>,
    count: u64,
}

impl Stopwatch {
    /// Starts a run at the beginning of an outage; `others` are the servers that were not lost.
    fn start(&mut self, outage: &Outage, others: BTreeSet<ServerAddress>) {
        self.current = Some(self.run(outage, others));
    }

    fn run(&mut self, outage: &Outage, unchecked: BTreeSet<ServerAddress>) -> Run {
        self.count += 1;
        Run {
            number: self.count,
            outage: outage.clone(),
            pool_cleared: None,
            all_checked: None,
            end: None,
            unchecked,
        }
    }

    /// Handles the end of a check of `server`.
    fn checked(&mut self, at: Instant, server: &ServerAddress) {
        if let Some(run) = &mut self.current
            && run.unchecked.remove(server)
            && run.unchecked.is_empty()
        {
            run.all_checked = Some(at);
        }
    }

    /// Handles the removal of a server from the topology.
    fn left(&mut self, server: &ServerAddress) {
        if let Some(run) = &mut self.current {
            run.unchecked.remove(server);
        }
    }

    /// Handles the clearing of the pool of `server`.
    fn cleared(&mut self, at: Instant, server: &ServerAddress) {
        if let Some(run) = &mut self.current
            && run.outage.lost.as_ref().is_none_or(|lost| lost == server)
        {
            run.pool_cleared.get_or_insert(at);
        }
    }

    /// Handles the return of a writable server.
    fn end(&mut self, failover: &Failover) {
        // If no outage was in progress, one primary has directly replaced another.
        let mut run = match self.current.take() {
            Some(run) => run,
            None => self.run(&failover.outage, BTreeSet::new()),
        };
        run.conclude(failover);
        self.last = Some(run);
    }

    /// Updates the last failover when its cause becomes known.
    fn explain(&mut self, failover: &Failover) {
        if let Some(run) = &mut self.last {
            run.conclude(failover);
        }
    }
}

/// A change, or a step of the demonstration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The time of the change.
    pub(crate) at: Instant,
    /// The subject of the change, such as the address of a server, `set` or `pool`.
    pub(crate) subject: String,
    /// The description of the change.
    pub(crate) words: String,
    /// The severity, which determines the colour.
    pub(crate) tone: Tone,
}

/// The last changes, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
}

impl Log {
    pub(crate) fn add(
        &mut self,
        at: Instant,
        subject: &(impl ToString + ?Sized),
        tone: Tone,
        words: impl Into<String>,
    ) {
        let (subject, words) = (subject.to_string(), words.into());
        push(&mut self.entries, ENTRIES, Entry { at, subject, words, tone });
    }

    /// Iterates over the entries, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter()
    }
}

/// The dates of the last writes that primaries reported, in increasing order, each with the time at
/// which the client learned of the write.
#[derive(Clone, Debug, Default)]
struct Writes(VecDeque<(Instant, i64)>);

impl Writes {
    /// Adds the last write of `server`, if it is a primary.
    fn note(&mut self, at: Instant, server: &ServerDescription) {
        let is_primary = server.server_type == ServerType::RsPrimary;
        let Some(write) = server.last_write_date.filter(|_| is_primary) else {
            return;
        };
        if self.0.back().is_none_or(|(_, last)| *last < write) {
            push(&mut self.0, WRITES, (at, write));
        }
    }

    /// Returns whether the last answer of `server` lacks a write that the client had already known
    /// for at least [`GRACE`] when the answer arrived.
    fn is_missed_by(&self, server: &ServerDescription) -> bool {
        let own = server.last_write_date;
        let first = self.0.iter().find(|(_, write)| own < Some(*write));
        first.is_some_and(|(known, _)| server.last_update_time >= Some(*known + GRACE))
    }
}

/// Returns the name of a topology type without the prefix `ReplicaSet`.
pub(super) fn brief_type(kind: TopologyType) -> &'static str {
    let name = kind.as_str();
    name.strip_prefix("ReplicaSet").unwrap_or(name)
}

/// Returns the role of a server in operators' terms.
pub(super) const fn state(role: ServerType) -> &'static str {
    match role {
        ServerType::Unknown => "UNKNOWN",
        ServerType::PossiblePrimary => "PRIMARY?",
        ServerType::Standalone => "STANDALONE",
        ServerType::Mongos => "MONGOS",
        ServerType::RsPrimary => "PRIMARY",
        ServerType::RsSecondary => "SECONDARY",
        ServerType::RsArbiter => "ARBITER",
        ServerType::RsOther => "OTHER",
        ServerType::RsGhost => "GHOST",
        ServerType::LoadBalancer => "BALANCER",
    }
}

/// Adds an item; if there are `most` already, removes the oldest one.
fn push<T>(items: &mut VecDeque<T>, most: usize, item: T) {
    if items.len() == most {
        items.pop_front();
    }
    items.push_back(item);
}
