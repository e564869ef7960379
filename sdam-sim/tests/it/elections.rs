//! Tests of elections and their effects on the members' states.

use std::time::Duration;

use bson::doc;
use sdam_sim::{config::MemberConfig, deployment::Role};

use crate::support::{Fixture, address, code, hello, insert, is_ok, is_primary};

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

/// Runs a set through the steps. Each step is an action, the milliseconds until the next step, and
/// the members of which one is then the primary; no members if there is no primary.
#[track_caller]
fn check(mut fixture: Fixture, steps: &[(&str, u64, &[u16])]) {
    for (action, millis, primaries) in steps {
        if !action.is_empty() {
            fixture.run(action);
        }
        fixture.advance_millis(*millis);
        let primary = fixture.primary();
        let is_right = primary.map_or(primaries.is_empty(), |own| primaries.contains(&own));
        assert!(is_right, "{primary:?} after `{action}`");
    }
}

#[test]
fn the_primary_is_an_electable_member_with_a_majority() {
    let set = Fixture::replica_set;
    let [a, b, c] = [0, 1, 2].map(|number| MemberConfig::new(address(number)));
    let preferring = [a.clone(), b.clone().priority(5.0), c.clone().priority(3.0)];
    check(Fixture::configured(preferring), &[("", 0, &[1])]);
    check(set(3), &[("reconfig 2 priority=10", 0, &[0]), ("", 15_000, &[2])]);
    check(set(3), &[("stepdown", 0, &[]), ("", 100, &[1])]);
    check(set(3), &[("shutdown primary", 100, &[1])]);
    check(set(1), &[("stepdown 20", 19_000, &[]), ("", 2000, &[0])]);
    // A set notices a dead primary 10 s after the primary's last heartbeat, which was at most 2 s
    // before its death.
    let dead = ("kill 0", 7900, &[][..]);
    check(set(3), &[("", 5000, &[0]), dead, ("", 4000, &[1, 2]), ("restart 0", 20_000, &[1, 2])]);
    check(set(3), &[("", 5000, &[0]), ("freeze 0", 20_000, &[1, 2]), ("thaw 0", 2000, &[1, 2])]);
    check(set(3), &[("", 5000, &[0]), ("isolate 0", 30_000, &[1, 2]), ("heal", 0, &[1, 2])]);
    check(set(3), &[("partition 1 2", 100_000, &[0])]);
    let steps: [(_, _, &[u16]); 4] =
        [("kill 1", 5000, &[0]), ("kill 2", 8000, &[0]), ("", 6000, &[]), ("", 100_000, &[])];
    check(set(3), &[&steps[..], &[("restart 1", 30_000, &[0, 1])]].concat());
    let arbiter = c.clone().arbiter();
    check(Fixture::configured([a.clone(), b.clone(), arbiter]), &[("kill 0", 15_000, &[1])]);
    check(set(3), &[("lag 1 600", 30_000, &[0]), ("kill 0", 60_000, &[2])]);
    for change in ["reconfig 0 priority=0", "remove 0"] {
        check(set(3), &[(change, 0, &[]), ("", 15_000, &[1, 2])]);
    }
    // The idle primary writes every 10 s (M-43), and the third member replicates these writes. A
    // candidate that lacks these writes replicates them even without a primary.
    let steps: [(_, _, &[u16]); 3] =
        [("kill 0", 60_000, &[1]), ("kill 1", 0, &[]), ("restart 0", 30_000, &[0])];
    check(Fixture::configured([a, b, c.priority(0.0)]), &steps);
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
fn a_member_that_is_frozen_or_lags_is_no_candidate() {
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
    let mut fixture = Fixture::replica_set(3);
    fixture.run("lag 1 600");
    fixture.advance_millis(30_000);
    assert!(fixture.refuse("stepup 1").contains("cannot be elected"));
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
