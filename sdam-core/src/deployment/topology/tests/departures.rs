//! Tests of the reasons why servers leave a topology.

use super::*;
use crate::{event::EventKind, topology::Departure};

/// Returns, as strings, the departures that `effects` publish and those that the description keeps.
fn departures(machine: &Topology, effects: Vec<Step>) -> [Vec<String>; 2] {
    let told = effects.into_iter().filter_map(|effect| match effect {
        Step::Out(Output::Emit(EventKind::ServerClosed { server, address, reason })) => {
            Some(Departure::new(server, address, reason).to_string())
        }
        _ => None,
    });
    let remembered = machine.description().departures().iter();
    [told.collect(), remembered.map(ToString::to_string).collect()]
}

/// Passes `before`, if there is one, as the reply of the last seed, then `news` as the reply of the
/// first seed, and checks that the departure is `expected`.
#[track_caller]
fn leaves(options: &Options, before: Option<Hello>, news: Hello, expected: &str) {
    let mut machine = opened(options);
    let [first, last] =
        [options.seeds.first(), options.seeds.last()].map(|seed| seed.unwrap().host().to_string());
    if let Some(before) = before {
        assert!(!check(&mut machine, &last, before).is_empty());
    }
    let effects = check(&mut machine, &first, news);
    let [told, remembered] = departures(&machine, effects);
    assert_eq!(told, [expected]);
    assert_eq!(remembered, told);
}

#[test]
fn every_departure_names_its_reason() {
    // These rules remove servers: D-20 to D-22, D-25, D-26, D-32, D-33, and the table of types.
    let named = |name: &str| {
        let mut options = options(&["a", "b"]);
        options.replica_set = Some(name.into());
        options
    };
    for role in [ServerType::RsPrimary, ServerType::RsSecondary] {
        let text = "a:27017 belongs to the set `rs`, not `wrong`: use replicaSet=rs";
        leaves(&named("wrong"), None, hello(role), text);
    }
    let seeds = || options(&["a", "b"]);
    let other = |role| Hello { set_name: Some("other".into()), ..hello(role) };
    leaves(
        &seeds(),
        Some(hello(ServerType::RsPrimary)),
        other(ServerType::RsSecondary),
        "a:27017 belongs to the set `other`, not `rs`: use replicaSet=other",
    );
    let misnamed = || Hello { me: Some(address("x")), ..hello(ServerType::RsSecondary) };
    for before in [None, Some(hello(ServerType::RsPrimary))] {
        let expected = "a:27017 calls itself x:27017: use that address";
        leaves(&seeds(), before, misnamed(), expected);
    }
    leaves(
        &seeds(),
        None,
        hello(ServerType::Standalone),
        "a:27017 is a standalone server, which must be the only host of the connection string",
    );
    let kinds = [(ServerType::Standalone, "a standalone server"), (ServerType::Mongos, "a mongos")];
    for (server_type, name) in kinds {
        let expected = alloc::format!("a:27017 is {name}, and no part of a replica set");
        leaves(&named("rs"), None, hello(server_type), &expected);
        let primary = Some(hello(ServerType::RsPrimary));
        leaves(&seeds(), primary, hello(server_type), &expected);
    }
    for server_type in [ServerType::RsPrimary, ServerType::RsOther] {
        leaves(
            &seeds(),
            Some(hello(ServerType::Mongos)),
            hello(server_type),
            "a:27017 is a member of a replica set, and no part of a sharded cluster",
        );
    }
}

#[test]
fn a_primary_that_lists_no_members_is_removed_with_the_others() {
    let mut machine = opened(&options(&["a", "b"]));
    let memberless = Hello { hosts: [].into(), ..hello(ServerType::RsPrimary) };
    let effects = check(&mut machine, "a", memberless);
    let [told, remembered] = departures(&machine, effects);
    let expected = [
        "a:27017 is primary, but does not name itself as a member of the set",
        "b:27017 is no member, or a hidden one, according to the primary a:27017",
    ];
    assert_eq!(told, expected);
    assert_eq!(remembered, expected);
    assert_eq!(
        machine.description().to_string(),
        alloc::format!(
            "{{ type: ReplicaSetNoPrimary, setName: rs, servers: [], left: {} }}",
            expected.join("; ")
        )
    );
}

#[test]
fn removal_from_the_srv_record_and_closing_are_departure_reasons() {
    let mut machine = opened(&options(&["a", "b"]));
    let effects = hosts(&mut machine, &[address("b")]);
    let [told, remembered] = departures(&machine, effects);
    assert_eq!(told, ["a:27017 is not in the SRV record any more"]);
    assert_eq!(remembered, told);
    let effects = close(&mut machine);
    let [told, remembered] = departures(&machine, effects);
    let closed = "b:27017 is not watched any more: the topology was closed";
    assert_eq!(told, [closed]);
    assert_eq!(remembered, [""; 0]);
}

#[test]
fn the_last_departures_are_remembered_until_the_server_returns() {
    let mut machine = opened(&options(&["a"]));
    let named =
        |hosts: Vec<ServerAddress>| Hello { hosts: hosts.into(), ..hello(ServerType::RsPrimary) };
    let all = || (0..40).map(|index| ServerAddress::new("a", 27017 + index));
    let _ = check(&mut machine, "a", named(all().collect()));
    let _ = check(&mut machine, "a", named(all().take(1).collect()));
    let left = |machine: &Topology| {
        let departures = machine.description().departures().iter();
        departures.map(|it| it.address.clone()).collect::<Vec<_>>()
    };
    let last = || all().skip(40 - Departure::REMEMBERED);
    assert_eq!(left(&machine), last().collect::<Vec<_>>());
    let one = last().next().unwrap();
    let _ = check(&mut machine, "a", named(vec![address("a"), one]));
    assert_eq!(left(&machine), last().skip(1).collect::<Vec<_>>());
}

#[test]
fn departures_do_not_affect_equality() {
    let departure =
        Departure::new(ServerId::from_u64(1), address("a"), DepartureReason::HostsChanged);
    let plain = TopologyDescription::default();
    let other = plain.clone().with_departures(core::slice::from_ref(&departure));
    assert_eq!(other.departures(), [departure]);
    assert_eq!(other, plain);
}
