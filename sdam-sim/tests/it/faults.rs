//! Tests of partitions, split brains and unresponsive servers.

use sdam_sim::deployment::Role;

use crate::support::{Fixture, awaiting, counter, hello, insert, is_ok, is_primary};

#[test]
fn in_a_split_brain_two_primaries_have_different_elections() {
    let mut fixture = Fixture::replica_set(3);
    fixture.run("splitbrain");
    fixture.advance_millis(60_000);
    let (old, new) = (fixture.hello(0), fixture.hello(1));
    assert!(is_primary(&old) && is_primary(&new));
    let id = |reply: &bson::Document| reply.get_object_id("electionId").unwrap().bytes();
    assert!(id(&new) > id(&old));
    assert_eq!(fixture.primary(), Some(1), "the one elected last");
    for member in [0, 1] {
        assert!(is_ok(&fixture.call_member(member, &insert())));
    }
    fixture.run("heal");
    assert_eq!(fixture.roles(), [Role::Secondary, Role::Primary, Role::Secondary]);
}

#[test]
fn a_split_brain_needs_a_majority_on_the_other_side() {
    let mut fixture = Fixture::replica_set(2);
    assert!(fixture.refuse("splitbrain").contains("cannot be elected"));
    fixture.advance_millis(60_000);
    assert_eq!(fixture.primary(), Some(0), "no member was disconnected");
}

#[test]
fn a_frozen_server_replies_when_thawed() {
    let mut fixture = Fixture::replica_set(3);
    let waiting = fixture.connect(1);
    let known = fixture.call(waiting, &hello());
    fixture.send(waiting, &awaiting(&known, 1000));
    let asking = fixture.connect(1);
    fixture.run("freeze 1");
    fixture.send(asking, &hello());
    let new = fixture.connect(1);
    fixture.send(new, &hello());
    fixture.run("stepup 2");
    fixture.advance_millis(60_000);
    for connection in [waiting, asking, new] {
        assert!(fixture.try_receive(connection).is_none());
        assert!(!fixture.is_closed(connection));
    }
    fixture.run("thaw 1");
    fixture.advance_millis(2000);
    for connection in [waiting, asking, new] {
        assert!(is_ok(&fixture.receive_last(connection).body));
    }
    assert_eq!(fixture.hello(1).get_str("primary").unwrap(), "sim:27019");
}

#[test]
fn a_server_cut_off_from_clients_keeps_its_role_and_its_replies() {
    let mut fixture = Fixture::replica_set(3);
    let (streaming, known, _) = fixture.stream(0, 10_000);
    fixture.run("cutoff 0");
    let asking = fixture.connect(0);
    fixture.send(asking, &hello());
    fixture.run("reconfig 1 tags=a:b");
    fixture.advance_millis(30_000);
    assert!(fixture.try_receive(streaming).is_none() && fixture.try_receive(asking).is_none());
    assert_eq!(fixture.primary(), Some(0));
    fixture.run("heal");
    let first = fixture.receive(streaming);
    assert_eq!(counter(&first.body), counter(&known) + 1);
    assert!(fixture.receive_last(streaming).more_to_come);
    assert!(is_primary(&fixture.receive(asking).body));
}

#[test]
fn an_upgrade_restarts_the_server_with_another_release() {
    let mut fixture = Fixture::replica_set(3);
    fixture.run("upgrade 2 4.2");
    fixture.advance_millis(5000);
    let reply = fixture.hello(2);
    assert_eq!(reply.get_i32("maxWireVersion").unwrap(), 8);
    assert!(!reply.contains_key("topologyVersion"));
    assert!(reply.get_bool("secondary").unwrap());
}

#[test]
fn mongoses_are_killed_and_restarted_individually() {
    let mut fixture = Fixture::sharded(3);
    fixture.run("kill 1");
    assert!(fixture.try_connect(1).is_none());
    assert!(is_primary(&fixture.hello(0)));
    assert!(fixture.refuse("stepup 0").contains("not a replica set"));
    assert!(fixture.refuse("stepdown").contains("does not exist"));
    fixture.run("restart 1");
    assert!(is_primary(&fixture.hello(1)));
    fixture.run("shutdown 2");
    fixture.advance_millis(15_000);
    assert!(fixture.try_connect(2).is_none());
}
