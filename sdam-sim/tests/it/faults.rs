//! Tests of split brains, unresponsive servers, and servers that answer in place of a member.

use sdam_core::{hello::Hello, server::ServerType};
use sdam_sim::{Action, Blueprint, action::Impostor, deployment::Role};

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
fn actions_that_a_deployment_cannot_take_are_refused() {
    let mut fixture = Fixture::sharded(3);
    assert!(fixture.refuse("stepup 0").contains("not a replica set"));
    assert!(fixture.refuse("stepdown").contains("does not exist"));
    fixture.run("kill 2");
    assert!(fixture.refuse("kill 2").contains("is not running"));
}

fn seen(fixture: &mut Fixture) -> Hello {
    let reply = fixture.hello(1);
    Hello::parse(&reply.to_vec().unwrap()).unwrap()
}

#[test]
fn clients_find_each_kind_of_impostor_until_it_leaves() {
    let mut fixture = Fixture::replica_set(3);
    for kind in Impostor::ALL {
        let connection = fixture.connect(1);
        fixture.run(&format!("impostor 1 {kind}"));
        assert!(fixture.is_closed(connection), "{kind}");
        let hello = seen(&mut fixture);
        let expected = match kind {
            Impostor::Standalone => ServerType::Standalone,
            Impostor::Mongos => ServerType::Mongos,
            Impostor::Ghost => ServerType::RsGhost,
            Impostor::Arbiter => ServerType::RsArbiter,
            Impostor::Hidden => ServerType::RsOther,
            Impostor::OtherPrimary => ServerType::RsPrimary,
            _ => ServerType::RsSecondary,
        };
        assert_eq!(hello.server_type, expected, "{kind}");
        assert_eq!(hello.topology_version, None, "{kind}");
        let other = matches!(kind, Impostor::OtherSet | Impostor::OtherPrimary);
        let set = if other { Impostor::SET } else { "rs0" };
        let is_member =
            !matches!(expected, ServerType::Standalone | ServerType::Mongos | ServerType::RsGhost);
        assert_eq!(hello.set_name.as_deref(), is_member.then_some(set), "{kind}");
        let me = hello.me.map(|me| me.to_string());
        assert_eq!(me.as_deref() == Some("renamed.test:27017"), *kind == Impostor::Renamed);
        fixture.run("impostor 1 off");
        assert_eq!(seen(&mut fixture).server_type, ServerType::RsSecondary, "after {kind}");
    }
    // The replica set does not notice the impostor.
    assert_eq!(fixture.primary(), Some(0));
}

#[test]
fn an_impostor_outlives_a_restart_of_the_member() {
    let mut fixture = Fixture::new(&Blueprint::sharded(2).at(crate::support::addresses(2)));
    fixture.run("impostor 1 other-primary");
    fixture.run("restart 1");
    assert_eq!(seen(&mut fixture).server_type, ServerType::RsPrimary);
    let error = "impostor 1 dragon".parse::<Action>().unwrap_err().to_string();
    assert!(error.contains("`dragon` is not standalone, mongos"), "{error}");
}
