//! Facts derived from events: the primary and how long it has been primary, the durations of
//! failovers, flapping servers, and the time spent in each topology type.
//!
//! [`Facts`] is a plain value to which the events of one topology are passed, so it works with live
//! and recorded events. [`FactSink`] passes the events of a running topology to a [`Facts`].
//!
//! ```
//! use sdam_events::facts::{Fact, FactSink};
//!
//! let sink = FactSink::new(|fact| {
//!     if let Fact::FailoverEnded(failover) = fact {
//!         eprintln!("{failover}");
//!     }
//! });
//! # drop(sink);
//! ```

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use sdam_core::{
    address::ServerAddress,
    event::{Event, EventKind, EventName},
    ids::ObjectId,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

use crate::sink::{EventSink, Interest, lock};

mod failover;
#[cfg(test)]
mod tests;

pub use failover::{Bounds, Failover, Loss, Outage};

/// A fact derived from the events so far. `Display` formats it on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact {
    /// The primary changed or was lost.
    PrimaryChanged {
        /// The time when the change was noticed.
        at: Instant,
        /// The previous primary; `None` if there was none.
        old: Option<ServerAddress>,
        /// The new primary; `None` if there is none.
        new: Option<ServerAddress>,
        /// The election id of the new primary.
        election_id: Option<ObjectId>,
    },
    /// No server is writable any more.
    OutageStarted(Outage),
    /// A server is writable again after an outage, or one primary directly followed another.
    FailoverEnded(Failover),
    /// Just after the new primary was found, the old primary reported that it had stepped down, so
    /// it had not been silent before. This fact replaces the last
    /// [`FailoverEnded`](Self::FailoverEnded).
    FailoverExplained(Failover),
    /// An available server became unavailable.
    ServerLost {
        /// The time when the change was noticed.
        at: Instant,
        /// The address of the lost server.
        address: ServerAddress,
        /// The number of times that this server has been lost, including this one.
        losses: u64,
        /// The error that caused the server to be marked unknown.
        reason: Option<Arc<str>>,
    },
    /// The topology type changed.
    TopologyTypeChanged {
        /// The time when the type changed.
        at: Instant,
        /// The previous type.
        old: TopologyType,
        /// The new type.
        new: TopologyType,
        /// The time that the topology spent with the old type.
        lasted: Duration,
    },
}

/// Facts about one server in addition to those in its description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFacts {
    /// The number of times that the server was lost, that is, changed from available to
    /// unavailable.
    pub losses: u64,
    /// The current server type.
    pub server_type: ServerType,
    /// The time at which the server changed to this type.
    pub since: Instant,
    /// The time of the last answer: the end of a successful check or round trip.
    pub last_answer: Option<Instant>,
    /// True if the current check is streaming, so that the server reports a change at once.
    pub streams: bool,
    /// The time at which the server became suspect; `None` if it has answered since.
    pub suspected: Option<Instant>,
}

/// Derives facts from the events of one topology.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The servers of the topology, keyed by address.
    servers: BTreeMap<ServerAddress, ServerFacts>,
    topology_type: TopologyType,
    type_since: Instant,
    primary: Option<ServerAddress>,
    writable: bool,
    outage: Option<Outage>,
    last_failover: Option<Failover>,
    /// The total time without a writable server in all failovers before the last one.
    without_before: Bounds,
    sightings: Sightings,
    /// The available server that was lost most recently.
    last_lost: Option<ServerAddress>,
    /// The longest time that a streaming server has taken to answer.
    longest_wait: Duration,
}

/// The last answers from the writable server.
#[derive(Clone, Copy, Debug, Default)]
struct Sightings {
    /// The last answer that is known to show the server as writable.
    confirmed: Option<Instant>,
    /// The last answer. It may later prove to be the answer in which the server reported that it
    /// stepped down.
    latest: Option<Instant>,
}

impl Sightings {
    fn answered(&mut self, at: Instant) {
        // A single answer can be both the reply to a check and a measured round trip, but counts
        // only once.
        if self.latest != Some(at) {
            *self = Self { confirmed: self.latest.or(self.confirmed), latest: Some(at) };
        }
    }
}

/// The longest time that a streaming server is expected to take to answer, unless a longer time has
/// been observed. Equal to the default of `heartbeatFrequencyMS`.
const USUAL_WAIT: Duration = Duration::from_secs(10);
/// The time within which messages from two servers may arrive out of order.
const MOMENT: Duration = Duration::from_secs(1);

impl Facts {
    /// The events from which facts are derived.
    pub const INTEREST: Interest = Interest::DESCRIPTIONS.union(Interest::of(&[
        EventName::ServerHeartbeatStarted,
        EventName::ServerHeartbeatSucceeded,
        EventName::RttMeasured,
    ]));

    /// Creates the facts about a topology from which no event has been observed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Processes the next event and returns the resulting facts, usually none.
    pub fn observe(&mut self, event: &Event) -> Vec<Fact> {
        let mut facts = Vec::new();
        match &event.kind {
            EventKind::TopologyOpening => self.type_since = event.at,
            EventKind::ServerOpening { address, .. } => {
                let server = ServerFacts { since: event.at, ..ServerFacts::default() };
                self.servers.insert(address.clone(), server);
            }
            EventKind::ServerClosed { address, .. } => {
                self.servers.remove(address);
            }
            EventKind::ServerHeartbeatStarted(heartbeat) => {
                self.update(&heartbeat.address, |server| server.streams = heartbeat.awaited);
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, duration, .. } => {
                if heartbeat.awaited {
                    self.longest_wait = self.longest_wait.max(*duration);
                }
                self.answered(event.at, &heartbeat.address);
            }
            EventKind::RttMeasured { address, .. } => self.answered(event.at, address),
            EventKind::ServerSuspected { address, .. } => {
                self.update(address, |server| server.suspected = Some(event.at));
            }
            // A server that was lost stays suspect until it answers.
            EventKind::ServerSuspicionEnded { address, answered: true, .. } => {
                self.update(address, |server| server.suspected = None);
            }
            EventKind::ServerDescriptionChanged { previous, new } => {
                self.server_changed(event.at, previous, new, &mut facts);
            }
            EventKind::TopologyDescriptionChanged { new, .. } => {
                self.topology_changed(event.at, new, &mut facts);
            }
            _ => {}
        }
        facts
    }

    fn update(&mut self, address: &ServerAddress, change: impl FnOnce(&mut ServerFacts)) {
        if let Some(server) = self.servers.get_mut(address) {
            change(server);
        }
    }

    fn answered(&mut self, at: Instant, address: &ServerAddress) {
        self.update(address, |server| {
            server.last_answer = Some(at);
            server.suspected = None;
        });
        if self.primary.as_ref().is_none_or(|primary| primary == address) {
            self.sightings.answered(at);
        }
    }

    fn server_changed(
        &mut self,
        at: Instant,
        previous: &ServerDescription,
        new: &ServerDescription,
        facts: &mut Vec<Fact>,
    ) {
        if let (Some(outage), Some(named)) = (&mut self.outage, &new.primary)
            && Some(named) != outage.lost.as_ref()
        {
            outage.successor_named.get_or_insert(at);
        }
        let Some(server) = self.servers.get_mut(&new.address) else {
            return;
        };
        if server.server_type != new.server_type {
            server.server_type = new.server_type;
            server.since = at;
        }
        if previous.server_type.is_available() && !new.server_type.is_available() {
            server.losses += 1;
            self.last_lost = Some(new.address.clone());
            facts.push(Fact::ServerLost {
                at,
                address: new.address.clone(),
                losses: server.losses,
                reason: new.error.as_ref().map(|error| format!("{error:#}").into()),
            });
        }
    }

    fn topology_changed(&mut self, at: Instant, new: &TopologyDescription, facts: &mut Vec<Fact>) {
        if let Some(failover) = &mut self.last_failover
            && failover.may_be_explained(at)
            && let Some(old) = failover.outage.lost.as_ref().and_then(|lost| new.server(lost))
            && old.server_type.is_available()
            && old.server_type != ServerType::RsPrimary
        {
            failover.outage.loss = Loss::SteppedDown(old.server_type);
            facts.push(Fact::FailoverExplained(failover.clone()));
        }
        if new.topology_type() != self.topology_type {
            facts.push(self.change_type(at, new.topology_type()));
        }
        let primary = new.primary().map(|primary| primary.address.clone());
        let election_id = new.primary().and_then(|primary| primary.election.election_id);
        let old = self.primary.clone();
        if primary != old {
            facts.push(Fact::PrimaryChanged {
                at,
                old: old.clone(),
                new: primary.clone(),
                election_id,
            });
            self.primary.clone_from(&primary);
        }
        let was_writable = std::mem::replace(&mut self.writable, new.accepts_writes());
        let handed_over = old.is_some() && primary.is_some() && primary != old;
        // Only closing makes a known topology Unknown again. Closing is not an outage, and it ends
        // the current outage.
        let is_closed = new.topology_type() == TopologyType::Unknown;
        if let Some(outage) = self.outage.take_if(|_| is_closed) {
            self.without_before = self.without_before + outage.without_primary(at);
        }
        let outage = match (was_writable, self.writable) {
            (true, false) if is_closed => None,
            (true, false) => {
                let outage = self.start_outage(at, old, new);
                facts.push(Fact::OutageStarted(outage.clone()));
                self.outage = Some(outage);
                None
            }
            (false, true) => self.outage.take(),
            // The new primary answered before the loss of the old primary was noticed.
            (true, true) if handed_over => Some(self.start_outage(at, old, new)),
            _ => None,
        };
        if primary.is_some() && (handed_over || !was_writable) {
            self.sightings = Sightings { confirmed: Some(at), latest: None };
        }
        if let Some(outage) = outage {
            let failover = Failover { outage, new: primary, election_id, writable_again: at };
            facts.push(self.end_failover(failover));
        }
    }

    fn change_type(&mut self, at: Instant, new: TopologyType) -> Fact {
        let old = std::mem::replace(&mut self.topology_type, new);
        let lasted = at.since(self.type_since);
        self.type_since = at;
        Fact::TopologyTypeChanged { at, old, new, lasted }
    }

    fn start_outage(
        &self,
        at: Instant,
        lost: Option<ServerAddress>,
        new: &TopologyDescription,
    ) -> Outage {
        let address = lost.as_ref().or(self.last_lost.as_ref());
        let server = address.and_then(|address| new.server(address));
        let way = match (new.primary(), server) {
            (Some(primary), _) => Loss::Replaced(primary.address.clone()),
            (None, None) => Loss::Left,
            (None, Some(server)) => match &server.error {
                Some(error) => Loss::Failed(error.clone()),
                None if server.server_type.is_available() => Loss::SteppedDown(server.server_type),
                None => Loss::Left,
            },
        };
        let Sightings { confirmed, latest } = self.sightings;
        // A primary that steps down reports this in its last answer, so that answer does not prove
        // that the server was still writable.
        let seen = match way {
            Loss::SteppedDown(_) => confirmed,
            _ => latest.or(confirmed),
        };
        let last_writable = seen.unwrap_or(at);
        let is_overdue = at.since(last_writable) > self.longest_wait.max(USUAL_WAIT) + MOMENT;
        let facts = address.and_then(|address| self.servers.get(address));
        let suspected = facts.and_then(|facts| facts.suspected);
        let is_overdue = is_overdue || suspected.is_some();
        Outage {
            lost,
            loss: way,
            last_writable,
            suspected,
            noticed: at,
            streamed: facts.is_some_and(|facts| facts.streams) && !is_overdue,
            successor_named: None,
        }
    }

    fn end_failover(&mut self, failover: Failover) -> Fact {
        if let Some(before) = self.last_failover.replace(failover.clone()) {
            self.without_before = self.without_before + before.without_primary();
        }
        Fact::FailoverEnded(failover)
    }

    /// Returns the current primary.
    pub fn primary(&self) -> Option<&ServerAddress> {
        self.primary.as_ref()
    }

    /// Returns whether a server is writable.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns the current outage.
    pub fn outage(&self) -> Option<&Outage> {
        self.outage.as_ref()
    }

    /// Returns the last completed failover.
    pub fn last_failover(&self) -> Option<&Failover> {
        self.last_failover.as_ref()
    }

    /// Returns the total time without a writable server between the discovery of the first writable
    /// server and `now`. This total never decreases.
    pub fn time_without_writes(&self, now: Instant) -> Bounds {
        let last = self.last_failover.as_ref().map(|failover| {
            let Bounds { at_least, at_most } = failover.without_primary();
            let open = failover.may_be_explained(now);
            Bounds { at_least, at_most: if open { at_least } else { at_most } }
        });
        let current = self.outage.as_ref().map(|outage| outage.without_primary(now));
        self.without_before + last.unwrap_or_default() + current.unwrap_or_default()
    }

    /// Returns the facts about each server of the topology, sorted by address.
    pub fn servers(&self) -> impl Iterator<Item = (&ServerAddress, &ServerFacts)> {
        self.servers.iter()
    }

    /// Returns the facts about the server at `address`.
    pub fn server(&self, address: &ServerAddress) -> Option<&ServerFacts> {
        self.servers.get(address)
    }
}

/// A sink that derives facts from the events of one topology and calls a function with each fact.
pub struct FactSink<F = fn(&Fact)> {
    facts: Mutex<Facts>,
    tell: F,
}

impl<F: Fn(&Fact) + Send + Sync + 'static> FactSink<F> {
    /// Creates a sink that calls `tell` with each fact.
    pub fn new(tell: F) -> Self {
        Self { facts: Mutex::default(), tell }
    }
}

impl<F> FactSink<F> {
    /// Returns a copy of the current facts.
    pub fn facts(&self) -> Facts {
        lock(&self.facts).clone()
    }
}

impl Default for FactSink {
    /// Creates a sink that only collects the facts, and calls no function.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl<F: Fn(&Fact) + Send + Sync + 'static> EventSink for FactSink<F> {
    fn emit(&self, event: &Event) {
        // The function runs without the lock, so it may call `facts`.
        let facts = lock(&self.facts).observe(event);
        facts.iter().for_each(&self.tell);
    }

    fn interest(&self) -> Interest {
        Facts::INTEREST
    }
}

sdam_core::opaque!(FactSink<F>, |this| facts: this.facts);
