//! Tests of servers that answer in place of a member.

use sdam_core::{hello::Hello, server::ServerType};
use sdam_sim::{Action, Blueprint, action::Impostor};

use crate::support::Fixture;

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
