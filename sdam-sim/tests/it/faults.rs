//! Partitions, split brains, and unresponsive servers.

use bson::doc;
use sdam_sim::deployment::Role;

use crate::support::{World, awaiting, counter, hello, is_ok, is_primary};

#[test]
fn a_primary_that_is_cut_off_from_the_others_gives_up_and_is_replaced() {
    let mut world = World::replica_set(3);
    world.advance_millis(5000);
    world.run("isolate 0");
    world.advance_millis(30_000);
    assert_eq!(world.role(0), Role::Secondary);
    assert!(matches!(world.primary(), Some(1 | 2)));
    world.run("heal");
    assert_eq!(
        world.hello(0).get_str("primary").unwrap(),
        world.hello(1).get_str("primary").unwrap()
    );
}

#[test]
fn a_partition_between_two_secondaries_changes_nothing_for_clients() {
    let mut world = World::replica_set(3);
    world.run("partition 1 2");
    world.advance_millis(100_000);
    assert_eq!(world.primary(), Some(0));
    assert_eq!(world.member(0).term, 1);
}

#[test]
fn in_a_split_brain_two_primaries_have_different_elections() {
    let mut world = World::replica_set(3);
    world.run("splitbrain");
    world.advance_millis(60_000);
    let (old, new) = (world.hello(0), world.hello(1));
    assert!(is_primary(&old) && is_primary(&new));
    let id = |reply: &bson::Document| reply.get_object_id("electionId").unwrap().bytes();
    assert!(id(&new) > id(&old));
    assert_eq!(world.primary(), Some(1), "the one elected last");
    for member in [0, 1] {
        let insert = doc! { "insert": "things", "documents": [{}], "$db": "test" };
        assert!(is_ok(&world.call_member(member, &insert)));
    }
    world.run("heal");
    assert_eq!(
        world.roles(),
        [Role::Secondary, Role::Primary, Role::Secondary]
    );
}

#[test]
fn a_split_brain_needs_a_majority_on_the_other_side() {
    let mut world = World::replica_set(2);
    assert!(world.refuse("splitbrain").contains("cannot be elected"));
    world.advance_millis(60_000);
    assert_eq!(world.primary(), Some(0), "nothing was cut");
}

#[test]
fn a_frozen_server_answers_when_it_wakes() {
    let mut world = World::replica_set(3);
    let waiting = world.connect(1);
    let known = world.call(waiting, &hello());
    world.send(waiting, &awaiting(&known, 1000));
    let asking = world.connect(1);
    world.run("freeze 1");
    world.send(asking, &hello());
    let new = world.connect(1);
    world.send(new, &hello());
    world.run("stepup 2");
    world.advance_millis(60_000);
    for connection in [waiting, asking, new] {
        assert!(world.try_receive(connection).is_none());
        assert!(!world.is_closed(connection));
    }
    world.run("thaw 1");
    world.advance_millis(2000);
    for connection in [waiting, asking, new] {
        assert!(is_ok(&world.receive_last(connection).body));
    }
    assert_eq!(world.hello(1).get_str("primary").unwrap(), "sim:27019");
}

#[test]
fn a_server_clients_are_cut_off_from_keeps_its_role_and_its_answers() {
    let mut world = World::replica_set(3);
    let streaming = world.connect(0);
    let known = world.call(streaming, &hello());
    world.send_exhaust(streaming, &awaiting(&known, 10_000));
    world.run("cutoff 0");
    let asking = world.connect(0);
    world.send(asking, &hello());
    world.run("reconfig 1 tags=a:b");
    world.advance_millis(30_000);
    assert!(world.try_receive(streaming).is_none() && world.try_receive(asking).is_none());
    assert_eq!(world.primary(), Some(0));
    world.run("heal");
    let first = world.receive(streaming);
    assert_eq!(counter(&first.body), counter(&known) + 1);
    assert!(world.receive_last(streaming).more_to_come);
    assert!(is_primary(&world.receive(asking).body));
}

#[test]
fn an_upgrade_restarts_the_server_with_another_release() {
    let mut world = World::replica_set(3);
    world.run("upgrade 2 4.2");
    world.advance_millis(5000);
    let reply = world.hello(2);
    assert_eq!(reply.get_i32("maxWireVersion").unwrap(), 8);
    assert!(!reply.contains_key("topologyVersion"));
    assert!(reply.get_bool("secondary").unwrap());
}

#[test]
fn mongoses_live_and_die_alone() {
    let mut world = World::sharded(3);
    world.run("kill 1");
    assert!(world.try_connect(1).is_none());
    assert!(is_primary(&world.hello(0)));
    assert!(world.refuse("stepup 0").contains("not a replica set"));
    assert!(world.refuse("stepdown").contains("no such member"));
    world.run("restart 1");
    assert!(is_primary(&world.hello(1)));
    world.run("shutdown 2");
    world.advance_millis(15_000);
    assert!(world.try_connect(2).is_none());
}
