//! Elections and their effects on the members' states.

use std::time::Duration;

use bson::{Document, doc, oid::ObjectId};
use sdam_sim::{
    Blueprint,
    config::{MemberConfig, SetConfig},
    deployment::Role,
};

use crate::support::{World, address, addresses, code, hello, is_ok, is_primary};

fn election_id(reply: &Document) -> ObjectId {
    reply.get_object_id("electionId").unwrap()
}

#[test]
fn a_new_set_has_the_preferred_member_as_its_primary() {
    let mut world = World::configured([
        MemberConfig::new(address(0)),
        MemberConfig::new(address(1)).priority(5.0),
        MemberConfig::new(address(2)).priority(3.0),
    ]);
    assert_eq!(
        world.roles(),
        [Role::Secondary, Role::Primary, Role::Secondary]
    );
    assert!(is_primary(&world.hello(1)));
}

#[test]
fn a_step_down_is_followed_by_a_hand_over_in_a_newer_term() {
    let mut world = World::replica_set(3);
    let before = world.hello(0);
    world.run("stepdown");
    assert_eq!(world.primary(), None);
    let between = world.hello(1);
    assert!(!between.contains_key("primary"), "{between}");
    world.advance_millis(100);
    assert_eq!(world.primary(), Some(1));
    let after = world.hello(1);
    assert!(election_id(&after).bytes() > election_id(&before).bytes());
    assert_eq!(world.member(1).term, 2);
    assert_eq!(world.hello(2).get_str("primary").unwrap(), "sim:27018");
}

#[test]
fn a_new_primary_is_a_secondary_with_an_election_id_until_it_has_caught_up() {
    let mut world = World::replica_set(3);
    let connection = world.connect(1);
    world.run("stepup 1");
    let reply = world.call(connection, &hello());
    assert!(reply.get_bool("secondary").unwrap() && !is_primary(&reply));
    assert!(reply.contains_key("electionId"), "{reply}");
    let insert = doc! { "insert": "things", "documents": [{}], "$db": "test" };
    assert_eq!(code(&world.call(connection, &insert)), 10107);
    world.advance_millis(15);
    let reply = world.call(connection, &hello());
    assert!(!reply.get_bool("secondary").unwrap() && is_primary(&reply));
    assert!(is_ok(&world.call(connection, &insert)));
}

#[test]
fn a_dead_primary_is_replaced_after_the_election_timeout() {
    let mut world = World::replica_set(3);
    world.advance_millis(5000);
    world.run("kill 0");
    world.advance_millis(7900);
    assert_eq!(
        world.primary(),
        None,
        "10 s after it was last heard at the latest 2 s ago"
    );
    world.advance_millis(4000);
    assert!(matches!(world.primary(), Some(1 | 2)));
    world.run("restart 0");
    world.advance_millis(20_000);
    assert_eq!(world.role(0), Role::Secondary);
    assert!(matches!(world.primary(), Some(1 | 2)));
}

#[test]
fn a_frozen_primary_is_replaced_and_steps_down_when_it_wakes() {
    let mut world = World::replica_set(3);
    world.advance_millis(5000);
    world.run("freeze 0");
    world.advance_millis(20_000);
    assert!(matches!(world.primary(), Some(1 | 2)));
    assert_eq!(world.role(0), Role::Primary, "it knows nothing of it");
    world.run("thaw 0");
    world.advance_millis(2000);
    assert_eq!(world.role(0), Role::Secondary);
}

#[test]
fn without_a_majority_nobody_is_primary() {
    let mut world = World::replica_set(3);
    world.advance_millis(5000);
    world.run("kill 1");
    world.run("kill 2");
    world.advance_millis(8000);
    assert_eq!(
        world.role(0),
        Role::Primary,
        "it has heard them less than 10 s ago"
    );
    world.advance_millis(6000);
    assert_eq!(world.role(0), Role::Secondary);
    world.advance_millis(100_000);
    assert_eq!(world.primary(), None);
    world.run("restart 1");
    world.advance_millis(30_000);
    assert!(world.primary().is_some());
}

#[test]
fn a_set_of_one_elects_itself_again_after_its_step_down_period() {
    let mut world = World::replica_set(1);
    world.run("stepdown 20");
    world.advance_millis(19_000);
    assert_eq!(world.primary(), None);
    world.advance_millis(2_000);
    assert_eq!(world.primary(), Some(0));
    assert_eq!(world.member(0).term, 2);
}

#[test]
fn a_member_of_higher_priority_takes_over() {
    let mut world = World::replica_set(3);
    world.run("reconfig 2 priority=10");
    assert_eq!(world.primary(), Some(0));
    world.advance_millis(15_000);
    assert_eq!(world.primary(), Some(2));
}

#[test]
fn neither_passive_nor_arbiter_nor_delayed_members_are_elected() {
    let mut world = World::configured([
        MemberConfig::new(address(0)),
        MemberConfig::new(address(1)).priority(0.0),
        MemberConfig::new(address(2)).arbiter(),
        MemberConfig::new(address(3)).delayed(Duration::from_secs(10)),
        MemberConfig::new(address(4)).hidden(),
    ]);
    world.run("kill 0");
    world.advance_millis(100_000);
    assert_eq!(world.primary(), None);
    assert_eq!(world.role(2), Role::Arbiter);
    for member in 1..5 {
        assert!(
            world
                .refuse(&format!("stepup {member}"))
                .contains("cannot be elected")
        );
    }
}

#[test]
fn an_arbiter_makes_a_majority() {
    let mut world = World::configured([
        MemberConfig::new(address(0)),
        MemberConfig::new(address(1)),
        MemberConfig::new(address(2)).arbiter(),
    ]);
    world.run("kill 0");
    world.advance_millis(15_000);
    assert_eq!(world.primary(), Some(1));
}

#[test]
fn repl_set_freeze_keeps_a_member_from_running() {
    let mut world = World::replica_set(3);
    world.run("replfreeze 1 600");
    world.run("replfreeze 2 600");
    world.run("kill 0");
    world.advance_millis(100_000);
    assert_eq!(world.primary(), None);
    world.run("replfreeze 2 0");
    world.advance_millis(15_000);
    assert_eq!(world.primary(), Some(2));
    assert!(world.refuse("replfreeze 2 10").contains("role"));
}

#[test]
fn a_member_that_lags_behind_the_others_is_not_elected() {
    let mut world = World::replica_set(3);
    world.run("lag 1 600");
    world.advance_millis(30_000);
    assert!(world.refuse("stepup 1").contains("cannot be elected"));
    world.run("kill 0");
    world.advance_millis(60_000);
    assert_eq!(world.primary(), Some(2));
}

#[test]
fn a_reconfiguration_reaches_everybody_with_the_next_version() {
    let mut world = World::replica_set(3);
    world.run("reconfig 1 tags=dc:ny,rack:1");
    for member in 0..3 {
        assert_eq!(world.hello(member).get_i32("setVersion").unwrap(), 2);
    }
    let tags = world.hello(1).get_document("tags").unwrap().clone();
    assert_eq!(tags, doc! { "dc": "ny", "rack": "1" });
    world.run("remove 2");
    assert_eq!(world.role(2), Role::Removed);
    let removed = world.hello(2);
    assert!(removed.get_bool("isreplicaset").unwrap(), "{removed}");
    assert_eq!(world.hello(0).get_array("hosts").unwrap().len(), 2);
    world.run("add 2");
    world.advance_millis(3000);
    assert_eq!(world.role(2), Role::Secondary);
    assert_eq!(world.hello(2).get_i32("setVersion").unwrap(), 4);
}

#[test]
fn a_primary_that_may_not_be_one_any_more_steps_down() {
    for change in ["reconfig 0 priority=0", "remove 0"] {
        let mut world = World::replica_set(3);
        world.run(change);
        assert_eq!(world.primary(), None, "{change}");
        world.advance_millis(15_000);
        assert!(matches!(world.primary(), Some(1 | 2)), "{change}");
    }
}

#[test]
fn a_configuration_nobody_could_lead_is_refused() {
    let mut world = World::replica_set(1);
    assert!(
        world
            .refuse("reconfig 0 priority=0")
            .contains("no electable member")
    );
    assert!(world.refuse("remove 0").contains("no electable member"));
    assert_eq!(world.hello(0).get_i32("setVersion").unwrap(), 1);
}

#[test]
fn clients_steer_a_set_through_commands() {
    let mut world = World::replica_set(3);
    let connection = world.connect(0);
    let get = doc! { "replSetGetConfig": 1, "$db": "admin" };
    let mut config = world
        .call(connection, &get)
        .get_document("config")
        .unwrap()
        .clone();
    assert_eq!(config.get_i64("version").unwrap(), 1);
    let members = config.get_array_mut("members").unwrap();
    members[2]
        .as_document_mut()
        .unwrap()
        .insert("priority", 7.0);
    let reconfig = doc! { "replSetReconfig": config, "$db": "admin" };
    assert!(is_ok(&world.call(connection, &reconfig)));
    assert_eq!(world.hello(1).get_i32("setVersion").unwrap(), 2);
    let step_down = doc! { "replSetStepDown": 60, "$db": "admin" };
    assert!(is_ok(&world.call(connection, &step_down)));
    world.advance_millis(100);
    assert_eq!(world.primary(), Some(2), "the preferred one takes over");
    assert_eq!(code(&world.call(connection, &step_down)), 10107);
    let maintenance = doc! { "replSetMaintenance": true, "$db": "admin" };
    assert!(is_ok(&world.call_member(1, &maintenance)));
    assert_eq!(world.role(1), Role::Recovering);
    let report = world.call(connection, &doc! { "replSetGetStatus": 1, "$db": "admin" });
    let states: Vec<_> = report
        .get_array("members")
        .unwrap()
        .iter()
        .map(|member| member.as_document().unwrap().get_str("stateStr").unwrap())
        .collect();
    assert_eq!(states, ["SECONDARY", "RECOVERING", "PRIMARY"]);
}

#[test]
fn a_step_down_that_nobody_could_take_over_from_needs_force() {
    let mut world = World::replica_set(1);
    let step_down = doc! { "replSetStepDown": 60, "$db": "admin" };
    assert_eq!(code(&world.call_member(0, &step_down)), 262);
    let forced = doc! { "replSetStepDown": 60, "force": true, "$db": "admin" };
    assert!(is_ok(&world.call_member(0, &forced)));
    assert_eq!(world.primary(), None);
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_not() {
    let run = |seed| {
        let config = SetConfig::new("rs0", addresses(5));
        let mut world = World::seeded(&Blueprint::replica_set(config), seed);
        let mut trace = Vec::new();
        for step in 0..20 {
            let script = ["kill primary", "restart 0", "restart 1", "restart 2"];
            let action = script[step % script.len()].parse().unwrap();
            // Killing a process that is not running fails; that is part of the run, too.
            let outputs = world.deployment.apply(world.now, &action);
            trace.push(format!("{outputs:?}"));
            world.advance_millis(7_000);
            trace.push(format!("{:?}", world.status()));
        }
        trace
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
