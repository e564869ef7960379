//! Runs test files against a topology in single-threaded mode.
//!
//! There is no runtime, and there are no tasks. Operations behave as with blocking sockets: each
//! operation advances the clock of the harness and completes. Every future of the topology must
//! therefore be ready at its first poll.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use futures::future::FutureExt;
use sdam::{SelectionError, select::LimitSource};
use sdam_core::{
    address::ServerAddress,
    event::EventKind,
    ids::{Generation, ServerId},
    options::{MIN_HEARTBEAT_FREQUENCY, Options},
    report::ErrorReport,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::channel;
use sdam_select::criteria::Criteria;
use sdam_testkit::{ManualClock, RecordingPools, Reply, Request, Server, Servers, fixed_reply};
use sdam_transport::{clock::Clock, runtime::Backend};
use serde_json::Value;

use crate::{
    running::{
        EventLog, ScanTopology, Selected, TopologyBuilder, builder, check_nothing_left,
        check_refusal, check_suitable, check_window, compare, encode, extra_seeds, hello,
        is_checked, is_hinted, members, standalone_hello, unexpected, with_seeds,
    },
    sdam::Subject,
    selection::{InWindowFile, RttFile, SelectionFile},
};

/// Returns whether a file from `server-selection/tests/in_window` applies to single-threaded mode.
/// Returns true for a malformed file, so that the check reports the error.
///
/// A single-threaded client chooses at random (Server Selection: "Selecting servers within the
/// latency window"). A choice by operation counts has the same result only if all counts are equal.
pub fn covers_in_window(file: &Value) -> bool {
    InWindowFile::parse(file).map_or(true, |file| file.is_balanced())
}

/// The delay before each reply.
const DELAY: Duration = Duration::from_millis(1);

/// Checks one file from `server-discovery-and-monitoring/tests`. Each reply in a phase answers one
/// check. A network error of a known server also answers a second check. Also verifies the number
/// of checks, that events are numbered without gaps, that every heartbeat ends, and that no
/// connection is left after the topology was closed.
pub fn discovery_and_monitoring(file: &Value) -> Result<(), String> {
    crate::sdam::check(file, Scanned::start)
}

/// A topology whose servers are checked one by one, when the script requires it.
struct Scanned {
    harness: Harness,
    topology: ScanTopology,
    events: EventLog,
}

impl Scanned {
    fn start(options: Options) -> Result<Self, String> {
        let harness = Harness::new();
        let (sink, events) = channel::unbounded();
        Ok(Self {
            topology: harness.start(options, |builder| builder.sink(sink))?,
            events: EventLog::new(events),
            harness,
        })
    }
}

impl Subject for Scanned {
    fn description(&self) -> Arc<TopologyDescription> {
        self.topology.description()
    }

    fn generations(&self) -> Result<BTreeMap<ServerId, Generation>, String> {
        Ok(self.harness.pools.generations())
    }

    fn events(&mut self) -> Result<Vec<EventKind>, String> {
        self.events.take(self.topology.id())
    }

    fn respond(&mut self, server: &ServerDescription, reply: Option<&[u8]>) -> Result<(), String> {
        let address = &server.address;
        // If the connection to a known server breaks, the server is immediately checked once more
        // (SDAM: "Network or command error during server check"). The new connection breaks, too.
        let times = if reply.is_none() && server.server_type.is_available() { 2 } else { 1 };
        self.harness.serve(address, DELAY, fixed_reply(reply.map(<[u8]>::to_vec)));
        ready(self.topology.check(server.id))?;
        match self.harness.servers.remove(address).len() {
            asked if asked == times => Ok(()),
            asked => Err(format!("expected {times} checks of {address}, got {asked}")),
        }
    }

    /// Does nothing: in this mode, a connection to a server that has left is closed.
    fn greet_late(&mut self, _: ServerId, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn fail(&mut self, server: ServerId, report: &ErrorReport) {
        self.topology.handle_error(server, report);
    }

    fn end(mut self) -> Result<(), String> {
        self.harness.close(&mut self.topology)?;
        self.events.end(self.topology.id())
    }
}

/// Checks one file from `server-selection/tests/server_selection` or `max-staleness/tests`. A scan
/// produces the description, and servers are selected from it with and without
/// `serverSelectionTryOnce`.
pub fn select(file: &Value) -> Result<(), String> {
    let file = SelectionFile::parse(file)?;
    let Some(criteria) = file.criteria()? else {
        return Ok(());
    };
    for try_once in [true, false] {
        let harness = Harness::new();
        let mut options = Options::new(Vec::new());
        options.heartbeat_frequency = file.heartbeat_frequency;
        options.server_selection_try_once = Some(try_once);
        let (mut topology, scan) = drive_to(&harness, &file.topology, options)?;
        if file.expects_error {
            let began = harness.now();
            check_refusal(ready(topology.select(criteria))?)?;
            if harness.now() > began {
                return Err("the selection scanned before it failed".to_owned());
            }
        } else {
            // The first failure makes the topology stale, so the second selection scans first.
            for _ in 0..2 {
                check_timeout(&mut topology, scan, criteria, &file.window)?;
            }
            let mut select = |criteria: &Criteria| try_select(&mut topology, criteria);
            check_suitable(&mut select, criteria, &file.suitable)?;
            if try_once {
                check_window(select, criteria, &file.window)?;
            }
        }
        harness.close(&mut topology)?;
    }
    Ok(())
}

/// Checks that a server in the window is selected or, if there is none, that the selection fails in
/// time and for the right reason. A scan must have just ended; `scan` is the duration of a scan.
fn check_timeout(
    topology: &mut ScanTopology,
    scan: Duration,
    criteria: &Criteria,
    window: &BTreeSet<ServerAddress>,
) -> Result<(), String> {
    let timeout = topology.options().server_selection_timeout;
    let (source, timeout) = if topology.options().server_selection_try_once == Some(false) {
        let earliest = timeout.saturating_sub(MIN_HEARTBEAT_FREQUENCY);
        (LimitSource::ServerSelectionTimeout, earliest..=timeout + scan)
    } else {
        let one_scan = MIN_HEARTBEAT_FREQUENCY + scan;
        (LimitSource::TryOnce, one_scan..=one_scan)
    };
    match ready(topology.select(criteria))? {
        Ok(selected) if window.contains(selected.address()) => Ok(()),
        Err(SelectionError::Timeout(error))
            if window.is_empty()
                && error.limit_source == source
                && timeout.contains(&error.waited) =>
        {
            Ok(())
        }
        Ok(selected) => Err(format!(
            "in_latency_window are {window:?}, but {} was selected",
            selected.address()
        )),
        Err(error) => Err(format!("expected {source:?} after {timeout:?}, got: {error}")),
    }
}

fn try_select(topology: &mut ScanTopology, criteria: &Criteria) -> Selected {
    match ready(topology.select(criteria))? {
        Ok(selected) => Ok(Some(selected.address().clone())),
        Err(SelectionError::Timeout(_)) => Ok(None),
        Err(error) => Err(unexpected(&error)),
    }
}

/// Checks how often each server is selected, for a file from `server-selection/tests/in_window`.
pub fn in_window(file: &Value) -> Result<(), String> {
    let (file, nearest) = (InWindowFile::parse(file)?, InWindowFile::criteria()?);
    let harness = Harness::new();
    let (mut topology, _) = drive_to(&harness, &file.topology, Options::new(Vec::new()))?;
    file.compare(|| try_select(&mut topology, &nearest))?;
    harness.close(&mut topology)
}

/// Checks one file from `server-selection/tests/rtt`: the average round-trip time of a server that
/// delays its replies to successive checks.
pub fn rtt(file: &Value) -> Result<(), String> {
    let file = RttFile::parse(file)?;
    let harness = Harness::new();
    let server = ServerAddress::new("a", 27017);
    let mut topology = harness.start(Options::new(vec![server.clone()]), |builder| builder)?;
    let find = |topology: &ScanTopology| topology.description().server(&server).cloned();
    let id = find(&topology).ok_or("the seed is not a server")?.id;
    let hello = standalone_hello(25)?;
    for sample in file.before.into_iter().chain([file.sample]) {
        let sample =
            Duration::try_from_secs_f64(sample / 1e3).map_err(|error| error.to_string())?;
        harness.serve(&server, sample, fixed_reply(Some(hello.clone())));
        ready(topology.check(id))?;
    }
    let rtt = find(&topology).and_then(|server| server.rtt);
    file.compare(rtt.map(|rtt| rtt.average.as_secs_f64() * 1e3))?;
    harness.close(&mut topology)
}

/// Creates a topology in `harness` and brings it to `target`. Types, round-trip times, tags and the
/// inputs of the staleness formula become those of `target`. Also returns the duration of the scan.
///
/// Servers that are unknown in `target` are unreachable. Possible primaries are also unreachable: a
/// scan checks them like other servers (SDAM: "Scanning order"), so no server is a possible primary
/// after a scan.
///
/// A scan checks servers one after another, so the times of their updates differ from those in
/// `target`. If there is a primary, only the time between a server's last write and its update
/// matters (Max Staleness: "Estimating Staleness"), so last writes are shifted by the same amount
/// as updates. If there is no primary, only last writes matter, and they are equal to those in
/// `target`.
///
/// # Errors
///
/// If the resulting description differs from `target`.
fn drive_to(
    harness: &Harness,
    target: &TopologyDescription,
    options: Options,
) -> Result<(ScanTopology, Duration), String> {
    let target = scannable(target);
    let moves = target.primary().is_some();
    for extra in &extra_seeds(&target) {
        harness.serve(extra, Duration::ZERO, fixed_reply(Some(standalone_hello(25)?)));
    }
    // No update may be earlier than in `target`.
    let updates = target.servers().iter();
    let updates = updates.filter_map(|server| server.last_update_time);
    harness.advance_to(updates.max().unwrap_or_default());
    let members = members(&target);
    for server in target.servers().iter().filter(|server| is_checked(server)) {
        let (own, members) = (Arc::clone(server), members.clone());
        let reply_at = move |update| encode(&hello(&updated(&own, update, moves)?, &members)?);
        reply_at(harness.now())?;
        let delay = server.rtt.map_or(Duration::ZERO, |rtt| rtt.average);
        let reply = Arc::new(move |request: &Request| reply_at(request.now).ok());
        harness.serve(&server.address, delay, reply);
    }
    let mut topology = harness.start(with_seeds(options, &target), |builder| builder)?;
    let began = harness.now();
    ready(topology.scan())?;
    let lasted = harness.now().since(began);
    let reached = topology.description();
    let mut expected = Vec::new();
    for server in target.servers() {
        let actual = reached.server(&server.address);
        let actual = actual.filter(|_| is_checked(server));
        expected.push(match actual.and_then(|actual| actual.last_update_time) {
            Some(update) => updated(server, update, moves)?,
            None => (**server).clone(),
        });
    }
    let expected = TopologyDescription::new(target.topology_type(), expected);
    compare(&expected, &reached)?;
    Ok((topology, lasted))
}

/// Returns the part of `target` that a scan can produce.
fn scannable(target: &TopologyDescription) -> TopologyDescription {
    let servers = target.servers().iter().map(|server| {
        let mut server = (**server).clone();
        if is_hinted(&server) {
            server.server_type = ServerType::Unknown;
        }
        server
    });
    TopologyDescription::new(target.topology_type(), servers)
}

/// Returns `server`, which is a server of the target, with `update` as the time of its update. If
/// `moves` is true, its last write is shifted by the same amount as its update.
fn updated(
    server: &ServerDescription,
    update: Instant,
    moves: bool,
) -> Result<ServerDescription, String> {
    let mut server = server.clone();
    if let Some(last_write) = server.last_write_date.as_mut().filter(|_| moves) {
        let late = update.since(server.last_update_time.unwrap_or_default());
        let millis = late.as_millis() as u64;
        if Duration::from_millis(millis) != late {
            return Err(format!("a last write cannot be {late:?} later"));
        }
        *last_write += millis as i64;
    }
    server.last_update_time = Some(update);
    Ok(server)
}

/// The environment for a topology.
#[derive(Debug)]
struct Harness {
    clock: ManualClock,
    servers: Servers,
    pools: RecordingPools,
}

impl Harness {
    /// Creates an environment in which no server is reachable.
    fn new() -> Self {
        let clock = ManualClock::jumping();
        Self {
            servers: Servers::new(clock.clone(), Server::refusing("the server is unreachable")),
            pools: RecordingPools::default(),
            clock,
        }
    }

    /// Starts the topology that `build` creates from `options`.
    fn start(
        &self,
        options: Options,
        build: impl FnOnce(TopologyBuilder) -> TopologyBuilder,
    ) -> Result<ScanTopology, String> {
        let (clock, servers) = (self.clock.clone(), self.servers.clone());
        let backend = Backend::new(Arc::new(clock), Arc::new(servers), 1);
        let topology = build(builder(options, &self.pools)?).scan(backend);
        topology.map_err(|error| error.to_string())
    }

    /// Makes the server at `address` reachable. It waits for `delay` before each reply.
    fn serve(&self, address: &ServerAddress, delay: Duration, reply: Reply) {
        let server = Server::computing(reply);
        self.servers.set(address, Server { delay, ..server });
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn advance_to(&self, instant: Instant) {
        self.clock.advance_to(instant);
    }

    /// Closes `topology`. Fails if a connection or pool is left.
    fn close(&self, topology: &mut ScanTopology) -> Result<(), String> {
        topology.close();
        check_nothing_left(&[
            ("connections", self.servers.connections()),
            ("pools", self.pools.generations().len()),
        ])
    }
}

/// Returns the result of `future`, which must be ready at its first poll.
fn ready<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let output = future.now_or_never();
    output.ok_or_else(|| "the future is pending".to_owned())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use sdam_core::options::Options;
    use sdam_select::criteria::Criteria;
    use serde_json::json;

    use super::{Harness, check_timeout, discovery_and_monitoring, drive_to, ready};
    use crate::{running::tests::file, selection::SelectionFile};

    #[test]
    fn a_response_of_an_unmonitored_server_fails() {
        let balanced = json!({
            "description": "load balancers are not checked",
            "uri": "mongodb://a/?loadBalanced=true",
            "phases": [{ "responses": [["a", { "ok": 1 }]], "outcome": { "events": [] } }],
        });
        let error = "phase 1: expected 1 checks of a:27017, got 0";
        assert_eq!(discovery_and_monitoring(&balanced), Err(error.to_owned()));
    }

    #[test]
    fn a_pending_future_fails() {
        assert_eq!(ready(async { 1 }), Ok(1));
        assert!(ready(futures::future::pending::<()>()).is_err());
    }

    #[test]
    fn a_selection_that_times_out_too_early_or_too_late_fails() {
        let file = file(&["b", "c"], &["b"]);
        let file = SelectionFile::parse(&file).unwrap();
        let nowhere = Criteria::write().with_selector(std::sync::Arc::new(
            |suitable: &mut sdam_select::candidate::Candidates<'_>| suitable.retain(|_| false),
        ));
        let verdict = |try_once: bool, wrong: Duration| {
            let harness = Harness::new();
            let mut options = Options::new(Vec::new());
            options.server_selection_try_once = Some(try_once);
            let (mut topology, scan) = drive_to(&harness, &file.topology, options).unwrap();
            assert_eq!(scan, Duration::from_millis(61));
            check_timeout(&mut topology, scan + wrong, &nowhere, &BTreeSet::new())
        };
        assert_eq!(verdict(true, Duration::ZERO), Ok(()));
        assert_eq!(verdict(false, Duration::ZERO), Ok(()));
        let error = verdict(true, Duration::from_millis(1)).unwrap_err();
        assert!(error.starts_with("expected TryOnce after 562ms..=562ms, got: "), "{error}");
    }
}
