//! Tests of elections and their effects on the members' states.

use std::time::Duration;

use bson::{Document, doc, oid::ObjectId};
use sdam_sim::{config::MemberConfig, deployment::Role};

use crate::support::{Fixture, address, code, hello, insert, is_ok, is_primary};

fn election_id(reply: &Document) -> ObjectId {
    reply.get_object_id("electionId").unwrap()
}

#[test]
fn a_new_set_has_the_preferred_member_as_its_primary() {
    let mut fixture = Fixture::configured([
        MemberConfig::new(address(0)),
        MemberConfig::new(address(1)).priority(5.0),
        MemberConfig::new(address(2)).priority(3.0),
    ]);
    assert_eq!(fixture.roles(), [Role::Secondary, Role::Primary, Role::Secondary]);
    assert!(is_primary(&fixture.hello(1)));
}

#[test]
fn a_step_down_elects_another_primary_in_a_newer_term() {
    let mut fixture = Fixture::replica_set(3);
    let before = fixture.hello(0);
    fixture.run("stepdown");
    assert_eq!(fixture.primary(), None);
    let between = fixture.hello(1);
    assert!(!between.contains_key("primary"), "{between}");
    fixture.advance_millis(100);
    assert_eq!(fixture.primary(), Some(1));
    let after = fixture.hello(1);
    assert!(election_id(&after).bytes() > election_id(&before).bytes());
    assert_eq!(fixture.member(1).term, 2);
    assert_eq!(fixture.hello(2).get_str("primary").unwrap(), "sim:27018");
}

#[test]
fn a_new_primary_is_a_secondary_with_an_election_id_until_it_has_caught_up() {
    let mut fixture = Fixture::replica_set(3);
    let connection = fixture.connect(1);
    fixture.run("stepup 1");
    let reply = fixture.call(connection, &hello());
    assert!(reply.get_bool("secondary").unwrap() && !is_primary(&reply));
    assert!(reply.contains_key("electionId"), "{reply}");
    assert_eq!(code(&fixture.call(connection, &insert())), 10107);
    fixture.advance_millis(15);
    let reply = fixture.call(connection, &hello());
    assert!(!reply.get_bool("secondary").unwrap() && is_primary(&reply));
    assert!(is_ok(&fixture.call(connection, &insert())));
}

#[test]
fn a_dead_primary_is_replaced_after_the_election_timeout() {
    let mut fixture = Fixture::replica_set(3);
    fixture.advance_millis(5000);
    fixture.run("kill 0");
    fixture.advance_millis(7900);
    assert_eq!(
        fixture.primary(),
        None,
        "10 s after its last heartbeat, which was at most 2 s before"
    );
    fixture.advance_millis(4000);
    assert!(matches!(fixture.primary(), Some(1 | 2)));
    fixture.run("restart 0");
    fixture.advance_millis(20_000);
    assert_eq!(fixture.role(0), Role::Secondary);
    assert!(matches!(fixture.primary(), Some(1 | 2)));
}

#[test]
fn a_frozen_primary_is_replaced_and_steps_down_when_thawed() {
    let mut fixture = Fixture::replica_set(3);
    fixture.advance_millis(5000);
    fixture.run("freeze 0");
    fixture.advance_millis(20_000);
    assert!(matches!(fixture.primary(), Some(1 | 2)));
    assert_eq!(fixture.role(0), Role::Primary, "the frozen member has not noticed the election");
    fixture.run("thaw 0");
    fixture.advance_millis(2000);
    assert_eq!(fixture.role(0), Role::Secondary);
}

#[test]
fn without_a_majority_there_is_no_primary() {
    let mut fixture = Fixture::replica_set(3);
    fixture.advance_millis(5000);
    fixture.run("kill 1");
    fixture.run("kill 2");
    fixture.advance_millis(8000);
    assert_eq!(fixture.role(0), Role::Primary, "the last heartbeats are less than 10 s old");
    fixture.advance_millis(6000);
    assert_eq!(fixture.role(0), Role::Secondary);
    fixture.advance_millis(100_000);
    assert_eq!(fixture.primary(), None);
    fixture.run("restart 1");
    fixture.advance_millis(30_000);
    assert!(fixture.primary().is_some());
}

#[test]
fn a_set_of_one_elects_itself_again_after_its_step_down_period() {
    let mut fixture = Fixture::replica_set(1);
    fixture.run("stepdown 20");
    fixture.advance_millis(19_000);
    assert_eq!(fixture.primary(), None);
    fixture.advance_millis(2_000);
    assert_eq!(fixture.primary(), Some(0));
    assert_eq!(fixture.member(0).term, 2);
}

#[test]
fn a_member_of_higher_priority_takes_over() {
    let mut fixture = Fixture::replica_set(3);
    fixture.run("reconfig 2 priority=10");
    assert_eq!(fixture.primary(), Some(0));
    fixture.advance_millis(15_000);
    assert_eq!(fixture.primary(), Some(2));
}

#[test]
fn neither_passive_nor_arbiter_nor_delayed_members_are_elected() {
    let mut fixture = Fixture::configured([
        MemberConfig::new(address(0)),
        MemberConfig::new(address(1)).priority(0.0),
        MemberConfig::new(address(2)).arbiter(),
        MemberConfig::new(address(3)).delayed(Duration::from_secs(10)),
        MemberConfig::new(address(4)).hidden(),
    ]);
    fixture.run("kill 0");
    fixture.advance_millis(100_000);
    assert_eq!(fixture.primary(), None);
    assert_eq!(fixture.role(2), Role::Arbiter);
    for member in 1..5 {
        assert!(fixture.refuse(&format!("stepup {member}")).contains("cannot be elected"));
    }
}

#[test]
fn an_arbiter_makes_a_majority() {
    let mut fixture = Fixture::configured([
        MemberConfig::new(address(0)),
        MemberConfig::new(address(1)),
        MemberConfig::new(address(2)).arbiter(),
    ]);
    fixture.run("kill 0");
    fixture.advance_millis(15_000);
    assert_eq!(fixture.primary(), Some(1));
}

#[test]
fn repl_set_freeze_prevents_candidacy() {
    let mut fixture = Fixture::replica_set(3);
    fixture.run("replfreeze 1 600");
    fixture.run("replfreeze 2 600");
    fixture.run("kill 0");
    fixture.advance_millis(100_000);
    assert_eq!(fixture.primary(), None);
    fixture.run("replfreeze 2 0");
    fixture.advance_millis(15_000);
    assert_eq!(fixture.primary(), Some(2));
    assert!(fixture.refuse("replfreeze 2 10").contains("role"));
}

#[test]
fn a_member_that_lags_behind_the_others_is_not_elected() {
    let mut fixture = Fixture::replica_set(3);
    fixture.run("lag 1 600");
    fixture.advance_millis(30_000);
    assert!(fixture.refuse("stepup 1").contains("cannot be elected"));
    fixture.run("kill 0");
    fixture.advance_millis(60_000);
    assert_eq!(fixture.primary(), Some(2));
}

#[test]
fn a_reconfiguration_reaches_every_member_with_the_next_version() {
    let mut fixture = Fixture::replica_set(3);
    fixture.run("reconfig 1 tags=dc:ny,rack:1");
    for member in 0..3 {
        assert_eq!(fixture.hello(member).get_i32("setVersion").unwrap(), 2);
    }
    let tags = fixture.hello(1).get_document("tags").unwrap().clone();
    assert_eq!(tags, doc! { "dc": "ny", "rack": "1" });
    fixture.run("remove 2");
    assert_eq!(fixture.role(2), Role::Removed);
    let removed = fixture.hello(2);
    assert!(removed.get_bool("isreplicaset").unwrap(), "{removed}");
    assert_eq!(fixture.hello(0).get_array("hosts").unwrap().len(), 2);
    fixture.run("add 2");
    fixture.advance_millis(3000);
    assert_eq!(fixture.role(2), Role::Secondary);
    assert_eq!(fixture.hello(2).get_i32("setVersion").unwrap(), 4);
}

#[test]
fn a_primary_that_becomes_unelectable_or_is_removed_steps_down() {
    for change in ["reconfig 0 priority=0", "remove 0"] {
        let mut fixture = Fixture::replica_set(3);
        fixture.run(change);
        assert_eq!(fixture.primary(), None, "{change}");
        fixture.advance_millis(15_000);
        assert!(matches!(fixture.primary(), Some(1 | 2)), "{change}");
    }
}

#[test]
fn a_candidate_that_lacks_writes_of_a_voter_replicates_them_without_a_primary() {
    let members = crate::support::addresses(3).map(MemberConfig::new);
    let members: Vec<_> = members.collect();
    let [first, second, third] = members.try_into().unwrap();
    let mut fixture = Fixture::configured([first, second, third.priority(0.0)]);
    fixture.run("kill 0");
    // The idle primary writes every 10 s (M-43), and the third member replicates these writes.
    fixture.advance_millis(60_000);
    assert_eq!(fixture.primary(), Some(1));
    fixture.run("kill 1");
    fixture.run("restart 0");
    fixture.advance_millis(30_000);
    assert_eq!(fixture.primary(), Some(0));
}

#[test]
fn configurations_that_real_servers_refuse_are_refused() {
    let mut fixture = Fixture::replica_set(1);
    assert!(fixture.refuse("reconfig 0 priority=0").contains("no electable member"));
    assert!(fixture.refuse("remove 0").contains("no electable member"));
    let mut fixture = Fixture::replica_set(3);
    for change in ["hidden=true", "votes=false", "delay=10"] {
        let refused = fixture.refuse(&format!("reconfig 1 {change}"));
        assert!(refused.contains("has a priority above 0"), "{change}: {refused}");
        fixture.run(&format!("reconfig 2 {change} priority=0"));
        assert!(fixture.refuse("reconfig 2 priority=1").contains("has a priority above 0"));
        fixture.run("reconfig 2 hidden=false votes=true delay=0");
    }
    let mut fixture = Fixture::replica_set(1);
    assert_eq!(fixture.hello(0).get_i32("setVersion").unwrap(), 1);
}

#[test]
fn clients_administer_a_set_with_commands() {
    let mut fixture = Fixture::replica_set(3);
    let connection = fixture.connect(0);
    let get = doc! { "replSetGetConfig": 1, "$db": "admin" };
    let mut config = fixture.call(connection, &get).get_document("config").unwrap().clone();
    assert_eq!(config.get_i64("version").unwrap(), 1);
    let members = config.get_array_mut("members").unwrap();
    members[2].as_document_mut().unwrap().insert("priority", 7.0);
    let reconfig = doc! { "replSetReconfig": config, "$db": "admin" };
    assert!(is_ok(&fixture.call(connection, &reconfig)));
    assert_eq!(fixture.hello(1).get_i32("setVersion").unwrap(), 2);
    let step_down = doc! { "replSetStepDown": 60, "$db": "admin" };
    assert!(is_ok(&fixture.call(connection, &step_down)));
    fixture.advance_millis(100);
    assert_eq!(fixture.primary(), Some(2), "the preferred one takes over");
    assert_eq!(code(&fixture.call(connection, &step_down)), 10107);
    let maintenance = doc! { "replSetMaintenance": true, "$db": "admin" };
    assert!(is_ok(&fixture.call_member(1, &maintenance)));
    assert_eq!(fixture.role(1), Role::Recovering);
    let report = fixture.call(connection, &doc! { "replSetGetStatus": 1, "$db": "admin" });
    let states: Vec<_> = report
        .get_array("members")
        .unwrap()
        .iter()
        .map(|member| member.as_document().unwrap().get_str("stateStr").unwrap())
        .collect();
    assert_eq!(states, ["SECONDARY", "RECOVERING", "PRIMARY"]);
}

#[test]
fn a_step_down_without_electable_secondaries_needs_force() {
    let mut fixture = Fixture::replica_set(1);
    let step_down = doc! { "replSetStepDown": 60, "$db": "admin" };
    assert_eq!(code(&fixture.call_member(0, &step_down)), 262);
    let forced = doc! { "replSetStepDown": 60, "force": true, "$db": "admin" };
    assert!(is_ok(&fixture.call_member(0, &forced)));
    assert_eq!(fixture.primary(), None);
}
