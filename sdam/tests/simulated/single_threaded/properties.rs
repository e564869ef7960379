//! Whatever servers and operations do, each call returns and every invariant holds.

use std::collections::BTreeMap;

use bson::doc;
use proptest::{collection::vec, prelude::*};
use sdam::{Criteria, EventKind, ServerId};

use super::harness::*;

/// An action between or during calls.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Select,
    Scan,
    Check(u64),
    Run(u64),
    Restart(&'static str),
    Kill(&'static str),
    Revive(&'static str),
    Silence(&'static str, bool),
    Answer(&'static str, Role),
    Refuse(&'static str, i32),
}

#[derive(Clone, Copy, Debug)]
enum Role {
    Primary,
    Secondary,
    Ghost,
    Mongos,
    Refusal,
    Other,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn step() -> impl Strategy<Value = Step> {
    let name = || prop::sample::select(NAMES.as_slice());
    let role = prop::sample::select(
        [
            Role::Primary,
            Role::Primary,
            Role::Secondary,
            Role::Secondary,
            Role::Ghost,
            Role::Mongos,
            Role::Refusal,
            Role::Other,
        ]
        .as_slice(),
    );
    let code = prop::sample::select([1, 91, 189, 10_107, 11_600, 13_436].as_slice());
    prop_oneof![
        4 => (0_u64..20_000).prop_map(Step::Pass),
        6 => Just(Step::Select),
        1 => Just(Step::Scan),
        1 => (1_u64..8).prop_map(Step::Check),
        4 => (1_u64..8).prop_map(Step::Run),
        1 => name().prop_map(Step::Restart),
        1 => name().prop_map(Step::Kill),
        2 => name().prop_map(Step::Revive),
        1 => (name(), any::<bool>()).prop_map(|(name, silent)| Step::Silence(name, silent)),
        4 => (name(), role).prop_map(|(name, role)| Step::Answer(name, role)),
        2 => (name(), code).prop_map(|(name, code)| Step::Refuse(name, code)),
    ]
}

fn hello(role: Role) -> bson::Document {
    match role {
        Role::Primary => member(true, "a b c"),
        Role::Secondary => member(false, "a b c d"),
        Role::Ghost => doc! { "ok": 1, "isreplicaset": true, "maxWireVersion": 21 },
        Role::Mongos => mongos(),
        Role::Refusal => refusal(13),
        Role::Other => member(true, "d"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_call_returns_and_every_heartbeat_ends(
        try_once: bool,
        immediate: bool,
        steps in vec(step(), 1..80),
    ) {
        let harness = Harness::default();
        for name in NAMES {
            harness.serve(name, hello(Role::Secondary));
        }
        let (mut topology, mut events) = harness.topology("a b c", |options| {
            options.server_selection_try_once = Some(try_once);
            options.deviations.single_threaded_immediate_check = immediate;
            options.server_selection_timeout = std::time::Duration::from_secs(2);
            options.connect_timeout = Some(std::time::Duration::from_secs(1));
        });
        let find = bytes(&doc! { "find": "things", "$db": "test" });
        let second = Some(std::time::Duration::from_secs(1));
        for step in steps {
            let before = harness.millis();
            match step {
                Step::Pass(millis) => {
                    harness.advance(millis);
                    continue;
                }
                Step::Select => {
                    let selected = ready(topology.select(&Criteria::write()));
                    if let Ok(selected) = selected {
                        let description = topology.description();
                        let now = description.server_by_id(selected.id());
                        prop_assert!(now.is_some_and(|it| it.server_type.is_data_bearing()));
                    }
                }
                Step::Scan => ready(topology.scan()),
                Step::Check(number) => ready(topology.check(ServerId::from_u64(number))),
                Step::Run(number) => {
                    // The server may have left the topology, so the call may fail.
                    let _ = ready(topology.run_command(ServerId::from_u64(number), &find, second));
                }
                Step::Restart(name) => harness.restart(name),
                Step::Kill(name) => harness.kill(name),
                Step::Revive(name) => harness.revive(name),
                Step::Silence(name, silent) => harness.change(name, |server| server.silent = silent),
                Step::Answer(name, role) => harness.serve(name, hello(role)),
                Step::Refuse(name, code) => harness.change(name, |server| server.other = reply(&refusal(code))),
            }
            // Each of four servers takes at most four timeouts of one second, and the probe takes
            // one.
            prop_assert!(harness.millis() - before <= 2_000 + 2 * 17_000, "{step:?}");
            prop_assert!(harness.open() <= topology.description().servers().len());
        }
        drop(topology);
        prop_assert_eq!(harness.open(), 0);
        let mut open: BTreeMap<ServerId, u32> = BTreeMap::new();
        let mut last = 0;
        let mut closed = false;
        while let Some(event) = events.try_next() {
            prop_assert_eq!(event.seq, last + 1);
            prop_assert!(!closed, "an event after TopologyClosed");
            last = event.seq;
            match event.kind {
                EventKind::ServerHeartbeatStarted(heartbeat) => {
                    prop_assert!(!heartbeat.awaited);
                    let open = open.entry(heartbeat.server).or_default();
                    prop_assert_eq!(*open, 0, "two checks of a server at once");
                    *open += 1;
                }
                EventKind::ServerHeartbeatSucceeded { heartbeat, .. }
                | EventKind::ServerHeartbeatFailed { heartbeat, .. } => {
                    let open = open.entry(heartbeat.server).or_default();
                    prop_assert_eq!(*open, 1);
                    *open -= 1;
                }
                EventKind::TopologyClosed => closed = true,
                _ => {}
            }
        }
        prop_assert!(closed && open.values().all(|open| *open == 0));
    }
}
