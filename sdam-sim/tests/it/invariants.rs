//! Applies random actions with many seeds, and checks that none of them violates the invariants of
//! a replica set.

use std::collections::BTreeMap;

use sdam_core::{ids::ObjectId, rng::Rng};
use sdam_sim::{
    Action, Blueprint, MemberId,
    config::SetConfig,
    deployment::{Role, Status},
};

use crate::support::{Fixture, addresses};

const MEMBERS: u16 = 5;

/// Draws a random action, and returns it as a line of text.
fn draw(rng: &mut Rng) -> String {
    let member = rng.below(u64::from(MEMBERS));
    let other = rng.below(u64::from(MEMBERS));
    let verbs = ["kill", "restart", "freeze", "thaw", "isolate", "stepup", "shutdown", "cutoff"];
    match rng.below(16) {
        0 => "stepdown 5".to_owned(),
        1 => "heal".to_owned(),
        2 => "splitbrain".to_owned(),
        3 => format!("partition {member} {other}"),
        4 => format!("reconfig {member} priority={}", rng.below(4)),
        5 => format!("lag {member} {}", rng.below(30)),
        6 => format!("maintenance {member} {}", if rng.below(2) == 0 { "on" } else { "off" }),
        verb => format!("{} {member}", verbs[verb as usize % verbs.len()]),
    }
}

/// The states observed during a run.
#[derive(Default)]
struct History {
    /// The primary of each term.
    leaders: BTreeMap<i64, MemberId>,
    /// The last topology version counter of each process.
    counters: BTreeMap<ObjectId, i64>,
}

impl History {
    fn observe(&mut self, status: &Status) {
        for member in &status.members {
            let version = member.topology_version;
            let last = self.counters.entry(version.process_id).or_default();
            assert!(version.counter >= *last, "the counter fell: {member:?}");
            *last = version.counter;
            if member.running && member.role == Some(Role::Primary) {
                let leader = self.leaders.entry(member.term).or_insert(member.id);
                assert_eq!(*leader, member.id, "a term has two leaders: {status:?}");
                assert_eq!(member.primary, Some(member.id));
            }
        }
    }
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let config = SetConfig::new("rs0", addresses(MEMBERS));
    let mut fixture = Fixture::seeded(&Blueprint::replica_set(config), seed);
    let mut history = History::default();
    for _ in 0..60 {
        let line = draw(&mut rng);
        let action: Action = line.parse().unwrap();
        // The action may be refused. The invariants must hold in either case.
        let _ = fixture.deployment.apply(fixture.now, &action);
        history.observe(&fixture.status());
        for _ in 0..rng.below(12) {
            fixture.advance_millis(rng.below(3000));
            history.observe(&fixture.status());
        }
    }
    fixture.run("heal");
    for member in 0..MEMBERS {
        fixture.run(&format!("thaw {member}"));
        fixture.run(&format!("lag {member} 0"));
        fixture.run(&format!("restart {member}"));
    }
    fixture.advance_millis(120_000);
    history.observe(&fixture.status());
    let roles = fixture.roles();
    let count = |role| roles.iter().filter(|other| **other == role).count();
    assert_eq!(count(Role::Primary), 1, "seed {seed}: {roles:?}");
    assert_eq!(count(Role::Secondary), usize::from(MEMBERS) - 1, "seed {seed}: {roles:?}");
    let primary = fixture.primary().map(MemberId);
    for member in fixture.status().members {
        assert_eq!(member.primary, primary, "seed {seed}");
    }
    assert!(history.leaders.len() > 1, "no primary was elected with seed {seed}");
}

#[test]
fn a_term_has_one_leader_and_a_healed_set_one_primary_that_all_follow() {
    (0..300).for_each(run);
}
