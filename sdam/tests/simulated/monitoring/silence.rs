//! Servers that stop answering without closing anything.

use std::time::Duration;

use sdam::{Criteria, EventKind, Options, ReadMode, ReadPreference, options::Detector};
use sdam_sim::{
    Action,
    action::Target,
    runtime::{Direction, Verdict},
};

use super::{HEARTBEAT, Harness};

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
        let any = Criteria::read(ReadPreference::new(ReadMode::Nearest)).unwrap();
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

fn options() -> Options {
    Options::parse("mongodb://a/?replicaSet=rs").unwrap()
}

#[test]
fn a_detector_leaves_nobody_if_this_program_stalls_or_is_cut_off_for_a_while() {
    let mut options = options();
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
