//! The audit of a whole record.

use std::{collections::BTreeMap, sync::Arc};

use sdam_core::{
    error::ErrorKind,
    event::{Event, EventKind, Heartbeat},
    ids::{Generation, ObjectId, ServerId, TopologyVersion},
    pool::PoolClear,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

use super::{Oracle, PoolCall, Violation, selections, unmeasured};

/// The state of a server at the current event of the record.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Server {
    description: Option<Arc<ServerDescription>>,
    heartbeat: Option<Heartbeat>,
    connection: u64,
    succeeded: bool,
    ready: bool,
    generation: Generation,
    services: BTreeMap<ObjectId, Generation>,
    open: bool,
    /// Whether the server was lost in a way that makes its connections stale, and its pool has not
    /// been cleared yet.
    owes_clear: bool,
    commands: Vec<PoolCall>,
}

/// The state of the audit of one record.
#[derive(Default)]
struct Audit {
    at: Instant,
    servers: BTreeMap<ServerId, Server>,
    topology: Arc<TopologyDescription>,
}

/// Checks the record of a closed topology: all its events of the kinds `SDAM` and `POOLS`, in
/// order, and all calls to its pools. Other events may be included; those of selections must be
/// complete or absent.
///
/// # Errors
///
/// The first violation.
pub fn audit(events: &[Event], calls: &[(ServerId, PoolCall)]) -> Result<(), Violation> {
    let mut audit = Audit::default();
    let mut told = events
        .iter()
        .filter(|event| is_told(&event.kind))
        .peekable();
    let topology = events.first().map(|event| event.topology);
    numbers(events)?;
    selections::pairs(events)?;
    let mut first = true;
    while let Some(event) = told.next() {
        audit.at = event.at;
        let ends = matches!(event.kind, EventKind::TopologyClosed);
        audit.ensure(Some(event.topology) == topology, Oracle::Story, || {
            "J-41: an event of another topology".into()
        })?;
        let opens = matches!(event.kind, EventKind::TopologyOpening);
        audit.ensure(first == opens, Oracle::Story, || {
            format!("J-13: the first event is {:?}", event.kind.name())
        })?;
        audit.ensure(told.peek().is_none() == ends, Oracle::Story, || {
            format!("J-13: the last event is {:?}", event.kind.name())
        })?;
        first = false;
        audit.event(&event.kind)?;
    }
    audit.end(calls)
}

/// Returns whether the event reports a change of the topology, and not an input or a selection.
fn is_told(kind: &EventKind) -> bool {
    !matches!(
        kind,
        EventKind::Input(_)
            | EventKind::ServerSelectionStarted { .. }
            | EventKind::ServerSelectionWaiting { .. }
            | EventKind::ServerSelectionSucceeded { .. }
            | EventKind::ServerSelectionFailed { .. }
    )
}

/// Checks P4: events are numbered without gaps, and time does not go back.
fn numbers(events: &[Event]) -> Result<(), Violation> {
    let mut last = (0, Instant::EPOCH);
    for event in events {
        if event.seq != last.0 + 1 {
            let message = format!("event {} follows event {}", event.seq, last.0);
            return Err(Oracle::Sequence.violated(event.at, message));
        }
        if event.at < last.1 {
            let message = format!("event {} is older than its predecessor", event.seq);
            return Err(Oracle::Story.violated(event.at, message));
        }
        last = (event.seq, event.at);
    }
    Ok(())
}

impl Audit {
    fn ensure(
        &self,
        holds: bool,
        oracle: Oracle,
        message: impl FnOnce() -> String,
    ) -> Result<(), Violation> {
        if holds {
            Ok(())
        } else {
            Err(oracle.violated(self.at, message()))
        }
    }

    fn server(&mut self, id: ServerId) -> Result<&mut Server, Violation> {
        let missing = Oracle::Story.violated(self.at, format!("server {id} was never opened"));
        self.servers.get_mut(&id).ok_or(missing)
    }

    fn event(&mut self, kind: &EventKind) -> Result<(), Violation> {
        match kind {
            EventKind::TopologyDescriptionChanged { previous, new } => {
                self.topology_changed(previous, new)
            }
            EventKind::ServerOpening { server, .. } => {
                let known = self.servers.contains_key(server);
                self.ensure(!known, Oracle::Story, || {
                    format!("server {server} opens again")
                })?;
                self.servers.entry(*server).or_default().open = true;
                Ok(())
            }
            EventKind::ServerClosed { server, .. } => {
                let was_open = std::mem::take(&mut self.server(*server)?.open);
                self.ensure(was_open, Oracle::Story, || {
                    format!("server {server} closes twice")
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
        if let Some(server) = unmeasured(new) {
            let message = format!("C-20: {server} was never measured");
            return Err(Oracle::RoundTrip.violated(self.at, message));
        }
        self.ensure(*previous == self.topology, Oracle::Story, || {
            format!(
                "the topology was {}, and changes from {previous}",
                self.topology
            )
        })?;
        self.ensure(previous != new, Oracle::Story, || {
            format!("J-18: the topology changes from {previous} to itself")
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
        let told = server.description.replace(Arc::clone(new));
        let open = server.open;
        // By the specification's rule for connections, a network error makes them stale.
        server.owes_clear = new.server_type == ServerType::Unknown
            && previous.server_type.is_available()
            && new
                .error
                .as_ref()
                .is_some_and(|error| matches!(error.kind, ErrorKind::Network | ErrorKind::Timeout));
        self.ensure(open, Oracle::Story, || {
            format!("server {id} changes while it is not open")
        })?;
        self.ensure(previous != new, Oracle::Story, || {
            format!("J-18: server {id} changes from {previous} to itself")
        })?;
        // J-19: a primary hint (PossiblePrimary) only appears in the topology.
        if let Some(told) = told
            && previous.server_type != ServerType::PossiblePrimary
        {
            self.ensure(told == *previous, Oracle::Story, || {
                format!("server {id} was {told}, and changes from {previous}")
            })?;
        }
        if TopologyVersion::compare(previous.topology_version, new.topology_version).is_gt() {
            let message = format!("A-45: {new} replaces {previous}, which is newer");
            return Err(Oracle::Freshness.violated(at, message));
        }
        Ok(())
    }

    fn ready(&mut self, id: ServerId) -> Result<(), Violation> {
        let at = self.at;
        let server = self.server(id)?;
        // Servers behind a load balancer are not monitored.
        let balanced = server.description.is_none() && server.connection == 0;
        if !server.succeeded && !balanced {
            let message =
                format!("J-24: the pool of server {id} is ready before a check succeeded");
            return Err(Oracle::Pools.violated(at, message));
        }
        if server.ready {
            let message = format!("the pool of server {id} is ready twice");
            return Err(Oracle::Pools.violated(at, message));
        }
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
        // A service that returns gets a generation above all earlier ones.
        let leaps = clear.service_id.is_some() && clear.generation > *last;
        if !leaps && clear.generation != last.next() {
            let message = format!(
                "the pool of server {id} goes from generation {last} to {}",
                clear.generation
            );
            return Err(Oracle::Sequence.violated(at, message));
        }
        *last = clear.generation;
        server.commands.push(PoolCall::Clear(clear.clone()));
        if clear.service_id.is_some() {
            return Ok(());
        }
        server.ready = false;
        server.owes_clear = false;
        let description = server.description.as_ref();
        if description.is_some_and(|server| server.server_type.is_available()) {
            let message = format!("F-64: the pool of server {id} is cleared, which is not Unknown");
            return Err(Oracle::Pools.violated(at, message));
        }
        Ok(())
    }

    fn started(&mut self, heartbeat: &Heartbeat) -> Result<(), Violation> {
        let (at, id) = (self.at, heartbeat.server);
        let server = self.server(id)?;
        let number = heartbeat.connection.driver;
        if let Some(running) = server.heartbeat.replace(heartbeat.clone()) {
            let message = format!("P6: a second check of {}: {running:?}", heartbeat.address);
            return Err(Oracle::Cadence.violated(at, message));
        }
        if number < server.connection {
            let message = format!("connection {number} follows {}", server.connection);
            return Err(Oracle::Heartbeats.violated(at, message));
        }
        server.connection = number;
        Ok(())
    }

    fn ended(&mut self, heartbeat: &Heartbeat) -> Result<&mut Server, Violation> {
        let at = self.at;
        let server = self.server(heartbeat.server)?;
        let started = server.heartbeat.take();
        let pairs = started.as_ref().is_some_and(|started| {
            started.awaited == heartbeat.awaited
                && started.connection.driver == heartbeat.connection.driver
        });
        if !pairs {
            let message = format!("J-31: {heartbeat:?} ends, and {started:?} was started");
            return Err(Oracle::Heartbeats.violated(at, message));
        }
        Ok(server)
    }

    /// Checks the state after the last event.
    fn end(&self, calls: &[(ServerId, PoolCall)]) -> Result<(), Violation> {
        let gone = self.topology.servers().is_empty()
            && self.topology.topology_type() == TopologyType::Unknown;
        self.ensure(gone, Oracle::Story, || {
            format!("J-20: the closed topology is {}", self.topology)
        })?;
        for (id, server) in &self.servers {
            self.ensure(!server.open, Oracle::Story, || {
                format!("server {id} was never closed")
            })?;
            self.ensure(server.heartbeat.is_none(), Oracle::Heartbeats, || {
                format!("J-31: a check of server {id} never ended")
            })?;
            self.ensure(!server.owes_clear, Oracle::Pools, || {
                format!("F-50: server {id} was lost, and its pool was never cleared")
            })?;
            let own = calls.iter().filter(|(server, _)| server == id);
            let own: Vec<&PoolCall> = own.map(|(_, call)| call).collect();
            let mut expected: Vec<&PoolCall> = server.commands.iter().collect();
            expected.push(&PoolCall::Close);
            self.ensure(own == expected, Oracle::Pools, || {
                format!("the pool of server {id} was told {own:?}, and events say {expected:?}")
            })?;
        }
        Ok(())
    }
}
