//! Tests when and on which connections checks and measurements are made, and which events they
//! publish.

use sdam::options::ClientMetadata;
use sdam_sim::{runtime::Latency, version::ServerVersion};
use sdam_transport::handshake::Environment;

use super::*;

const MEMBERS: [(&str, MemberId); 3] = [("a", MemberId(0)), ("b", MemberId(1)), ("c", MemberId(2))];

/// F-1: a server that does not answer delays no check of another server.
#[test]
fn a_silent_server_delays_no_check_of_other_servers() {
    let harness = Harness::start("a/?replicaSet=rs&serverMonitoringMode=poll");
    harness.apply(&Action::Freeze(Target::Member(MemberId(2))));
    let from = harness.sim.now();
    harness.sim.run_for(10 * HEARTBEAT);
    for host in ["a", "b"] {
        let checks = harness.checks(host, from).len();
        assert!((9..=10).contains(&checks), "{host}: {checks}");
    }
    assert!(harness.checks("c", from).is_empty());
}

/// F-2, F-3, G-16, O-1, O-8: monitoring uses two connections to each server in addition to those of
/// pools, and sends only hello on them, without any of the user's credentials.
#[test]
fn monitors_send_only_hello_on_dedicated_connections() {
    let harness =
        Harness::start("user:secret@a/?replicaSet=rs&authMechanism=SCRAM-SHA-256&maxPoolSize=1");
    harness.sim.run_for(3 * HEARTBEAT);
    assert_eq!(harness.sim.connections(), 6);
    let sent = harness.sent();
    for sent in &sent {
        let name = sent.command.keys().next().unwrap();
        assert!(matches!(&**name, "hello" | "isMaster"), "{sent:?}");
        for key in ["saslSupportedMechs", "speculativeAuthenticate"] {
            assert!(!sent.command.contains_key(key), "{sent:?}");
        }
        assert!(!format!("{sent:?}").contains("secret"));
    }
    let handshakes = sent.iter().filter(|sent| sent.is_handshake());
    assert_eq!(handshakes.count(), 6, "one for each connection");
}

/// F-4, J-14, J-24, F-61: a discovered server is announced and then monitored, and no pool is ready
/// before its server is known.
#[test]
fn members_that_a_reply_names_are_monitored_at_once() {
    let harness = Harness::start("b/?replicaSet=rs");
    let events = harness.events();
    for (host, _) in MEMBERS {
        let first = |name: EventName| {
            let of_host = |event: &&sdam::Event| event.kind.address().unwrap().host() == host;
            let found = events.iter().filter(|event| event.kind.name() == name);
            found.clone().find(of_host).unwrap()
        };
        let opened = first(EventName::ServerOpening);
        let started = first(EventName::ServerHeartbeatStarted);
        let succeeded = first(EventName::ServerHeartbeatSucceeded);
        let ready = first(EventName::PoolReady);
        let order = [opened, started, succeeded, ready].map(|event| event.seq);
        assert!(order.is_sorted(), "{order:?}");
        let passed = started.at.since(opened.at);
        assert!(passed < Duration::from_millis(1), "{passed:?}");
    }
}

/// F-12: the timeout of operations does not apply to checks.
#[test]
fn the_timeout_of_operations_does_not_apply_to_monitors() {
    let slow = Latency { chunked: false, ..Latency::WAN };
    let harness = Harness::prepared(
        |sim| sim.network().set_latency(slow),
        "a/?replicaSet=rs&timeoutMS=1&socketTimeoutMS=1&waitQueueTimeoutMS=1",
    );
    harness.sim.run_for(5 * HEARTBEAT);
    let is_failure = |name| name == EventName::ServerHeartbeatFailed;
    let events = harness.events();
    assert!(!events.iter().any(|event| is_failure(event.kind.name())));
    // A failed measurement publishes no event, but it would make the next measurement open a new
    // connection.
    for (_, member) in MEMBERS {
        assert_eq!(harness.asked(member, Sent::is_handshake), 2);
    }
}

/// G-7, G-12: measurements send one hello per heartbeat and publish no events.
#[test]
fn rtt_measurements_publish_no_events() {
    let harness = Harness::start("a/?replicaSet=rs");
    harness.sim.run_for(10 * HEARTBEAT);
    for (host, member) in MEMBERS {
        // There is one handshake for checks and one for measurements, and no other.
        assert_eq!(harness.asked(member, Sent::is_handshake), 2);
        let is_plain = |sent: &Sent| !sent.is_handshake() && !sent.is_awaitable();
        let plain = harness.asked(member, is_plain);
        assert!((9..=10).contains(&plain), "{host}: {plain}");
        let is_unawaited = |kind: &EventKind| {
            matches!(kind, EventKind::ServerHeartbeatStarted(heartbeat)
                if heartbeat.address.host() == host && !heartbeat.awaited)
        };
        let events = harness.events();
        let unawaited = events.iter().filter(|event| is_unawaited(&event.kind));
        assert_eq!(unawaited.count(), 1, "the check that opened the connection");
    }
}

/// F-55: a server that reports overload is checked again exactly one heartbeat later, as after any
/// other failure.
#[test]
fn an_overload_error_does_not_change_the_time_between_checks() {
    let harness = Harness::start("a/?replicaSet=rs&serverMonitoringMode=poll");
    let mut refusal = fail_command(&["hello", "isMaster"], Mode::AlwaysOn);
    refusal.error_code = Some(462);
    let labels = ["SystemOverloadedError", "RetryableError"];
    refusal.error_labels = Some(labels.map(str::to_owned).into());
    let (from, secondary) = (harness.sim.now(), MemberId(2));
    harness.apply(&Action::FailPoint(Target::Member(secondary), Some(refusal)));
    harness.sim.run_for(6 * HEARTBEAT);
    let mut sent = harness.sent();
    sent.retain(|sent| sent.member == secondary && sent.at > from);
    assert!((5..=6).contains(&sent.len()), "{sent:?}");
    for pair in sent.windows(2) {
        let pause = pair[1].at.since(pair[0].at);
        let range = HEARTBEAT..HEARTBEAT + Duration::from_millis(10);
        assert!(range.contains(&pause), "{pause:?}");
    }
}

/// G-8, F-25: when servers no longer stream, they are polled, and their measurements end. When they
/// stream again, the measurements resume.
#[test]
fn measurements_end_when_servers_stop_streaming_and_start_when_they_stream_again() {
    let harness = Harness::start("a/?replicaSet=rs");
    harness.sim.run_for(2 * HEARTBEAT);
    // Each server has one task and two connections, and the event dispatcher has one task.
    assert_eq!((harness.sim.tasks(), harness.sim.connections()), (4, 6));
    for (version, connections) in [("4.2".parse().unwrap(), 3), (ServerVersion::default(), 6)] {
        for (_, member) in MEMBERS {
            harness.apply(&Action::Upgrade(Target::Member(member), version));
        }
        harness.sim.run_for(6 * HEARTBEAT);
        harness.wait_for_known(3);
        harness.sim.run_for(2 * HEARTBEAT);
        let now = (harness.sim.tasks(), harness.sim.connections());
        assert_eq!(now, (4, connections));
    }
}

#[test]
fn closing_takes_no_time_while_monitors_pause() {
    // Closing ends monitors immediately, even during a pause of 500 ms (F-43).
    let sim = simulation(4);
    (0..3).for_each(|member| sim.kill(MemberId(member)).unwrap());
    let uri = format!("{}&serverSelectionTimeoutMS=250", sim.uri());
    let topology = Topology::builder(&uri).unwrap();
    let topology = topology.start(sim.runtime()).unwrap();
    // The selection requests another check of each server, which is due 500 ms after the first
    // check.
    let selected = sim.block_on(topology.select(&Criteria::write()));
    selected.unwrap_err();
    let before = sim.now();
    assert!(!topology.snapshot().is_closed());
    sim.block_on(topology.close());
    assert!(topology.snapshot().is_closed());
    assert_eq!(sim.now(), before);
}

/// F-21, F-20: `auto` polls if and only if the environment names exactly one FaaS provider.
#[test]
fn clients_in_a_faas_environment_poll() {
    for (variables, mode, streams) in [
        (&[][..], "auto", true),
        (&[], "poll", false),
        (&["AWS_LAMBDA_RUNTIME_API"], "auto", false),
        (&["AWS_LAMBDA_RUNTIME_API"], "stream", true),
        // Vercel runs on AWS; any other two providers contradict each other.
        (&["AWS_LAMBDA_RUNTIME_API", "VERCEL"], "auto", false),
        (&["AWS_LAMBDA_RUNTIME_API", "K_SERVICE"], "auto", true),
    ] {
        let sim = simulation(1);
        let set = |environment: Environment, name: &&str| environment.with_variable(name, "1");
        let environment = variables.iter().fold(Environment::default(), set);
        let (sink, mut events) = unbounded();
        let topology = Topology::builder(&format!("{}&serverMonitoringMode={mode}", sim.uri()))
            .unwrap()
            .metadata(ClientMetadata::new("test", "1", &environment).unwrap())
            .sink(sink)
            .start(sim.runtime())
            .unwrap();
        let known = topology.wait_for(complete, 60 * HEARTBEAT);
        sim.block_on(known).unwrap();
        sim.run_for(6 * HEARTBEAT);
        let awaits = drain(&mut events).into_iter().any(|event| match event.kind {
            EventKind::ServerHeartbeatStarted(heartbeat) => heartbeat.awaited,
            _ => false,
        });
        assert_eq!(awaits, streams, "{variables:?} {mode}");
    }
}

/// M-20: a server MAY stream. A server that needs a request for each reply reports changes just as
/// fast.
#[test]
fn a_server_that_does_not_stream_receives_a_request_for_each_awaited_reply() {
    // The member `b` is not the primary.
    let member = MemberId(1);
    for exhaust in [false, true] {
        let action = Action::Exhaust(member.into(), exhaust);
        let prepare = |sim: &sdam_sim::Sim| sim.apply(&action).unwrap();
        let harness = Harness::prepared(prepare, "a,b,c/?replicaSet=rs");
        assert_eq!(harness.server("b").server_type, ServerType::RsSecondary);
        harness.sim.run_for(Duration::from_secs(35));
        let before = harness.sim.now();
        harness.apply(&Action::StepUp(member.into()));
        harness.wait_for(|_| harness.server("b").server_type == ServerType::RsPrimary);
        let noticed = harness.sim.now().since(before);
        assert!(noticed < Duration::from_secs(1), "{noticed:?}");
        let checks = harness.checks("b", Instant::EPOCH);
        let awaited = checks.iter().filter(|(check, _)| check.awaited).count();
        assert!(awaited > 3, "{awaited}");
        let asked = harness.asked(member, Sent::is_awaitable);
        // Without streaming, the last request has no reply yet.
        assert_eq!(asked, if exhaust { 1 } else { awaited + 1 });
        harness.sim.block_on(harness.topology.close());
        assert_eq!((harness.sim.tasks(), harness.sim.connections()), (0, 0));
    }
}
