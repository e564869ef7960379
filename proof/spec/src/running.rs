//! The environment and the checks that multi-threaded and single-threaded topologies share: servers
//! whose replies produce a given description, recorded events, and checks of selections.

#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bson::{DateTime, Document, doc};
use futures::{
    StreamExt,
    future::{Either, select},
};
use sdam::SelectionError;
use sdam_core::{
    address::ServerAddress,
    event::{Event, EventKind, EventName},
    ids::{ObjectId, ServerId},
    options::{Options, ServerMonitoringMode},
    read_preference::TagSet,
    server::{ServerDescription, ServerType},
    topology::{TopologyDescription, TopologyType},
};
use sdam_events::channel::EventStream;
use sdam_select::{candidate::Candidates, criteria::Criteria};
use sdam_testkit::{RecordingPool, RecordingPools};
use sdam_transport::{
    clock::Clock,
    handshake::{ClientMetadata, Environment},
    spawn::yield_now,
};

/// A topology with recording pools.
pub(crate) type Topology = sdam::Topology<RecordingPool>;
/// A builder for topologies with recording pools.
pub(crate) type TopologyBuilder = sdam::TopologyBuilder<RecordingPool>;
/// A single-threaded topology with recording pools.
pub(crate) type ScanTopology = sdam::ScanTopology<RecordingPool>;

/// Creates the builder for a topology that polls its servers and whose checks have no timeout.
pub(crate) fn builder(
    mut options: Options,
    pools: &RecordingPools,
) -> Result<TopologyBuilder, String> {
    options.server_monitoring_mode = ServerMonitoringMode::Poll;
    options.connect_timeout = None;
    let metadata = client_metadata()?;
    Ok(sdam::TopologyBuilder::new(options).metadata(metadata).pools(pools.clone()))
}

/// Returns the client metadata of the tests, without an application name.
pub(crate) fn client_metadata() -> Result<ClientMetadata, String> {
    let metadata = ClientMetadata::new(
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_VERSION"),
        &Environment::default(),
    );
    metadata.map_err(|error| error.to_string())
}

/// Fails if a number in `left` is not 0: a closed topology must not leave anything behind.
pub(crate) fn check_nothing_left(left: &[(&str, usize)]) -> Result<(), String> {
    match left.iter().find(|(_, number)| *number > 0) {
        Some((what, number)) => {
            Err(format!("{number} {what} are left after the topology was closed"))
        }
        None => Ok(()),
    }
}

/// Locks the mutex even if a test that held the lock panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The recorded events of a topology.
pub(crate) struct EventLog {
    events: EventStream,
    /// The number of the last event.
    last_seq: u64,
    /// Servers with a heartbeat in progress.
    in_progress: BTreeSet<ServerId>,
}

impl EventLog {
    pub(crate) fn new(events: EventStream) -> Self {
        Self { events, last_seq: 0, in_progress: BTreeSet::new() }
    }

    /// Returns the events of `topology` since the last call, and checks their order.
    pub(crate) fn take(&mut self, topology: ObjectId) -> Result<Vec<EventKind>, String> {
        let mut events = Vec::new();
        while let Some(event) = self.events.try_next() {
            self.last_seq += 1;
            if event.seq != self.last_seq || event.topology != topology {
                return Err(format!("expected event number {}, got {event:?}", self.last_seq));
            }
            let paired = match &event.kind {
                EventKind::ServerHeartbeatStarted(heartbeat) => {
                    self.in_progress.insert(heartbeat.server)
                }
                EventKind::ServerHeartbeatSucceeded { heartbeat, .. }
                | EventKind::ServerHeartbeatFailed { heartbeat, .. } => {
                    self.in_progress.remove(&heartbeat.server)
                }
                _ => true,
            };
            if !paired {
                return Err(format!("a heartbeat starts or ends twice: {event:?}"));
            }
            events.push(event.kind);
        }
        Ok(events)
    }

    /// Fails unless the remaining events are those of a properly closed topology.
    pub(crate) fn end(mut self, topology: ObjectId) -> Result<(), String> {
        let events = self.take(topology)?;
        if !self.in_progress.is_empty() {
            return Err(format!("heartbeats of {:?} have no end", self.in_progress));
        }
        match events.last().map(EventKind::name) {
            Some(EventName::TopologyClosed) => Ok(()),
            last => Err(format!("the last event is {last:?}, expected TopologyClosed")),
        }
    }
}

/// The server that is selected without waiting, or `None` if no server is suitable.
pub(crate) type Selected = Result<Option<ServerAddress>, String>;

/// The number of selections. It is large enough for every server in a latency window to be
/// selected.
const DRAWS: usize = 256;

/// Checks that a selection with invalid criteria fails with the right error.
pub(crate) fn check_refusal<S: Debug>(outcome: Result<S, SelectionError>) -> Result<(), String> {
    match outcome {
        Err(SelectionError::InvalidCriteria(_)) => Ok(()),
        Err(error) => Err(format!("failed with an unexpected error: {error}")),
        Ok(selected) => Err(format!("expected an error, selected {selected:?}")),
    }
}

/// Checks that a custom selector receives exactly the suitable servers.
pub(crate) fn check_suitable(
    mut select: impl FnMut(&Criteria) -> Selected,
    criteria: &Criteria,
    expected: &BTreeSet<ServerAddress>,
) -> Result<(), String> {
    let received = Arc::new(Mutex::new(BTreeSet::new()));
    let log = Arc::clone(&received);
    let selector = move |suitable: &mut Candidates<'_>| {
        let mut log = lock(&log);
        log.extend(suitable.iter().map(|candidate| candidate.address.clone()));
    };
    let criteria = criteria.clone().with_selector(Arc::new(selector));
    select(&criteria)?;
    let received = lock(&received);
    if *received == *expected {
        return Ok(());
    }
    Err(format!("suitable_servers are {received:?}, expected {expected:?}"))
}

/// Checks that every server in the window is selected, and no other server.
pub(crate) fn check_window(
    mut select: impl FnMut(&Criteria) -> Selected,
    criteria: &Criteria,
    expected: &BTreeSet<ServerAddress>,
) -> Result<(), String> {
    let mut actual = BTreeSet::new();
    for _ in 0..DRAWS {
        actual.extend(select(criteria)?);
    }
    if actual == *expected {
        return Ok(());
    }
    Err(format!("in_latency_window are {actual:?}, expected {expected:?}"))
}

pub(crate) fn unexpected(error: &SelectionError) -> String {
    format!("unexpected error: {error}")
}

pub(crate) const SET_NAME: &str = "rs";

/// Adds all servers of `target` and the extra seeds to the seeds in `options`.
pub(crate) fn with_seeds(mut options: Options, target: &TopologyDescription) -> Options {
    options.seeds = members(target).into_iter().chain(extra_seeds(target)).collect();
    match target.topology_type() {
        TopologyType::Unknown | TopologyType::Sharded => {}
        TopologyType::Single => options.direct_connection = Some(true),
        TopologyType::LoadBalanced => options.load_balanced = true,
        TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => {
            options.replica_set = Some(SET_NAME.into());
        }
    }
    options
}

/// Returns the addresses of the servers in `target`.
pub(crate) fn members(target: &TopologyDescription) -> Vec<ServerAddress> {
    let servers = target.servers().iter();
    servers.map(|server| server.address.clone()).collect()
}

/// Returns the additional seeds. They are needed to reach the target description, although it does
/// not contain them.
///
/// If a topology with several seeds finds that all of them are standalone servers, it has no
/// servers left. A server becomes a possible primary only if another server names it as the
/// primary.
pub(crate) fn extra_seeds(target: &TopologyDescription) -> Vec<ServerAddress> {
    let number = match target.servers() {
        [] => 2,
        servers => usize::from(servers.iter().any(|server| is_hinted(server))),
    };
    (0..number).map(|port| ServerAddress::new("extra", 1 + port as u16)).collect()
}

pub(crate) fn is_hinted(server: &ServerDescription) -> bool {
    server.server_type == ServerType::PossiblePrimary
}

/// Returns whether the server has answered a check.
pub(crate) fn is_checked(server: &ServerDescription) -> bool {
    server.server_type.is_available() && server.server_type != ServerType::LoadBalancer
}

/// Builds a hello reply that leads to the description `server`.
pub(crate) fn hello(
    server: &ServerDescription,
    members: &[ServerAddress],
) -> Result<Document, String> {
    let mut hello = base_hello(server.wire_versions.max);
    match server.server_type {
        ServerType::Standalone | ServerType::RsPrimary => {
            hello.insert("isWritablePrimary", true);
        }
        ServerType::Mongos => drop(hello.insert("msg", "isdbgrid")),
        ServerType::RsGhost => drop(hello.insert("isreplicaset", true)),
        ServerType::RsSecondary => drop(hello.insert("secondary", true)),
        other => return Err(format!("no reply makes a server {other}")),
    }
    if matches!(server.server_type, ServerType::RsPrimary | ServerType::RsSecondary) {
        let members: Vec<_> = members.iter().map(ToString::to_string).collect();
        hello.extend(doc! {
            "setName": SET_NAME, "hosts": members, "me": server.address.to_string(),
        });
    }
    if !server.tags.is_empty() {
        hello.insert("tags", tags(&server.tags));
    }
    if let Some(millis) = server.last_write_date {
        let date = DateTime::from_millis(millis);
        hello.insert("lastWrite", doc! { "lastWriteDate": date });
    }
    Ok(hello)
}

pub(crate) fn base_hello(max_wire_version: i32) -> Document {
    doc! { "ok": 1, "helloOk": true, "minWireVersion": 0, "maxWireVersion": max_wire_version }
}

/// Returns the hello reply of a standalone server.
pub(crate) fn standalone_hello(max_wire_version: i32) -> Result<Vec<u8>, String> {
    let mut hello = base_hello(max_wire_version);
    hello.insert("isWritablePrimary", true);
    encode(&hello)
}

fn tags(tags: &TagSet) -> Document {
    let tags = tags.iter();
    tags.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

pub(crate) fn encode(document: &Document) -> Result<Vec<u8>, String> {
    document.to_vec().map_err(|error| error.to_string())
}

/// Compares everything that is relevant to selection, except update times.
pub(crate) fn compare(
    target: &TopologyDescription,
    actual: &TopologyDescription,
) -> Result<(), String> {
    let servers = |topology: &TopologyDescription| -> Vec<_> {
        let servers = topology.servers().iter();
        let facts = servers.map(|server| {
            (
                server.address.clone(),
                server.server_type,
                server.tags.clone(),
                server.last_write_date,
                server.rtt.filter(|_| is_checked(server)).map(|rtt| rtt.average),
            )
        });
        facts.collect()
    };
    if target.topology_type() != actual.topology_type() || servers(target) != servers(actual) {
        return Err(not_reached(&format!("it is {actual}, expected {target}")));
    }
    Ok(())
}

pub(crate) fn not_reached(difference: &str) -> String {
    format!("the topology was not reached: {difference}")
}

/// Compares items with the expected ones, in order and without gaps. `what` is the name of an item
/// in error messages. If `admits_more` is true, further items may follow the expected ones.
pub(crate) fn compare_in_order<'a, E, A: Debug + 'a>(
    what: &str,
    expected: &[E],
    actual: impl IntoIterator<Item = &'a A>,
    admits_more: bool,
    compare: impl Fn(&E, &A) -> Result<(), String>,
) -> Result<(), String> {
    let mut actual = actual.into_iter();
    for (number, expected) in (1..).zip(expected) {
        let actual = actual.next().ok_or_else(|| format!("{what} {number} is missing"))?;
        compare(expected, actual).map_err(|error| format!("{what} {number}{error}"))?;
    }
    match actual.next() {
        Some(actual) if !admits_more => Err(format!("unexpected {what}: {actual:?}")),
        _ => Ok(()),
    }
}

/// The events that a client or a pool has published so far.
#[derive(Debug)]
pub(crate) struct Recorder {
    stream: EventStream,
    events: Vec<Event>,
}

impl Recorder {
    pub(crate) fn new(stream: EventStream) -> Self {
        Self { stream, events: Vec::new() }
    }

    /// Returns the recorded events.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Waits until `matches` accepts `count` recorded events, but no longer than `limit`.
    pub(crate) async fn wait_for(
        &mut self,
        clock: &dyn Clock,
        (count, limit): (usize, Duration),
        matches: impl Fn(&EventKind) -> bool,
    ) -> Result<(), String> {
        let deadline = clock.now() + limit;
        loop {
            let matching = self.count(&matches);
            if matching >= count {
                return Ok(());
            }
            match select(self.stream.next(), clock.sleep_until(deadline)).await {
                Either::Left((Some(event), _)) => self.events.push(event),
                Either::Left((None, _)) => return Err("the client has ended".to_owned()),
                Either::Right(_) => {
                    return Err(format!("only {matching} of {count} events arrived in time"));
                }
            }
        }
    }

    /// Returns the number of recorded events that `matches` accepts.
    pub(crate) fn count(&self, matches: impl Fn(&EventKind) -> bool) -> usize {
        let matching = self.events.iter().filter(|event| matches(&event.kind));
        matching.count()
    }

    /// Records all events that were published so far. `pending` returns the number of events that
    /// have not been delivered yet.
    pub(crate) async fn flush(&mut self, pending: impl Fn() -> usize) {
        loop {
            let is_delivered = pending() == 0;
            self.events.extend(std::iter::from_fn(|| self.stream.try_next()));
            if is_delivered {
                return;
            }
            yield_now().await;
        }
    }
}
