//! Tests of the reasons why servers leave a topology, and why this client cannot use a server.

use super::world::*;
use crate::topology::{Departure, DepartureReason, Obstacle};

/// Returns, as strings, the departures that the last call published and those that the description
/// keeps.
fn departures(world: &World) -> [Vec<String>; 2] {
    let told = world.last.iter().filter_map(|output| match output {
        Output::Emit(EventKind::ServerClosed { server, address, reason }) => {
            Some(Departure::new(*server, address.clone(), reason.clone()).to_string())
        }
        _ => None,
    });
    let remembered = world.topology().departures().iter();
    [told.collect(), remembered.map(ToString::to_string).collect()]
}

/// Passes `before`, if there is one, as the reply of the last seed, then `news` as the reply of the
/// first seed, and checks that the departure is `expected`.
#[track_caller]
fn leaves(options: &Options, before: Option<Hello>, news: Hello, expected: &str) {
    let mut world = World::open(options);
    if let Some(before) = before {
        let _ = world.check("b", before);
    }
    let _ = world.check("a", news);
    assert_eq!(departures(&world), [[expected], [expected]]);
}

#[test]
fn every_departure_names_its_reason() {
    // These rules remove servers: B-9, D-20 to D-22, D-25, D-26, D-32, D-33, and the table of
    // types.
    let seeds = || polled(&["a", "b"]);
    let named = |name: &str| {
        let mut options = seeds();
        options.replica_set = Some(name.into());
        options
    };
    for role in [ServerType::RsPrimary, ServerType::RsSecondary] {
        let text = "a:27017 belongs to the set `rs`, not `wrong`: use replicaSet=rs";
        leaves(&named("wrong"), None, hello(role), text);
    }
    let primary = || Some(hello(ServerType::RsPrimary));
    let other = Hello { set_name: Some("other".into()), ..hello(ServerType::RsSecondary) };
    let text = "a:27017 belongs to the set `other`, not `rs`: use replicaSet=other";
    leaves(&seeds(), primary(), other, text);
    for before in [None, primary()] {
        let misnamed = Hello { me: Some(address("x")), ..hello(ServerType::RsSecondary) };
        leaves(&seeds(), before, misnamed, "a:27017 calls itself x:27017: use that address");
    }
    let text =
        "a:27017 is a standalone server, which must be the only host of the connection string";
    leaves(&seeds(), None, standalone(), text);
    let kinds = [(ServerType::Standalone, "a standalone server"), (ServerType::Mongos, "a mongos")];
    for (server_type, name) in kinds {
        let expected = format!("a:27017 is {name}, and no part of a replica set");
        leaves(&named("rs"), None, hello(server_type), &expected);
        leaves(&seeds(), primary(), hello(server_type), &expected);
    }
    for server_type in [ServerType::RsPrimary, ServerType::RsOther] {
        let mongos = Some(hello(ServerType::Mongos));
        let text = "a:27017 is a member of a replica set, and no part of a sharded cluster";
        leaves(&seeds(), mongos, hello(server_type), text);
    }
}

#[test]
fn a_primary_that_lists_no_members_is_removed_with_the_others() {
    let mut world = World::open(&polled(&["a", "b"]));
    let _ = world.check("a", Hello { hosts: [].into(), ..hello(ServerType::RsPrimary) });
    let expected = [
        "a:27017 is primary, but does not name itself as a member of the set",
        "b:27017 is no member, or a hidden one, according to the primary a:27017",
    ];
    assert_eq!(departures(&world), [expected, expected]);
    let [first, second] = expected;
    let left = format!("servers: [], left: {first}; {second} }}");
    let expected = format!("{{ type: ReplicaSetNoPrimary, setName: rs, {left}");
    assert_eq!(world.topology().to_string(), expected);
}

#[test]
fn removal_from_the_srv_record_and_closing_are_departure_reasons() {
    let mut world = World::open(&polled(&["a", "b"]));
    let _ = world.handle(Input::Hosts(addresses(&["b"])));
    let expected = ["a:27017 is not in the SRV record any more"];
    assert_eq!(departures(&world), [expected, expected]);
    let _ = world.handle(Input::Close);
    let closed = vec!["b:27017 is not watched any more: the topology was closed"];
    assert_eq!(departures(&world), [closed, vec![]]);
}

#[test]
fn the_last_departures_are_remembered_until_the_server_returns() {
    let mut world = World::open(&polled(&["a"]));
    let all = || (0..40).map(|index| ServerAddress::new("a", 27017 + index));
    let mut left = |hosts: Box<[ServerAddress]>| {
        let _ = world.check("a", Hello { hosts, ..hello(ServerType::RsPrimary) });
        let departures = world.topology().departures().iter();
        departures.map(|departure| departure.address.clone()).collect::<Vec<_>>()
    };
    let _ = left(all().collect());
    let last = || all().skip(40 - Departure::REMEMBERED);
    assert_eq!(left([address("a")].into()), last().collect::<Vec<_>>());
    let returned = last().next().unwrap();
    assert_eq!(left([address("a"), returned].into()), last().skip(1).collect::<Vec<_>>());
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

/// Returns the obstacle published when the check of `name` fails at `stage`.
fn met(world: &mut World, name: &str, stage: Stage) -> Option<String> {
    let (conn, at) = (world.ask(name), world.now);
    let error = Error::new(ErrorKind::Network, stage, "broken");
    let _ = world.handle(Input::Failed { conn, at, error });
    world.last.iter().find_map(|output| match output {
        Output::Emit(EventKind::ServerUnusable { address, obstacle, .. }) => {
            Some(format!("{}: {obstacle}", address.host()))
        }
        _ => None,
    })
}

/// Returns a reply in which a member calls itself `me` and lists the members `hosts`.
fn inside(server_type: ServerType, me: &str, hosts: &[&str]) -> Hello {
    Hello { me: Some(address(me)), hosts: addresses(hosts), ..hello(server_type) }
}

#[test]
fn an_obstacle_is_published_when_it_is_met_and_not_at_each_heartbeat() {
    let mut world = World::open(&polled(&["a", "b"]));
    // An error of the server itself is no obstacle.
    for stage in [Stage::Connect, Stage::Hello, Stage::Auth] {
        assert_eq!(met(&mut world, "b", stage), None, "{stage}");
    }
    for (stage, expected) in [
        (Stage::Dns, "a: it cannot be resolved from here"),
        (Stage::Proxy, "a: broken"),
        (Stage::Tls, "a: TLS could not be negotiated: broken"),
    ] {
        assert_eq!(met(&mut world, "a", stage).as_deref(), Some(expected));
        assert_eq!(met(&mut world, "a", stage), None);
    }
    let _ = world.check("a", hello(ServerType::Mongos));
    assert!(met(&mut world, "a", Stage::Tls).is_some());
}

#[test]
fn the_names_of_a_set_are_compared_with_the_address_that_the_client_has_connected_to() {
    for server_type in [ServerType::RsPrimary, ServerType::RsSecondary] {
        for (stage, verb) in [(Stage::Dns, "resolved"), (Stage::Connect, "reached")] {
            let mut world = World::open(&polled(&["localhost"]));
            let reply = inside(server_type, "mongo-0", &["mongo-0", "mongo-1"]);
            let _ = world.check("localhost", reply);
            let expected = format!(
                "mongo-0: the set calls itself mongo-0:27017, you connected to localhost:27017: \
                 mongo-0:27017 cannot be {verb} from here"
            );
            assert_eq!(met(&mut world, "mongo-0", stage), Some(expected));
            assert_eq!(met(&mut world, "mongo-0", stage), None);
        }
    }
}

#[test]
fn names_that_have_led_to_a_server_once_are_not_blamed_later() {
    let aliased = |world: &World| !world.topology().departures().is_empty();
    let mut world = World::open(&polled(&["localhost", "mongo-0"]));
    let reply = || inside(ServerType::RsPrimary, "mongo-0", &["mongo-0"]);
    let _ = world.check("localhost", reply());
    assert!(aliased(&world));
    let _ = world.check("mongo-0", reply());
    assert!(!aliased(&world));
    assert_eq!(met(&mut world, "mongo-0", Stage::Connect), None);

    // The server answers as `localhost` only after it has answered under its own name.
    let mut world = World::open(&polled(&["localhost", "mongo-0"]));
    for name in ["mongo-0", "localhost"] {
        let _ = world.check(name, inside(ServerType::RsSecondary, "mongo-0", &["mongo-0"]));
        assert!(!aliased(&world));
    }
}

#[test]
fn names_of_the_replica_set_are_distinguished_from_configured_names() {
    let obstacle = |world: &World, name| world.topology().obstacle(world.server(name));
    let mut world = World::open(&polled(&["a", "b"]));
    let _ = met(&mut world, "b", Stage::Dns);
    let spelling = obstacle(&world, "b").unwrap();
    assert!(matches!(spelling, Obstacle::Unresolvable { advertised: false, .. }));
    assert_eq!(spelling.remedy(), Obstacle::SPELLING);
    let _ = world.check("a", hello(ServerType::RsSecondary));
    let advertised = obstacle(&world, "b").unwrap();
    assert_eq!(advertised.remedy(), Obstacle::NAMES);
    let text = "the set names it as a member, but it cannot be resolved from here";
    assert_eq!(advertised.to_string(), text);
    assert_eq!(obstacle(&world, "a"), None);

    // A primary has answered earlier, so the names of the set's members are known.
    let mut world = World::open(&polled(&["a", "b"]));
    let _ = world.check("a", elected(1));
    let _ = world.fail("a", ErrorKind::Network);
    let _ = met(&mut world, "b", Stage::Dns);
    assert_eq!(obstacle(&world, "b").unwrap().remedy(), Obstacle::NAMES);
}
