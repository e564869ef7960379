//! Servers that fail or stop answering: suspicions, descriptions and pools.

use sdam::{
    ReadMode,
    error::{ErrorOutcome, ErrorReport, Stage},
    options::Detector,
    pool::Generation,
};
use sdam_core::reply;

use super::*;

impl Harness {
    /// Returns all suspicion events: for each, the host, the time since `from` in milliseconds, and
    /// whether the suspicion begins (true) or ends (false).
    fn suspicions(&self, from: sdam::runtime::Instant) -> Vec<(String, u128, bool)> {
        let of = |event: sdam::Event| {
            let begins = match event.kind {
                EventKind::ServerSuspected { .. } => true,
                EventKind::ServerSuspicionEnded { .. } => false,
                _ => return None,
            };
            let host = event.kind.address()?.host().to_owned();
            Some((host, event.at.since(from).as_millis(), begins))
        };
        self.events().into_iter().filter_map(of).collect()
    }
}

#[test]
fn a_frozen_server_is_suspected_explained_and_cleared_by_its_next_answer() {
    for mode in ["stream", "poll"] {
        let harness = Harness::start(&format!("a/?replicaSet=rs&serverMonitoringMode={mode}"));
        harness.sim.run_for(HEARTBEAT);
        let (host, member) = harness.secondary();
        let from = harness.sim.now();
        harness.apply(&Action::Freeze(Target::Member(member)));
        harness.sim.run_for(HEARTBEAT + Duration::from_secs(3));
        let suspicions = harness.suspicions(from);
        let [(suspect, after, true)] = &suspicions[..] else {
            panic!("{mode}: {suspicions:?}");
        };
        assert_eq!(suspect, host);
        assert!((1_000..=12_100).contains(after), "{mode}: {suspicions:?}");

        let snapshot = harness.topology.snapshot();
        let state = snapshot.servers().find(|own| own.description().address.host() == host);
        let silence = state.unwrap().silence();
        assert!(silence.suspected.unwrap() > silence.expected.unwrap(), "{silence:?}");
        assert!(silence.answered.unwrap() <= from, "{silence:?}");
        assert!(state.unwrap().description().server_type.is_available());
        let any = Criteria::read(ReadMode::Nearest).unwrap();
        let text = format!("{:#}", harness.topology.explain(&any));
        let line = text.lines().find(|line| line.contains(&format!("{host}:"))).unwrap();
        assert!(line.contains(", and silent for 1"), "{text}");
        assert_eq!(text.matches("silent for").count(), 1, "{text}");

        harness.apply(&Action::Thaw(Target::Member(member)));
        harness.sim.run_for(Duration::from_secs(1));
        let last = harness.suspicions(from).pop().unwrap();
        assert_eq!((&*last.0, last.2), (host, false), "{mode}");
    }
}

#[test]
fn nobody_is_suspected_in_a_healthy_set_or_if_this_client_is_cut_off() {
    let harness = Harness::start("a/?replicaSet=rs");
    let from = harness.sim.now();
    harness.sim.run_for(Duration::from_secs(3600));
    assert_eq!(harness.suspicions(from), [], "healthy");
    harness.sim.network().add_rule(|frame| match frame.direction {
        Direction::ToServer => Verdict::Pass,
        Direction::ToClient => Verdict::Cut,
    });
    harness.sim.run_for(60 * HEARTBEAT);
    assert_eq!(harness.suspicions(from), [], "cut off");
}

#[test]
fn a_detector_leaves_nobody_if_this_program_stalls_or_is_cut_off_for_a_while() {
    let mut options = Options::parse("mongodb://a/?replicaSet=rs").unwrap();
    options.detector = Some(Detector::PROBING);
    let harness = Harness::with(|_| (), options);
    for seconds in 1..=30 {
        harness.sim.stall(Duration::from_secs(seconds));
        harness.sim.run_for(Duration::from_secs(7));
    }
    // The outage ends before the checks time out, and TCP retransmits the lost bytes.
    let healed = harness.sim.now() + Duration::from_secs(8);
    harness.sim.network().add_rule(move |frame| match healed.since(frame.at) {
        Duration::ZERO => Verdict::Pass,
        rest => Verdict::Delay(rest + Duration::from_millis(frame.bytes.len() as u64 * 3)),
    });
    harness.sim.run_for(6 * HEARTBEAT);
    let lost = |event: &sdam::Event| match &event.kind {
        EventKind::ServerDescriptionChanged { previous, new, .. } => {
            previous.server_type.is_available() && !new.server_type.is_available()
        }
        _ => false,
    };
    assert_eq!(harness.events().iter().filter(|event| lost(event)).count(), 0);
}

/// F-56: the event of a failed check precedes the events of its effects.
#[test]
fn the_event_of_a_failed_check_precedes_the_events_of_its_effects() {
    let harness = Harness::start("a/?replicaSet=rs");
    let mark = harness.events().len();
    harness.sim.kill(Target::Primary).unwrap();
    harness.wait_for_known(2);
    let expected = [
        EventName::ServerHeartbeatFailed,
        EventName::ServerDescriptionChanged,
        EventName::TopologyDescriptionChanged,
        EventName::PoolCleared,
    ];
    let names: Vec<_> = harness.events()[mark..]
        .iter()
        .map(|event| event.kind.name())
        .skip_while(|name| *name != expected[0])
        .take(4)
        .collect();
    assert_eq!(names, expected);
}

/// F-66, F-68, I-5: the call that reports an error clears the pool before it returns, with the
/// error as the reason. So the pool is already cleared when the connection is checked in, and
/// failing check-outs can name the reason. The order of the pool's own events is the responsibility
/// of the pool.
#[test]
fn a_pool_is_cleared_before_the_report_of_the_error_returns() {
    let harness = Harness::start("a/?replicaSet=rs");
    let criteria = Criteria::write();
    let selected = harness.sim.block_on(harness.topology.select(&criteria));
    let selected = selected.unwrap();
    let broken = Error::network(Stage::Operation, "the socket broke");
    let error = ErrorReport::new(Generation::FIRST, broken);
    let outcome = harness.topology.reporter(selected.id()).handle_error(&error);
    assert_eq!(outcome, ErrorOutcome::Cleared);
    let generation = harness.topology.reporter(selected.id()).generation(None);
    assert_eq!(generation, Some(Generation::FIRST.next()));
    let calls = harness.pools.calls();
    let call = calls.last().unwrap();
    assert_eq!(call.address, *selected.address());
    let cause = &call.clear.as_ref().unwrap().cause;
    assert_eq!(cause.message(), "the socket broke");
    let again = harness.topology.reporter(selected.id()).handle_error(&error);
    assert_eq!(again, ErrorOutcome::Stale);
    assert_eq!(harness.pools.calls().len(), calls.len());
}

/// F-80: an operation's handshake with an Unknown server makes the server known again, although the
/// monitor receives nothing new on its stream.
#[test]
fn a_pooled_handshake_makes_a_lost_streaming_server_known_again() {
    let harness = Harness::start("a/?replicaSet=rs");
    let (host, _) = harness.secondary();
    let id = harness.server(host).id;
    let checks = harness.checks(host, Instant::EPOCH);
    let hello = &checks.last().unwrap().1;
    assert!(
        Document::from_reader(&**hello).is_ok_and(|hello| hello.contains_key("topologyVersion"))
    );
    let stepped_down = doc! { "ok": 0, "code": 189, "errmsg": "the primary stepped down" };
    let error = reply::error(&stepped_down.to_vec().unwrap(), Stage::Operation).unwrap();
    let report = ErrorReport::new(Generation::FIRST, error);
    let outcome = harness.topology.reporter(id).handle_error(&report);
    assert_eq!(outcome, ErrorOutcome::MarkedUnknown);
    assert_eq!(harness.server(host).server_type, ServerType::Unknown);
    let accepted = harness.topology.reporter(id).handle_handshake(Generation::FIRST, &**hello);
    accepted.unwrap();
    let found = harness.server(host);
    assert_eq!(found.server_type, ServerType::RsSecondary);
    assert!(found.rtt.unwrap().average > Duration::ZERO);
}
