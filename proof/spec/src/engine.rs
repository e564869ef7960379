//! Runs test files against a running topology, on any runtime.
//!
//! The client is real; only its environment is simulated. Tasks run on a [`Host`]. Connections lead
//! to [`Servers`], which reply as the file requires. Time advances only when a file needs it, so no
//! real time is spent on waiting. [`activity`] detects when the engine has processed its input.

pub mod activity;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bson::doc;
use sdam::SelectionError;
use sdam_core::{
    address::ServerAddress,
    event::EventKind,
    ids::{Generation, ServerId},
    options::Options,
    report::ErrorReport,
    server::ServerDescription,
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::channel;
use sdam_select::{candidate::Candidates, criteria::Criteria};
use sdam_testkit::{ManualClock, RecordingPools, Server, Servers};
use sdam_transport::{
    clock::Clock,
    runtime::{Backend, Runtime},
};
use serde_json::Value;

use self::activity::Activity;
use crate::{
    host::Host,
    running::{
        EventLog, SET_NAME, Selected, Topology, TopologyBuilder, base_hello, builder,
        check_nothing_left, check_refusal, check_suitable, check_window, compare, encode,
        extra_seeds, hello, is_checked, is_hinted, members, not_reached, standalone_hello,
        unexpected, with_seeds,
    },
    sdam::Subject,
    selection::{InWindowFile, RttFile, SelectionFile},
};

/// Runs a file from `server-discovery-and-monitoring/tests` against a running topology.
///
/// Also checks that the topology runs one check per server at a time, that events are numbered
/// without gaps, that every heartbeat ends, and that no task or connection is left after closing.
pub fn discovery_and_monitoring(host: &Host, file: &Value) -> Result<(), String> {
    crate::sdam::check(file, |options| Engine::start(host, options))
}

/// A running topology with scripted servers.
struct Engine<'h> {
    harness: Harness<'h>,
    topology: Topology,
    events: EventLog,
}

impl<'h> Engine<'h> {
    fn start(host: &'h Host, options: Options) -> Result<Self, String> {
        let harness = Harness::new(host);
        let (sink, events) = channel::unbounded();
        let topology = harness.start(options, |builder| builder.sink(sink))?;
        Ok(Self { harness, topology, events: EventLog::new(events) })
    }
}

impl Subject for Engine<'_> {
    fn description(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.topology.snapshot().description())
    }

    fn generations(&self) -> Result<BTreeMap<ServerId, Generation>, String> {
        Ok(self.harness.pools.generations())
    }

    fn events(&mut self) -> Result<Vec<EventKind>, String> {
        self.events.take(self.topology.id())
    }

    fn respond(&mut self, server: &ServerDescription, reply: Option<&[u8]>) -> Result<(), String> {
        self.harness.answer(&server.address, reply)
    }

    fn greet_late(&mut self, server: ServerId, reply: &[u8]) -> Result<(), String> {
        let accepted = self.topology.reporter(server).handle_handshake(Generation::FIRST, reply);
        self.harness.settle();
        accepted.map(drop).map_err(|error| error.to_string())
    }

    fn fail(&mut self, server: ServerId, report: &ErrorReport) {
        self.topology.reporter(server).handle_error(report);
        self.harness.settle();
    }

    fn end(self) -> Result<(), String> {
        self.harness.close(&self.topology)?;
        self.events.end(self.topology.id())
    }
}

/// Runs a file from `server-selection/tests/server_selection` or `max-staleness/tests`: brings a
/// running topology to the description, and selects servers both without and with waiting.
pub fn select(host: &Host, file: &Value) -> Result<(), String> {
    let file = SelectionFile::parse(file)?;
    let Some(criteria) = file.criteria()? else {
        return Ok(());
    };
    let harness = Harness::slow(host);
    let mut options = Options::new(Vec::new());
    options.heartbeat_frequency = file.heartbeat_frequency;
    let topology = drive_to(&harness, &file.topology, options)?;
    if file.expects_error {
        check_refusal(topology.try_select(criteria))?;
        check_refusal(wait(&harness, &topology, criteria, Duration::ZERO)?)?;
    } else {
        let select = |criteria: &Criteria| try_select(&topology, criteria);
        check_suitable(select, criteria, &file.suitable)?;
        check_window(select, criteria, &file.window)?;
        check_waiting(&harness, &topology, criteria, &file.window)?;
    }
    harness.close(&topology)
}

/// Checks that a selection that may wait returns a server in `window`, or that it times out if the
/// window is empty.
fn check_waiting(
    harness: &Harness<'_>,
    topology: &Topology,
    criteria: &Criteria,
    window: &BTreeSet<ServerAddress>,
) -> Result<(), String> {
    let timeout = topology.options().server_selection_timeout;
    let timeout = if window.is_empty() { timeout } else { Duration::ZERO };
    match wait(harness, topology, criteria, timeout)? {
        Ok(selected) if window.contains(&selected) => Ok(()),
        Err(SelectionError::Timeout(error)) if window.is_empty() && error.waited == timeout => {
            Ok(())
        }
        Ok(selected) => Err(format!("a waiting selection returned {selected}")),
        Err(error) => Err(format!("a waiting selection failed: {error}")),
    }
}

fn try_select(topology: &Topology, criteria: &Criteria) -> Selected {
    let selected = topology.try_select(criteria).map_err(|error| unexpected(&error))?;
    Ok(selected.map(|selected| selected.address().clone()))
}

/// Returns the outcome of a waiting selection after `timeout` has passed.
fn wait(
    harness: &Harness<'_>,
    topology: &Topology,
    criteria: &Criteria,
    timeout: Duration,
) -> Result<Result<ServerAddress, SelectionError>, String> {
    let (settled, clock) = (harness.settled(), harness.clock.clone());
    let end = harness.now() + timeout;
    let meanwhile = async move {
        // The selection was polled first, so it is already waiting, and the checks it requested are
        // in progress.
        settled.await;
        clock.advance_to(end);
    };
    let both = futures::future::join(topology.select(criteria), meanwhile);
    let outcome = harness.host.block_on(both);
    harness.settle();
    outcome
        .map(|(outcome, ())| outcome.map(|selected| selected.address().clone()))
        .ok_or_else(|| "the host has not run the selection".to_owned())
}

/// Runs a file from `server-selection/tests/in_window`. Selects servers of a running topology while
/// the number of operations that the file specifies is in progress on each server.
pub fn in_window(host: &Host, file: &Value) -> Result<(), String> {
    let (file, nearest) = (InWindowFile::parse(file)?, InWindowFile::criteria()?);
    let harness = Harness::slow(host);
    let topology = drive_to(&harness, &file.topology, Options::new(Vec::new()))?;
    let mut in_progress = Vec::new();
    for (address, load) in &file.loads {
        let address = address.clone();
        let only = move |suitable: &mut Candidates<'_>| {
            suitable.retain(|candidate| candidate.address == address);
        };
        let criteria = nearest.clone().with_selector(Arc::new(only));
        for _ in 0..*load {
            let selected = topology.try_select(&criteria).map_err(|error| unexpected(&error))?;
            in_progress.push(selected.ok_or("no server was selected")?);
        }
    }
    file.compare(|| try_select(&topology, &nearest))?;
    for (server, load) in topology.snapshot().servers().zip(file.loads.values()) {
        let count = server.operation_count();
        if count != *load {
            return Err(format!("expected {load} operations in progress, got {count}"));
        }
    }
    drop(in_progress);
    harness.close(&topology)
}

/// Runs a file from `server-selection/tests/rtt` with a server that delays its replies.
pub fn rtt(host: &Host, file: &Value) -> Result<(), String> {
    let file = RttFile::parse(file)?;
    let harness = Harness::new(host);
    let server = ServerAddress::new("a", 27017);
    let options = Options::new(vec![server.clone()]);
    let topology = harness.start(options, |builder| builder)?;
    let hello = standalone_hello(25)?;
    for sample in file.before.into_iter().chain([file.sample]) {
        harness.await_request(&server)?;
        let sample =
            Duration::try_from_secs_f64(sample / 1e3).map_err(|error| error.to_string())?;
        harness.clock.advance_to(harness.now() + sample);
        harness.answer(&server, Some(&hello))?;
    }
    let description = Arc::clone(topology.snapshot().description());
    let rtt = description.server(&server).and_then(|server| server.rtt);
    file.compare(rtt.map(|rtt| rtt.average.as_secs_f64() * 1e3))?;
    harness.close(&topology)
}

/// The time before the first update. It is longer than any round trip, so that every check can
/// begin in time.
const LEAD_TIME: Duration = Duration::from_secs(10);

/// The beginning of a server's first check, or the reply to this check.
struct Step {
    at: Instant,
    address: ServerAddress,
    /// The reply. If it is `None`, the connection opens and the check begins.
    reply: Option<Vec<u8>>,
}

/// Starts a topology on `harness`, which must be [slow](Harness::slow), and brings it to `target`.
/// Types, round-trip times, tags, last writes and the intervals between updates become those of
/// `target`.
///
/// # Errors
///
/// If the resulting description differs from `target`.
fn drive_to(
    harness: &Harness<'_>,
    target: &TopologyDescription,
    options: Options,
) -> Result<Topology, String> {
    let topology = harness.start(with_seeds(options, target), |builder| builder)?;
    for extra in &extra_seeds(target) {
        join_and_leave(harness, extra, target)?;
    }
    let zero = harness.now() + LEAD_TIME;
    for step in steps(target, zero)? {
        harness.clock.advance_to(step.at);
        harness.settle();
        match &step.reply {
            None => harness.servers.admit(&step.address)?,
            Some(reply) => harness.servers.answer(&step.address, Some(reply))?,
        }
        harness.settle();
    }
    let reached = topology.snapshot().description().clone();
    compare(target, &reached)?;
    compare_updates(target, &reached, zero)?;
    Ok(topology)
}

/// Makes the server at `address` reply as a member of the set, and then as a server that is not in
/// a set.
fn join_and_leave(
    harness: &Harness<'_>,
    address: &ServerAddress,
    target: &TopologyDescription,
) -> Result<(), String> {
    harness.servers.admit(address)?;
    harness.settle();
    for hinted in target.servers().iter().filter(|server| is_hinted(server)) {
        let mut hinting_reply = base_hello(25);
        hinting_reply.extend(doc! {
            "secondary": true,
            "setName": SET_NAME,
            "hosts": [address.to_string(), hinted.address.to_string()],
            "primary": hinted.address.to_string(),
        });
        harness.answer(address, Some(&encode(&hinting_reply)?))?;
    }
    harness.answer(address, Some(&standalone_hello(25)?))
}

/// Plans the first check of each server that is checked in `target`. Every check begins one round
/// trip before its update. The update times in `target` are relative to `zero`.
fn steps(target: &TopologyDescription, zero: Instant) -> Result<Vec<Step>, String> {
    let members = members(target);
    let mut steps = Vec::new();
    for server in target.servers().iter().filter(|server| is_checked(server)) {
        let update = server.last_update_time.unwrap_or(Instant::EPOCH);
        let at = zero + update.since(Instant::EPOCH);
        let rtt = server.rtt.map_or(Duration::ZERO, |rtt| rtt.average);
        let address = server.address.clone();
        steps.push(Step { at: at - rtt, address: address.clone(), reply: None });
        steps.push(Step { at, address, reply: Some(encode(&hello(server, &members)?)?) });
    }
    steps.sort_by_key(|step| step.at);
    Ok(steps)
}

/// Compares the update times with those in `target`, which are relative to `zero`.
fn compare_updates(
    target: &TopologyDescription,
    actual: &TopologyDescription,
    zero: Instant,
) -> Result<(), String> {
    for (target, actual) in target.servers().iter().zip(actual.servers()) {
        let expected = target.last_update_time.filter(|_| is_checked(target));
        let expected = expected.map(|update| zero + update.since(Instant::EPOCH));
        if expected.is_some() && actual.last_update_time != expected {
            return Err(not_reached(&format!(
                "{} was updated at {:?}, expected {expected:?}",
                actual.address, actual.last_update_time
            )));
        }
    }
    Ok(())
}

/// The maximum number of times that the clock is advanced until a server is checked. Advancing it
/// once is usually enough, but other servers may be checked first.
const MAX_ADVANCES: usize = 16;

/// The scripted environment of a topology.
struct Harness<'h> {
    host: &'h Host,
    activity: Activity,
    clock: ManualClock,
    servers: Servers,
    pools: RecordingPools,
}

impl<'h> Harness<'h> {
    /// Creates an environment in which requests wait until the script answers them.
    fn new(host: &'h Host) -> Self {
        let clock = ManualClock::default();
        clock.advance_to(Instant::from_millis(1));
        Self {
            host,
            activity: Activity::default(),
            servers: Servers::new(clock.clone(), Server::silent()),
            clock,
            pools: RecordingPools::default(),
        }
    }

    /// Creates an environment in which connections also wait for the script before they open.
    fn slow(host: &'h Host) -> Self {
        let harness = Self::new(host);
        let servers = harness.servers.clone().holding_connections();
        Self { servers, ..harness }
    }

    /// Starts the topology that `build` creates from `options`.
    fn start(
        &self,
        options: Options,
        build: impl FnOnce(TopologyBuilder) -> TopologyBuilder,
    ) -> Result<Topology, String> {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let backend = Backend::new(clock, Arc::new(self.servers.clone()), 1);
        let spawner = self.activity.watch(Arc::clone(&self.host.spawner));
        let builder = builder(options, &self.pools)?;
        let runtime = Runtime::new(backend, Arc::new(spawner));
        let topology = build(builder).start(runtime).map_err(|error| error.to_string())?;
        self.settle();
        Ok(topology)
    }

    /// Returns the current time.
    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Runs tasks until all of them are waiting for the script.
    fn settle(&self) {
        self.host.block_on(self.settled());
    }

    /// Waits as [`settle`](Self::settle) does, for code that already runs on the host.
    fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.activity.settled()
    }

    /// Advances the clock until the server at `address` is checked.
    fn await_request(&self, address: &ServerAddress) -> Result<(), String> {
        for _ in 0..MAX_ADVANCES {
            match self.servers.requests(address) {
                0 => {}
                1 => return Ok(()),
                number => return Err(format!("{address} has {number} concurrent checks")),
            }
            let next = self.clock.next_deadline();
            let next = next.ok_or_else(|| format!("{address} is never checked"))?;
            self.clock.advance_to(next);
            self.settle();
        }
        Err(format!("{address} was not checked"))
    }

    /// Answers the next check of the server at `address`, and waits until all effects of the answer
    /// are complete.
    fn answer(&self, address: &ServerAddress, reply: Option<&[u8]>) -> Result<(), String> {
        self.await_request(address)?;
        self.servers.answer(address, reply)?;
        self.settle();
        Ok(())
    }

    /// Closes `topology`. Fails if a task, connection or pool is left.
    fn close(&self, topology: &Topology) -> Result<(), String> {
        self.host.block_on(topology.close());
        self.settle();
        check_nothing_left(&[
            ("tasks", self.activity.alive()),
            ("connections", self.servers.connections()),
            ("pools", self.pools.generations().len()),
        ])
    }
}
