//! The messages of monitors, their recipients and their times, in virtual time.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::Document;
use sdam::{
    Criteria, Error, ErrorOutcome, ErrorReport, Event, EventKind, EventName, Generation, Instant,
    Interest, ServerAddress, ServerType, Stage, Topology,
};
use sdam_events::sink::sink_fn;
use sdam_sim::{
    Action, Blueprint, MemberId,
    action::{FailCommand, Target},
    config::SetConfig,
    runtime::{Direction, Latency, Sim, Verdict},
    version::ServerVersion,
};
use sdam_testkit::{RecordingPool, RecordingPools};

const HEARTBEAT: Duration = Duration::from_secs(10);

/// A command that a server received.
#[derive(Clone, Debug)]
struct Sent {
    at: Instant,
    member: MemberId,
    command: Document,
}

impl Sent {
    fn name(&self) -> &str {
        self.command.keys().next().unwrap()
    }

    fn is_handshake(&self) -> bool {
        self.command.contains_key("client")
    }

    fn is_awaitable(&self) -> bool {
        self.command.contains_key("topologyVersion")
    }
}

/// A topology with a simulated deployment, and its recorded events and messages.
struct Harness {
    sim: Sim,
    topology: Topology<RecordingPool>,
    events: Arc<Mutex<Vec<Event>>>,
    sent: Arc<Mutex<Vec<Sent>>>,
    pools: RecordingPools,
}

impl Harness {
    /// Starts a topology from the seed `a` and waits until `a`, `b` and `c` are known.
    fn start(options: &str) -> Self {
        Self::start_on(ServerVersion::default(), Latency::LAN, options)
    }

    fn start_on(version: ServerVersion, latency: Latency, options: &str) -> Self {
        let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
        let blueprint = Blueprint::replica_set(SetConfig::new("rs", hosts)).version(version);
        let sim = Sim::new(1, &blueprint);
        sim.run_for(Duration::from_secs(20));
        sim.network().set_latency(latency);
        let sent = Arc::<Mutex<Vec<Sent>>>::default();
        let recorded = Arc::clone(&sent);
        sim.network().add_rule(move |frame| {
            if frame.direction == Direction::ToServer {
                // Header, flags, and the kind of the one section.
                let command = Document::from_reader(&frame.bytes[21..]).unwrap();
                let (at, member) = (frame.at, frame.member);
                recorded.lock().unwrap().push(Sent {
                    at,
                    member,
                    command,
                });
            }
            Verdict::Pass
        });
        let events = Arc::<Mutex<Vec<Event>>>::default();
        let recorded = Arc::clone(&events);
        let sink = sink_fn(move |event| recorded.lock().unwrap().push(event.clone()));
        let pools = RecordingPools::default();
        let topology = Topology::builder(&format!("mongodb://{options}"))
            .unwrap()
            .pools(pools.clone())
            .sink(sink.interested_in(Interest::SDAM.union(Interest::POOLS)))
            .start(sim.runtime())
            .unwrap();
        let this = Self {
            sim,
            topology,
            events,
            sent,
            pools,
        };
        this.wait_for_known(3);
        this
    }

    fn wait_for_known(&self, count: usize) {
        let known = self.sim.block_on(self.topology.wait_for(
            |snapshot| {
                let servers = snapshot.description().servers();
                let known = servers
                    .iter()
                    .filter(|server| server.server_type.is_available());
                (known.count() == count).then_some(())
            },
            Duration::from_secs(120),
        ));
        assert!(known.is_some(), "{count} servers are known in time");
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// Counts the successful checks of `host` since `from`.
    fn checks(&self, host: &str, from: Instant) -> usize {
        let is_check = |event: &&Event| {
            event.at > from
                && event.kind.name() == EventName::ServerHeartbeatSucceeded
                && event.kind.address().unwrap().host() == host
        };
        self.events().iter().filter(is_check).count()
    }
}

/// F-1: a server that does not answer delays no check of another server.
#[test]
fn a_silent_server_delays_no_check_of_other_servers() {
    let harness = Harness::start("a/?replicaSet=rs&serverMonitoringMode=poll");
    let silent = MemberId(2);
    harness
        .sim
        .apply(&Action::Freeze(Target::Member(silent)))
        .unwrap();
    let from = harness.sim.now();
    harness.sim.run_for(10 * HEARTBEAT);
    for host in ["a", "b"] {
        let checks = harness.checks(host, from);
        assert!((9..=10).contains(&checks), "{host}: {checks}");
    }
    assert_eq!(harness.checks("c", from), 0);
}

/// F-2, F-3, G-16, O-1, O-8: monitoring uses two connections to each server in addition to those of
/// pools, and sends only hello on them, without any of the user's credentials.
#[test]
fn monitors_send_only_hello_on_dedicated_connections() {
    let harness = Harness::start(
        "user:secret@a/?replicaSet=rs&authMechanism=SCRAM-SHA-256&maxPoolSize=1&appName=inventory",
    );
    harness.sim.run_for(3 * HEARTBEAT);
    assert_eq!(harness.sim.connections(), 6);
    for sent in harness.sent() {
        assert!(matches!(sent.name(), "hello" | "isMaster"), "{sent:?}");
        for key in ["saslSupportedMechs", "speculativeAuthenticate"] {
            assert!(!sent.command.contains_key(key), "{sent:?}");
        }
        assert!(!format!("{sent:?}").contains("secret"));
    }
    let handshakes = harness.sent();
    let handshakes = handshakes.iter().filter(|sent| sent.is_handshake());
    assert_eq!(handshakes.clone().count(), 6, "one for each connection");
    // O-28: the name is known before the first connection is opened.
    for sent in handshakes {
        let client = sent.command.get_document("client").unwrap();
        let application = client.get_document("application").unwrap();
        assert_eq!(application, &bson::doc! { "name": "inventory" });
    }
}

/// F-4, J-14, J-24: a discovered server is announced and then monitored, and F-61: no pool is
/// ready before its server is known.
#[test]
fn members_that_a_reply_names_are_monitored_at_once() {
    let harness = Harness::start("b/?replicaSet=rs");
    // A separate task delivers events.
    harness.sim.run_for(Duration::from_millis(1));
    let events = harness.events();
    let first = |host: &str, name: EventName| {
        let found = events.iter().position(|event| {
            event.kind.name() == name && event.kind.address().is_some_and(|own| own.host() == host)
        });
        found.unwrap()
    };
    for host in ["a", "b", "c"] {
        let opened = first(host, EventName::ServerOpening);
        let started = first(host, EventName::ServerHeartbeatStarted);
        let succeeded = first(host, EventName::ServerHeartbeatSucceeded);
        let ready = first(host, EventName::PoolReady);
        assert!(opened < started && started < succeeded && succeeded < ready);
        let passed = events[started].at.since(events[opened].at);
        assert!(passed < Duration::from_millis(1), "{passed:?}");
    }
}

/// F-12: the timeout of operations does not apply to checks.
#[test]
fn the_timeout_of_operations_does_not_apply_to_monitors() {
    let harness = Harness::start_on(
        ServerVersion::default(),
        Latency {
            chunked: false,
            ..Latency::WAN
        },
        "a/?replicaSet=rs&timeoutMS=1&socketTimeoutMS=1&waitQueueTimeoutMS=1",
    );
    harness.sim.run_for(5 * HEARTBEAT);
    let failed = harness
        .events()
        .iter()
        .any(|event| event.kind.name() == EventName::ServerHeartbeatFailed);
    assert!(!failed);
    // A measurement fails without an event, and the next one would then connect again.
    for member in (0..3).map(MemberId) {
        let sent = harness.sent();
        let own = |sent: &&Sent| sent.member == member && sent.is_handshake();
        assert_eq!(sent.iter().filter(own).count(), 2);
    }
}

/// G-7, G-12: measurements send a hello per heartbeat, without any event.
#[test]
fn rtt_measurements_publish_no_events() {
    let harness = Harness::start("a/?replicaSet=rs");
    harness.sim.run_for(10 * HEARTBEAT);
    let sent = harness.sent();
    let asked = |member: MemberId, wanted: fn(&Sent) -> bool| {
        sent.iter()
            .filter(|sent| sent.member == member && wanted(sent))
            .count()
    };
    for (member, host) in (0..3).map(MemberId).zip(["a", "b", "c"]) {
        // The handshake of the checks, that of the measurements, and none between them.
        assert_eq!(asked(member, Sent::is_handshake), 2);
        let plain = asked(member, |sent| !sent.is_handshake() && !sent.is_awaitable());
        assert!((9..=10).contains(&plain), "{host}: {plain}");
        let unawaited = harness
            .events()
            .iter()
            .filter(|event| {
                matches!(&event.kind, EventKind::ServerHeartbeatStarted(heartbeat)
                if heartbeat.address.host() == host && !heartbeat.awaited)
            })
            .count();
        assert_eq!(unawaited, 1, "the check that opened the connection");
    }
}

/// F-45: a waiting operation continues at the moment at which a check finds its server.
#[test]
fn a_successful_check_ends_waiting_selections_immediately() {
    let harness = Harness::start("a/?replicaSet=rs&serverSelectionTimeoutMS=100000");
    harness.sim.kill(Target::Primary).unwrap();
    harness.wait_for_known(2);
    let selected = harness
        .sim
        .block_on(harness.topology.select(&Criteria::write()));
    let now = harness.sim.now();
    drop(selected.unwrap());
    // A separate task delivers events.
    harness.sim.run_for(Duration::from_nanos(1));
    let found = harness
        .events()
        .iter()
        .rev()
        .find_map(|event| match &event.kind {
            EventKind::ServerDescriptionChanged { new, .. } => {
                (new.server_type == ServerType::RsPrimary).then_some(event.at)
            }
            _ => None,
        });
    assert_eq!(found, Some(now));
}

/// F-55: a server that reports overload is checked again exactly one heartbeat later, as after any
/// other failure.
#[test]
fn an_overload_error_does_not_change_the_time_between_checks() {
    let harness = Harness::start("a/?replicaSet=rs&serverMonitoringMode=poll");
    let mut refusal = FailCommand::default();
    refusal.commands = ["hello", "isMaster"].map(str::to_owned).into();
    refusal.error_code = Some(462);
    let labels = ["SystemOverloadedError", "RetryableError"];
    refusal.error_labels = Some(labels.map(str::to_owned).into());
    let from = harness.sim.now();
    let secondary = MemberId(2);
    harness
        .sim
        .apply(&Action::FailPoint(Target::Member(secondary), Some(refusal)))
        .unwrap();
    harness.sim.run_for(6 * HEARTBEAT);
    let sent = harness.sent();
    let asked: Vec<_> = sent
        .iter()
        .filter(|sent| sent.member == secondary && sent.at > from)
        .map(|sent| sent.at)
        .collect();
    assert!((5..=6).contains(&asked.len()), "{asked:?}");
    for pair in asked.windows(2) {
        let pause = pair[1].since(pair[0]);
        assert!(
            pause >= HEARTBEAT && pause < HEARTBEAT + Duration::from_millis(10),
            "{pause:?}"
        );
    }
}

/// F-56: the events of a failed check and their order.
#[test]
fn the_event_of_a_failed_check_precedes_the_events_of_its_effects() {
    let harness = Harness::start("a/?replicaSet=rs");
    let mark = harness.events().len();
    harness.sim.kill(Target::Primary).unwrap();
    harness.wait_for_known(2);
    harness.sim.run_for(Duration::from_millis(1));
    let names: Vec<_> = harness.events()[mark..]
        .iter()
        .map(|event| event.kind.name())
        .skip_while(|name| *name != EventName::ServerHeartbeatFailed)
        .take(4)
        .collect();
    let expected = [
        EventName::ServerHeartbeatFailed,
        EventName::ServerDescriptionChanged,
        EventName::TopologyDescriptionChanged,
        EventName::PoolCleared,
    ];
    assert_eq!(names, expected);
}

/// F-66, F-68, I-5: when the report of an error returns, the pool has been cleared with the reason.
/// The connection is then checked in to a cleared pool, and check-outs can name the reason for
/// their failure. The pool itself is responsible for the order of its own events.
#[test]
fn a_pool_is_cleared_before_the_report_of_the_error_returns() {
    let harness = Harness::start("a/?replicaSet=rs");
    let selected = harness
        .sim
        .block_on(harness.topology.select(&Criteria::write()))
        .unwrap();
    let error = ErrorReport::new(
        Generation::FIRST,
        Error::network(Stage::Operation, "the socket broke"),
    );
    let outcome = harness.topology.handle_error(selected.id(), &error);
    assert_eq!(outcome, ErrorOutcome::Cleared);
    let calls = harness.pools.calls();
    let call = calls.last().unwrap();
    assert_eq!(call.address, *selected.address());
    let cause = &call.clear.as_ref().unwrap().cause;
    assert_eq!(cause.message(), "the socket broke");
    let again = harness.topology.handle_error(selected.id(), &error);
    assert_eq!(again, ErrorOutcome::Stale);
    assert_eq!(harness.pools.calls().len(), calls.len());
}

/// F-69: only the pool of a server that leaves the set is closed.
#[test]
fn only_the_pool_of_a_removed_server_is_closed() {
    let harness = Harness::start("a/?replicaSet=rs");
    let removed = harness
        .sim
        .status()
        .members
        .iter()
        .map(|member| member.id)
        .find(|id| Some(*id) != harness.sim.status().primary().map(|primary| primary.id))
        .unwrap();
    harness
        .sim
        .apply(&Action::Remove(Target::Member(removed)))
        .unwrap();
    harness.wait_for_known(2);
    let host = ["a", "b", "c"][usize::from(removed.0)];
    let calls = harness.pools.calls().into_iter();
    let closed = calls.filter(|call| call.method == "close");
    let closed: Vec<_> = closed.map(|call| call.address).collect();
    assert_eq!(closed, [ServerAddress::new(host, 27017)]);
}

/// G-8, F-25: if a set is replaced by servers without streaming, it is polled and its measurements
/// end. The reverse change works, too.
#[test]
fn measurements_end_when_servers_stop_streaming_and_start_when_they_stream_again() {
    let harness = Harness::start("a/?replicaSet=rs");
    harness.sim.run_for(2 * HEARTBEAT);
    // A task for each server, with two connections, and the dispatcher.
    assert_eq!((harness.sim.tasks(), harness.sim.connections()), (4, 6));
    let upgrade = |version| {
        for member in (0..3).map(MemberId) {
            let target = Target::Member(member);
            harness
                .sim
                .apply(&Action::Upgrade(target, version))
                .unwrap();
        }
        harness.sim.run_for(6 * HEARTBEAT);
        harness.wait_for_known(3);
        harness.sim.run_for(2 * HEARTBEAT);
    };
    upgrade("4.2".parse().unwrap());
    assert_eq!((harness.sim.tasks(), harness.sim.connections()), (4, 3));
    upgrade(ServerVersion::default());
    assert_eq!((harness.sim.tasks(), harness.sim.connections()), (4, 6));
}
