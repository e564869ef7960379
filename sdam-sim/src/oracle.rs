//! Invariants that the record of a topology must satisfy.
//!
//! [`audit`] checks a complete record: every event of a closed topology and every call to its
//! pools. It does not depend on the simulation, so tests with real servers also use it.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use sdam_core::{
    error::ErrorKind,
    event::{Event, EventKind, EventName, Heartbeat, Selection},
    ids::{Generation, ObjectId, ServerId, TopologyVersion},
    pool::PoolClear,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

/// An invariant, with its name in tables and files. Some are numbered `P1` to `P10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[derive(strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Oracle {
    /// P1: there is at most one primary, and the topology type agrees with the servers.
    #[strum(serialize = "P1-one-primary")]
    OnePrimary,
    /// P2: an election is only replaced by a newer one.
    #[strum(serialize = "P2-election")]
    Election,
    /// P3: every selectable server's pool is ready, and a failed server's pool is cleared.
    #[strum(serialize = "P3-pools")]
    Pools,
    /// P4: event numbers and pool generations have no gaps.
    #[strum(serialize = "P4-sequence")]
    Sequence,
    /// P5: every heartbeat that was started ends exactly once.
    #[strum(serialize = "P5-heartbeats")]
    Heartbeats,
    /// P6: checks are neither too early nor too late.
    #[strum(serialize = "P6-cadence")]
    Cadence,
    /// P7: no task, pool, timer or connection outlives its server.
    #[strum(serialize = "P7-leaks")]
    Leaks,
    /// P8: after all faults have been healed, the description matches the deployment.
    #[strum(serialize = "P8-convergence")]
    Convergence,
    /// P9: no selection waits while a suitable server exists, or waits longer than its timeout.
    #[strum(serialize = "P9-waiters")]
    Waiters,
    /// P10: closing a topology completes without delay.
    #[strum(serialize = "P10-close")]
    Close,
    /// Events are continuous: each change starts from the final state of the previous one.
    Continuity,
    /// Known state is never replaced by older state.
    Freshness,
    /// Every available server, except a load balancer, has a round-trip time. Selection needs
    /// it to compare servers.
    RoundTrip,
    /// Reported errors have the effects that SDAM specifies.
    Errors,
    /// If TLS is enabled, no plain text is sent. If a proxy is configured, all connections use
    /// it.
    Wire,
    /// Each error names the stage at which it occurred.
    Stages,
    /// A command succeeds only if it gets its own reply. A connection that received any other
    /// message is not used again.
    Replies,
    /// Selected servers are suitable, and every selection that was started ends exactly once.
    Selection,
    /// The numbers of tasks, timers, connections and undelivered events are bounded.
    Memory,
    /// No task runs too often, and tasks do not run endlessly while no time passes.
    BusyLoop,
    /// Nothing panics.
    Panic,
    /// A server is reported as silent only if it is known and does not answer, and the end of
    /// each silence is reported.
    Silence,
    /// The same seed yields the same run.
    Determinism,
    /// Replaying the recorded inputs of a client reproduces its events.
    Replay,
}

impl Oracle {
    /// Creates a violation of this invariant at `at`.
    pub fn violated(self, at: Instant, message: impl Into<String>) -> Violation {
        Violation { oracle: self, at, message: message.into() }
    }

    /// Returns a violation of this invariant at `at`, unless it holds.
    pub fn ensure(
        self,
        at: Instant,
        holds: bool,
        message: impl FnOnce() -> String,
    ) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(self.violated(at, message())) }
    }
}

/// Returns the first available server of `topology` that has no round-trip time, although selection
/// would compare its round-trip time with those of other servers ([`Oracle::RoundTrip`]).
pub fn without_round_trip_time(topology: &TopologyDescription) -> Option<&ServerDescription> {
    let mut servers = topology.servers().iter();
    let without_round_trip_time = servers.find(|server| {
        server.server_type.is_available()
            && server.server_type != ServerType::LoadBalancer
            && server.rtt.is_none()
    });
    without_round_trip_time.map(|server| &**server)
}

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{oracle} at {at:?}: {message}")]
pub struct Violation {
    /// The violated invariant.
    pub oracle: Oracle,
    /// The time at which the violation was detected.
    pub at: Instant,
    /// A description of the violation.
    pub message: String,
}

/// A call to a connection pool.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PoolCall {
    /// Connections may be opened.
    Ready,
    /// Connections of earlier generations are stale.
    Clear(PoolClear),
    /// The server has been removed.
    Close,
}

/// The calls to all pools of a topology, in order.
pub type PoolCalls = Vec<(ServerId, PoolCall)>;

/// The state of a server at the current event in the record.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "the facts are independent")]
struct Server {
    description: Option<Arc<ServerDescription>>,
    heartbeat: Option<Heartbeat>,
    connection: u64,
    succeeded: bool,
    ready: bool,
    generation: Generation,
    services: BTreeMap<ObjectId, Generation>,
    open: bool,
    /// True if the server has failed in a way that makes its connections stale, but its pool has
    /// not been cleared yet.
    clear_pending: bool,
    commands: Vec<PoolCall>,
}

/// The audit state of one record.
#[derive(Default)]
struct Audit {
    at: Instant,
    servers: BTreeMap<ServerId, Server>,
    topology: Arc<TopologyDescription>,
}

/// Checks the record of a closed topology: all events of the kinds `SDAM` and `POOL_STATES`, in
/// order, and all calls to the pools. The record may also contain events of other kinds. It must
/// contain either all selection events or none of them.
///
/// # Errors
///
/// Returns the first violation.
pub fn audit(events: &[Event], calls: &[(ServerId, PoolCall)]) -> Result<(), Violation> {
    let mut audit = Audit::default();
    let mut reported = events.iter().filter(|event| is_change(&event.kind)).peekable();
    let topology = events.first().map(|event| event.topology);
    check_numbers(events)?;
    check_pairs(events)?;
    let mut first = true;
    while let Some(event) = reported.next() {
        audit.at = event.at;
        let is_closing = matches!(event.kind, EventKind::TopologyClosed);
        Oracle::Continuity.ensure(event.at, Some(event.topology) == topology, || {
            "J-41: the event belongs to another topology".into()
        })?;
        let is_opening = matches!(event.kind, EventKind::TopologyOpening);
        Oracle::Continuity.ensure(event.at, first == is_opening, || {
            format!("J-13: the first event is {:?}", event.kind.name())
        })?;
        Oracle::Continuity.ensure(event.at, reported.peek().is_none() == is_closing, || {
            format!("J-13: the last event is {:?}", event.kind.name())
        })?;
        first = false;
        audit.event(&event.kind)?;
    }
    audit.end(calls)
}

/// Returns whether the event reports a change of the topology, as opposed to an input or a
/// selection.
fn is_change(kind: &EventKind) -> bool {
    matches!(
        kind.name(),
        EventName::TopologyOpening
            | EventName::TopologyDescriptionChanged
            | EventName::TopologyClosed
            | EventName::ConfigWarning
            | EventName::ServerOpening
            | EventName::ServerDescriptionChanged
            | EventName::ServerClosed
            | EventName::MembersIgnored
            | EventName::TopologyEmptied
            | EventName::SrvHostsIgnored
            | EventName::SrvLookupFailed
            | EventName::ServerUnusable
            | EventName::ServerSuspected
            | EventName::ServerSuspicionEnded
            | EventName::EventsDropped
            | EventName::ServerHeartbeatStarted
            | EventName::ServerHeartbeatSucceeded
            | EventName::ServerHeartbeatFailed
            | EventName::PoolReady
            | EventName::PoolCleared
    )
}

/// Checks that events are numbered without gaps (P4), and that time never goes back.
fn check_numbers(events: &[Event]) -> Result<(), Violation> {
    let mut last = (0, Instant::EPOCH);
    for event in events {
        Oracle::Sequence.ensure(event.at, event.seq == last.0 + 1, || {
            format!("event {} is delivered after event {}", event.seq, last.0)
        })?;
        Oracle::Continuity.ensure(event.at, event.at >= last.1, || {
            format!("event {} is older than the previous event", event.seq)
        })?;
        last = (event.seq, event.at);
    }
    Ok(())
}

impl Audit {
    fn server(&mut self, id: ServerId) -> Result<&mut Server, Violation> {
        let missing =
            Oracle::Continuity.violated(self.at, format!("server {id} has no ServerOpening event"));
        self.servers.get_mut(&id).ok_or(missing)
    }

    fn event(&mut self, kind: &EventKind) -> Result<(), Violation> {
        match kind {
            EventKind::TopologyDescriptionChanged { previous, new } => {
                self.topology_changed(previous, new)
            }
            EventKind::ServerOpening { server, .. } => {
                let known = self.servers.contains_key(server);
                Oracle::Continuity.ensure(self.at, !known, || {
                    format!("server {server} has a second ServerOpening event")
                })?;
                self.servers.entry(*server).or_default().open = true;
                Ok(())
            }
            EventKind::ServerClosed { server, .. } => {
                let was_open = std::mem::take(&mut self.server(*server)?.open);
                Oracle::Continuity.ensure(self.at, was_open, || {
                    format!("server {server} has a second ServerClosed event")
                })
            }
            EventKind::ServerDescriptionChanged { previous, new } => {
                self.server_changed(previous, new)
            }
            EventKind::PoolReady { server, .. } => self.ready(*server),
            EventKind::PoolCleared { server, clear, .. } => self.cleared(*server, clear),
            EventKind::ServerHeartbeatStarted(heartbeat) => self.started(heartbeat),
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => {
                self.ended(heartbeat)?.succeeded = true;
                Ok(())
            }
            EventKind::ServerHeartbeatFailed { heartbeat, .. } => self.ended(heartbeat).map(drop),
            _ => Ok(()),
        }
    }

    fn topology_changed(
        &mut self,
        previous: &Arc<TopologyDescription>,
        new: &Arc<TopologyDescription>,
    ) -> Result<(), Violation> {
        if let Some(server) = without_round_trip_time(new) {
            let message = format!("C-20: {server} has no round-trip time");
            return Err(Oracle::RoundTrip.violated(self.at, message));
        }
        Oracle::Continuity.ensure(self.at, *previous == self.topology, || {
            format!("the topology was {}, but the event changes it from {previous}", self.topology)
        })?;
        Oracle::Continuity.ensure(self.at, previous != new, || {
            format!("J-18: an event changes the topology from {previous} to the same value")
        })?;
        self.topology = Arc::clone(new);
        Ok(())
    }

    fn server_changed(
        &mut self,
        previous: &Arc<ServerDescription>,
        new: &Arc<ServerDescription>,
    ) -> Result<(), Violation> {
        let (at, id) = (self.at, new.id);
        let server = self.server(id)?;
        let reported = server.description.replace(Arc::clone(new));
        let open = server.open;
        // A network error makes the server's connections stale (SDAM), so its pool must be cleared.
        // Clearing a paused pool publishes no event.
        server.clear_pending = server.ready
            && new.server_type == ServerType::Unknown
            && previous.server_type.is_available()
            && new.error.as_ref().is_some_and(|error| {
                matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout)
            });
        Oracle::Continuity
            .ensure(self.at, open, || format!("server {id} changes, but it is not open"))?;
        Oracle::Continuity.ensure(self.at, previous != new, || {
            format!("J-18: an event changes server {id} from {previous} to the same value")
        })?;
        Oracle::Continuity.ensure(
            self.at,
            new.server_type != ServerType::PossiblePrimary,
            || format!("J-19: an event makes server {id} a PossiblePrimary"),
        )?;
        // The type PossiblePrimary appears in topology descriptions, but not in server events
        // (J-19).
        if let Some(reported) = reported
            && previous.server_type != ServerType::PossiblePrimary
        {
            Oracle::Continuity.ensure(self.at, reported == *previous, || {
                format!("server {id} was {reported}, but the event changes it from {previous}")
            })?;
        }
        let order = TopologyVersion::compare(previous.topology_version, new.topology_version);
        Oracle::Freshness.ensure(at, order.is_le(), || {
            format!("A-45: {new} replaces {previous}, which has a newer topology version")
        })
    }

    fn ready(&mut self, id: ServerId) -> Result<(), Violation> {
        let at = self.at;
        let server = self.server(id)?;
        // Load balancers are not monitored, so their pools become ready without a check.
        let is_load_balanced = server.description.is_none() && server.connection == 0;
        Oracle::Pools.ensure(at, server.succeeded || is_load_balanced, || {
            format!("J-24: the pool of server {id} becomes ready before a check has succeeded")
        })?;
        Oracle::Pools.ensure(at, !server.ready, || {
            format!("the pool of server {id} becomes ready while it is ready")
        })?;
        server.ready = true;
        server.commands.push(PoolCall::Ready);
        Ok(())
    }

    fn cleared(&mut self, id: ServerId, clear: &PoolClear) -> Result<(), Violation> {
        let at = self.at;
        let server = self.server(id)?;
        let last = match clear.service_id {
            Some(service) => server.services.entry(service).or_default(),
            None => &mut server.generation,
        };
        // There may be gaps between generations: a service that reappears gets a higher generation
        // than all its earlier ones, and clearing a paused pool publishes no event.
        Oracle::Sequence.ensure(at, clear.generation > *last, || {
            format!("the pool of server {id} goes from generation {last} to {}", clear.generation)
        })?;
        *last = clear.generation;
        server.commands.push(PoolCall::Clear(clear.clone()));
        if clear.service_id.is_some() {
            return Ok(());
        }
        Oracle::Pools.ensure(at, std::mem::take(&mut server.ready), || {
            format!("the pool of server {id} is cleared while it is paused")
        })?;
        server.clear_pending = false;
        let known = server.description.as_ref().is_some_and(|own| own.server_type.is_available());
        Oracle::Pools.ensure(at, !known, || {
            format!("F-64: the pool of server {id} is cleared, but the server is not Unknown")
        })
    }

    fn started(&mut self, heartbeat: &Heartbeat) -> Result<(), Violation> {
        let (at, id) = (self.at, heartbeat.server);
        let server = self.server(id)?;
        let number = heartbeat.connection.driver;
        let running = server.heartbeat.replace(heartbeat.clone());
        Oracle::Cadence.ensure(at, running.is_none(), || {
            format!("P6: a check starts while another one is running: {heartbeat:?}, {running:?}")
        })?;
        Oracle::Heartbeats.ensure(at, number >= server.connection, || {
            format!("connection {number} is used after connection {}", server.connection)
        })?;
        server.connection = number;
        Ok(())
    }

    fn ended(&mut self, heartbeat: &Heartbeat) -> Result<&mut Server, Violation> {
        let at = self.at;
        let server = self.server(heartbeat.server)?;
        let started = server.heartbeat.take();
        let check_pairs = started.as_ref().is_some_and(|started| {
            started.awaited == heartbeat.awaited
                && started.connection.driver == heartbeat.connection.driver
        });
        Oracle::Heartbeats.ensure(at, check_pairs, || {
            format!("J-31: {heartbeat:?} ends, but {started:?} was started")
        })?;
        Ok(server)
    }

    /// Checks the state after the last event.
    fn end(&self, calls: &[(ServerId, PoolCall)]) -> Result<(), Violation> {
        let is_empty = self.topology.servers().is_empty()
            && self.topology.topology_type() == TopologyType::Unknown;
        Oracle::Continuity.ensure(self.at, is_empty, || {
            format!("J-20: the topology is not empty when it is closed: {}", self.topology)
        })?;
        for (id, server) in &self.servers {
            Oracle::Continuity.ensure(self.at, !server.open, || {
                format!("server {id} has no ServerClosed event")
            })?;
            Oracle::Heartbeats.ensure(self.at, server.heartbeat.is_none(), || {
                format!("J-31: a check of server {id} has no end")
            })?;
            Oracle::Pools.ensure(self.at, !server.clear_pending, || {
                format!("F-50: server {id} failed, but its pool was not cleared")
            })?;
            let received = calls.iter().filter(|(server, _)| server == id);
            let received: Vec<&PoolCall> = received.map(|(_, call)| call).collect();
            let mut generation = Generation::FIRST;
            for call in &received {
                let PoolCall::Clear(clear) = call else { continue };
                if clear.service_id.is_none() {
                    let last = std::mem::replace(&mut generation, clear.generation);
                    Oracle::Sequence.ensure(self.at, generation == last.next(), || {
                        format!(
                            "the pool of server {id} goes from generation {last} to {generation}"
                        )
                    })?;
                }
            }
            // Clearing a paused pool is a call, but publishes no event (CMAP).
            let is_silent = |call: &PoolCall| matches!(call, PoolCall::Clear(it) if it.was_paused);
            let received: Vec<_> = received.into_iter().filter(|call| !is_silent(call)).collect();
            let mut expected: Vec<&PoolCall> = server.commands.iter().collect();
            expected.push(&PoolCall::Close);
            Oracle::Pools.ensure(self.at, received == expected, || {
                format!(
                    "the pool of server {id} received {received:?}, but the events are {expected:?}"
                )
            })?;
        }
        Ok(())
    }
}

/// Checks that every started selection waits at most once and ends exactly once, before the
/// topology is closed (K-7, K-8).
fn check_pairs(events: &[Event]) -> Result<(), Violation> {
    // The unfinished selections, each with a flag that is true if it has waited.
    let mut open: BTreeMap<*const Selection, (&Selection, bool)> = BTreeMap::new();
    for event in events {
        let violation = |message: &str, selection: &Selection| {
            let message = format!("K-7: {message}: {selection:?}");
            Err(Oracle::Selection.violated(event.at, message))
        };
        match &event.kind {
            EventKind::ServerSelectionStarted { selection, .. }
                if open.insert(Arc::as_ptr(selection), (selection, false)).is_some() =>
            {
                return violation("a selection has two start events", selection);
            }
            EventKind::ServerSelectionWaiting { selection, .. } => {
                let own = open.get_mut(&Arc::as_ptr(selection));
                if own.is_none_or(|(_, has_waited)| std::mem::replace(has_waited, true)) {
                    return violation(
                        "a selection waits twice, or without a start event",
                        selection,
                    );
                }
            }
            EventKind::ServerSelectionSucceeded { selection, .. }
            | EventKind::ServerSelectionFailed { selection, .. }
                if open.remove(&Arc::as_ptr(selection)).is_none() =>
            {
                return violation("a selection ends twice, or without a start event", selection);
            }
            EventKind::TopologyClosed => {
                if let Some((selection, _)) = open.values().next() {
                    return violation("a selection has no end event", selection);
                }
            }
            _ => {}
        }
    }
    Ok(())
}
