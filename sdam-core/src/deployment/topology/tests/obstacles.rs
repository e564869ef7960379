//! Tests of the reasons why this client cannot use a server, and of the events about them.

use super::*;
use crate::topology::Obstacle;

/// Returns the obstacles published when the check of `name` fails at `stage`.
fn met(machine: &mut Topology, name: &str, stage: Stage) -> Vec<String> {
    let server = id(machine, name);
    let error = Error::new(ErrorKind::Network, stage, "broken");
    let outcome = Err(error);
    let effects = checked(machine, server, outcome);
    let met = effects.into_iter().filter_map(|effect| match effect {
        Step::Out(Output::Emit(EventKind::ServerUnusable { address, obstacle, .. })) => {
            Some(alloc::format!("{}: {obstacle}", address.host()))
        }
        _ => None,
    });
    met.collect()
}

/// Returns a reply in which a member calls itself `me` and lists the members `hosts`.
fn inside(server_type: ServerType, me: &str, hosts: &[&str]) -> Hello {
    Hello {
        me: Some(address(me)),
        hosts: hosts.iter().map(|host| address(host)).collect(),
        ..hello(server_type)
    }
}

const NONE: [&str; 0] = [];

#[test]
fn an_obstacle_is_published_when_it_is_met_and_not_at_each_heartbeat() {
    let mut machine = opened(&options(&["a", "b"]));
    let unresolved = ["a: it cannot be resolved from here"];
    assert_eq!(met(&mut machine, "a", Stage::Dns), unresolved);
    assert_eq!(met(&mut machine, "a", Stage::Dns), NONE);
    assert_eq!(met(&mut machine, "a", Stage::Proxy), ["a: broken"]);
    assert_eq!(met(&mut machine, "a", Stage::Proxy), NONE);
    let tls = ["a: TLS could not be negotiated: broken"];
    assert_eq!(met(&mut machine, "a", Stage::Tls), tls);
    let _ = check(&mut machine, "a", hello(ServerType::Mongos));
    assert_eq!(met(&mut machine, "a", Stage::Tls), tls);
}

#[test]
fn an_error_of_the_server_itself_is_no_obstacle() {
    let mut machine = opened(&options(&["a", "b"]));
    for stage in [Stage::Connect, Stage::Hello, Stage::Auth] {
        assert_eq!(met(&mut machine, "a", stage), NONE, "{stage}");
    }
}

#[test]
fn the_names_of_a_set_are_compared_with_the_address_that_the_client_has_connected_to() {
    let words = [(Stage::Dns, "resolved"), (Stage::Connect, "reached")];
    for server_type in [ServerType::RsPrimary, ServerType::RsSecondary] {
        for (stage, verb) in words {
            let mut machine = opened(&options(&["localhost"]));
            let reply = inside(server_type, "mongo-0", &["mongo-0", "mongo-1"]);
            let _ = check(&mut machine, "localhost", reply);
            let expected = alloc::format!(
                "mongo-0: the set calls itself mongo-0:27017, you connected to localhost:27017: \
                 mongo-0:27017 cannot be {verb} from here"
            );
            assert_eq!(met(&mut machine, "mongo-0", stage), [expected]);
            assert_eq!(met(&mut machine, "mongo-0", stage), NONE);
        }
    }
}

#[test]
fn names_that_have_led_to_a_server_once_are_not_blamed_later() {
    let mut machine = opened(&options(&["localhost", "mongo-0"]));
    let reply = || inside(ServerType::RsPrimary, "mongo-0", &["mongo-0"]);
    let aliased = |machine: &Topology| !machine.description().departures().is_empty();
    let _ = check(&mut machine, "localhost", reply());
    assert!(aliased(&machine));
    let _ = check(&mut machine, "mongo-0", reply());
    assert!(!aliased(&machine));
    assert_eq!(met(&mut machine, "mongo-0", Stage::Connect), NONE);

    // The server answers as `localhost` only after it has answered under its own name.
    let mut machine = opened(&options(&["localhost", "mongo-0"]));
    let reply = || inside(ServerType::RsSecondary, "mongo-0", &["mongo-0"]);
    let _ = check(&mut machine, "mongo-0", reply());
    let _ = check(&mut machine, "localhost", reply());
    assert!(!aliased(&machine));
}

#[test]
fn names_of_the_replica_set_are_distinguished_from_configured_names() {
    let obstacle = |machine: &Topology, name: &str| {
        let server = machine.description().server(&address(name)).unwrap();
        machine.description().obstacle(server)
    };
    let mut machine = opened(&options(&["a", "b"]));
    let _ = met(&mut machine, "b", Stage::Dns);
    let spelling = obstacle(&machine, "b").unwrap();
    assert!(matches!(spelling, Obstacle::Unresolvable { advertised: false, .. }));
    assert_eq!(spelling.remedy(), Obstacle::SPELLING);
    let _ = check(&mut machine, "a", hello(ServerType::RsSecondary));
    let advertised = obstacle(&machine, "b").unwrap();
    assert_eq!(advertised.remedy(), Obstacle::NAMES);
    let text = "the set names it as a member, but it cannot be resolved from here";
    assert_eq!(advertised.to_string(), text);
    assert_eq!(obstacle(&machine, "a"), None);

    // A primary has answered earlier, so the names of the set's members are known.
    let mut machine = opened(&options(&["a", "b"]));
    let _ = check(&mut machine, "a", elected(1));
    let _ = fail(&mut machine, "a", ErrorKind::Network);
    let _ = met(&mut machine, "b", Stage::Dns);
    assert_eq!(obstacle(&machine, "b").unwrap().remedy(), Obstacle::NAMES);
}
