//! Tests of cases that the specifications' test files do not cover: the complete table of topology
//! types and server types, elections, and what the loss of a server causes.

use super::world::*;

/// Returns the outputs of the next check of `name` as one string.
fn check(world: &mut World, name: &str, hello: Hello) -> String {
    world.check(name, hello).join(", ")
}

/// Returns a topology of `topology_type` whose server `a` has not answered yet.
fn topology_of(topology_type: TopologyType) -> World {
    let mut options = polled(&["a"]);
    let first = match topology_type {
        TopologyType::Single => {
            options.direct_connection = Some(true);
            return World::open(&options);
        }
        TopologyType::LoadBalanced => {
            options.load_balanced = true;
            return World::open(&options);
        }
        TopologyType::Unknown => None,
        TopologyType::Sharded => Some(ServerType::Mongos),
        TopologyType::ReplicaSetNoPrimary => Some(ServerType::RsSecondary),
        TopologyType::ReplicaSetWithPrimary => Some(ServerType::RsPrimary),
    };
    let mut world = World::open(&polled(&["a", "b"]));
    if let Some(server_type) = first {
        let _ = world.check("b", hello(server_type));
    }
    world
}

#[test]
fn every_topology_and_server_type_has_the_specified_transition() {
    // SDAM: "TopologyType table" determines each action (D-10, D-11, D-12, D-13, D-14). A load
    // balancer, which is not checked, is always compatible (E-7).
    use ServerType as S;
    use TopologyType as T;
    const STAYS: (bool, Option<T>) = (true, None);
    const GOES: (bool, Option<T>) = (false, None);
    let becomes = |topology_type| (true, Some(topology_type));
    let member = |server_type| matches!(server_type, S::RsSecondary | S::RsArbiter | S::RsOther);
    // A check never yields one of these two types.
    let of_checks = |own: &&S| !matches!(own, S::PossiblePrimary | S::LoadBalancer);
    for &topology_type in T::ALL {
        for &server_type in S::ALL.iter().filter(of_checks) {
            let (remains, becomes) = match (topology_type, server_type) {
                (T::Unknown, S::Standalone) => GOES,
                (T::Unknown, S::Mongos) => becomes(T::Sharded),
                (T::Unknown | T::ReplicaSetNoPrimary, S::RsPrimary) => {
                    becomes(T::ReplicaSetWithPrimary)
                }
                (T::Unknown, own) if member(own) => becomes(T::ReplicaSetNoPrimary),
                (T::Sharded, own) if own != S::Mongos && own != S::Unknown => GOES,
                (T::ReplicaSetNoPrimary | T::ReplicaSetWithPrimary, S::Standalone | S::Mongos) => {
                    GOES
                }
                _ => STAYS,
            };
            let mut world = topology_of(topology_type);
            assert_eq!(world.topology().topology_type(), topology_type);
            if topology_type == T::LoadBalanced {
                assert!(world.due("a", true).is_empty());
                assert!(world.topology().is_compatible());
            } else if server_type == S::Unknown {
                let _ = world.fail("a", ErrorKind::Network);
            } else {
                let _ = world.check("a", hello(server_type));
            }
            let description = world.topology();
            let case = format!("{topology_type} x {server_type}");
            assert_eq!(description.server(&address("a")).is_some(), remains, "{case}");
            assert_eq!(description.topology_type(), becomes.unwrap_or(topology_type), "{case}");
        }
    }
}

#[test]
fn a_displaced_primary_becomes_unknown_is_checked_and_keeps_its_pool_from_4_2_on() {
    // Servers before 4.2 close all connections when they step down, so only their pools are cleared
    // (C-19, D-31, D-34, D-35, J-22).
    for (max_wire_version, clear) in [(17, ""), (8, ""), (7, "clear a to 1, ")] {
        let mut world = World::open(&polled(&["a", "b"]));
        let mut old = elected(1);
        old.wire_versions.max = max_wire_version;
        let _ = world.check("a", old);
        let expected = format!(
            "ServerHeartbeatSucceeded b, ready b, publish, ServerDescriptionChanged b, \
             ServerDescriptionChanged a, TopologyDescriptionChanged, {clear}wake a"
        );
        assert_eq!(check(&mut world, "b", elected(2)), expected);
        let error = world.server("a").error.as_ref().unwrap().to_string();
        assert_eq!(error, "primary marked stale due to discovery of newer primary");
    }
}

#[test]
fn the_error_of_a_stale_primary_shows_both_election_tuples() {
    // A stale primary becomes Unknown, but no immediate check is requested (C-18, D-30, D-36).
    let mut world = World::open(&polled(&["a", "b"]));
    let _ = world.check("b", elected(2));
    let text = "ServerHeartbeatSucceeded a, publish, ServerDescriptionChanged a, \
                TopologyDescriptionChanged";
    assert_eq!(check(&mut world, "a", elected(1)), text);
    let changed = world.last.iter().find_map(|output| match output {
        Output::Emit(EventKind::ServerDescriptionChanged { new, .. }) => Some(new),
        _ => None,
    });
    assert_eq!(changed.unwrap().server_type, ServerType::Unknown);
    let text = "primary marked stale due to electionId/setVersion mismatch, \
                (electionId: 010101010101010101010101, setVersion: 1) is stale compared to \
                (electionId: 020202020202020202020202, setVersion: 1)";
    assert_eq!(changed.unwrap().error.as_ref().unwrap().to_string(), text);
}

#[test]
fn a_server_that_rejoins_gets_a_new_server_id() {
    // Late results and errors of the removed server are ignored (D-5, D-21, C-24, I-4).
    let mut world = World::open(&polled(&["a", "b"]));
    let (late, server) = (world.ask("b"), world.id("b"));
    let alone = Hello { hosts: addresses(&["a"]), ..hello(ServerType::RsPrimary) };
    assert!(check(&mut world, "a", alone).ends_with(", close b"));
    let joined = check(&mut world, "a", hello(ServerType::RsPrimary));
    assert!(joined.contains("open b, "), "{joined}");
    assert_ne!(world.id("b"), server);
    assert!(world.reply(late, hello(ServerType::RsSecondary), false).is_empty());
    assert_eq!(world.deployment.generation(server, None), None);
    let error = ErrorReport::new(Generation::FIRST, Error::network(Stage::Operation, "broken"));
    let (outcome, outputs) = world.deployment.handle_error(world.now, server, &error);
    assert!(outcome == ErrorOutcome::UnknownServer && outputs.is_empty());
}

#[test]
fn members_are_known_by_their_ids_in_whatever_order_a_member_lists_them() {
    let mut world = World::open(&polled(&["a"]));
    let hosts = addresses(&["a", "c", "b"]);
    let _ = world.check("a", Hello { hosts, ..hello(ServerType::RsSecondary) });
    assert!(world.id("c") < world.id("b"));
    for name in ["a", "b", "c"] {
        assert!(world.deployment.generation(world.id(name), None).is_some(), "{name}");
    }
}

#[test]
fn the_session_timeout_is_that_of_the_servers_that_remain() {
    let mut world = World::open(&polled(&["a", "b"]));
    for (name, minutes) in [("a", 30), ("b", 10)] {
        let minutes = Some(minutes);
        let mongos =
            Hello { logical_session_timeout_minutes: minutes, ..hello(ServerType::Mongos) };
        let _ = world.check(name, mongos);
    }
    assert_eq!(world.topology().logical_session_timeout_minutes(), Some(10));
    let _ = world.handle(Input::Hosts(addresses(&["a"])));
    assert_eq!(world.topology().logical_session_timeout_minutes(), Some(30));
}

#[test]
fn a_handshake_of_an_earlier_generation_or_topology_version_is_ignored() {
    // A handshake that is not ignored makes an unavailable server known, and requests a check.
    for (fails, counter, counts) in
        [(false, 5, true), (false, 4, false), (true, 5, false), (true, 4, false)]
    {
        for current in [true, false] {
            let mut world = World::open(&polled(&["a"]));
            let mongos = |counter| Hello {
                topology_version: Some(version(1, counter)),
                ..hello(ServerType::Mongos)
            };
            let _ = world.check("a", mongos(5));
            let first = Generation::FIRST;
            if fails {
                let _ = world.fail("a", ErrorKind::Command);
            }
            let generation = if current && fails { first.next() } else { first };
            let new = Hello { wire_versions: WireVersions { min: 0, max: 21 }, ..mongos(counter) };
            let (server, reply) = (world.id("a"), Ok(new).into());
            let outputs = world.handle(Input::Handshake { server, generation, reply });
            let counts = counts || current && fails;
            assert_eq!(world.server("a").wire_versions.max == 21, counts, "{fails} {counter}");
            let is_woken = outputs.contains(&"wake a".into());
            assert_eq!(is_woken, counts && fails, "{fails} {counter}: {outputs:?}");
        }
    }
}

#[test]
fn hosts_are_ignored_unless_the_topology_is_open() {
    let mut world = World::new(&polled(&["a"]));
    let hosts = || Input::Hosts(addresses(&["b"]));
    assert!(world.handle(hosts()).is_empty());
    let _ = world.handle(Input::Open);
    let _ = world.handle(Input::Close);
    assert!(world.handle(hosts()).is_empty());
    assert_eq!(world.topology().servers(), []);
    assert!(world.handle(Input::Open).is_empty(), "a closed topology stays closed");
}

#[test]
fn a_standalone_is_kept_if_it_is_the_only_seed() {
    // A topology of type Single has one server, regardless of the number of seeds. A repeated seed
    // counts once (D-11, D-20).
    let mut world = World::open(&polled(&["a"]));
    let _ = world.handle(Input::Hosts(addresses(&["a", "b"])));
    let _ = world.check("a", hello(ServerType::RsGhost));
    let _ = world.check("b", standalone());
    assert_eq!(world.topology().topology_type(), TopologyType::Unknown);
    assert_eq!(world.topology().servers().len(), 1);
    assert!(world.topology().server(&address("a")).is_some());
    let mut world = World::open(&polled(&["a", "a"]));
    let _ = world.check("a", standalone());
    assert_eq!(world.topology().topology_type(), TopologyType::Single);
    assert_eq!(world.topology().servers().len(), 1);
}

#[test]
fn closing_an_emptied_topology_publishes_no_change() {
    // The description is already that of a closed topology (J-18, J-20).
    let mut world = World::open(&polled(&["a", "b"]));
    let _ = world.check("a", standalone());
    let _ = world.check("b", standalone());
    assert_eq!(world.topology().servers().len(), 0);
    assert_eq!(world.handle(Input::Close), ["publish", "TopologyClosed"]);
}

#[test]
fn members_above_max_servers_are_ignored_and_reported_when_their_number_changes() {
    let mut options = polled(&["a"]);
    options.max_servers = 3;
    let mut world = World::open(&options);
    for (members, expected) in [(10, 7), (10, 0), (5, 2), (3, 0), (2, 0), (4, 1)] {
        let ports = 27017..27017 + members;
        let hosts = ports.map(|port| ServerAddress::new("a", port)).collect();
        let _ = world.check("a", Hello { hosts, ..hello(ServerType::RsPrimary) });
        let ignored = world.last.iter().map(|output| match output {
            Output::Emit(EventKind::MembersIgnored { ignored, limit: 3 }) => *ignored,
            _ => 0,
        });
        assert_eq!(ignored.sum::<usize>(), expected, "{members} members");
        assert_eq!(world.topology().servers().len(), usize::from(members.min(3)));
    }
}

#[test]
fn the_compatibility_error_names_the_server_and_the_required_release() {
    // The specification prescribes these messages (A-16, E-2, E-3, E-4, E-5).
    let check = |min, max, expected: Option<&str>| {
        let mut world = World::open(&polled(&["a"]));
        let _ =
            world.check("a", Hello { wire_versions: WireVersions { min, max }, ..standalone() });
        assert_eq!(world.topology().compatibility_error(), expected);
    };
    check(0, 8, None);
    check(29, 40, None);
    let text = "Server at a:27017 requires wire version 999, but this version of sdam only \
                supports up to 29.";
    check(999, 1000, Some(text));
    let text = "Server at a:27017 reports wire version 7, but this version of sdam requires at \
                least 8 (MongoDB 4.2).";
    check(0, 7, Some(text));
}

#[test]
fn a_new_topology_version_is_published_but_new_times_are_not() {
    // Times are ignored when descriptions are compared (C-1, A-44, J-5, J-18, J-23, A-39).
    let mut world = World::open(&polled(&["a"]));
    let mut told = |counter, last_write_date: i64| {
        let conn = world.ask("a");
        let before = world.server("a").rtt;
        world.now = world.now + Duration::from_millis(5 * last_write_date as u64);
        let reply = Hello {
            topology_version: Some(version(0, counter)),
            last_write_date: Some(last_write_date),
            ..standalone()
        };
        let outputs = world.reply(conn, reply, false);
        assert_eq!(world.server("a").last_write_date, Some(last_write_date));
        assert_ne!(world.server("a").rtt, before);
        outputs[1..].join(", ")
    };
    let _ = told(1, 1);
    // If only times change, the new description is published without an event.
    assert_eq!(told(1, 2), "publish");
    assert_eq!(told(2, 2), "publish, ServerDescriptionChanged a, TopologyDescriptionChanged");
}

#[test]
fn the_pool_of_a_member_without_data_is_ready_in_a_direct_connection_only() {
    for direct in [true, false] {
        let mut options = polled(&["a"]);
        options.direct_connection = direct.then_some(true);
        options.replica_set = Some("rs".into());
        let mut world = World::open(&options);
        let outputs = world.check("a", hello(ServerType::RsArbiter));
        assert_eq!(outputs.contains(&"ready a".into()), direct, "{outputs:?}");
    }
}

#[test]
fn only_primaries_raise_the_greatest_election() {
    // The maximum election is kept when the primary is lost (C-26, D-58).
    let mut world = World::open(&polled(&["a", "b"]));
    let _ = world.check("a", elected(2));
    let before = world.topology().max_election();
    for server_type in [ServerType::RsSecondary, ServerType::RsOther] {
        let _ = world.check("b", Hello { server_type, ..elected(9) });
        assert_eq!(world.topology().max_election(), before, "{server_type}");
    }
    let _ = world.fail("a", ErrorKind::Network);
    assert_eq!(world.topology().max_election(), before, "the primary is lost");
}

#[test]
fn election_ids_are_compared_from_the_first_byte_and_equal_elections_are_not_stale() {
    // The first byte of an election id is the most significant one (C-27, D-57).
    for max in [16, 17] {
        let primary = |first, last| {
            let mut bytes = [0; 12];
            (bytes[0], bytes[11]) = (first, last);
            let mut hello = elected(0);
            hello.election.election_id = Some(ObjectId::from_bytes(bytes));
            hello.wire_versions.max = max;
            hello
        };
        let mut world = World::open(&polled(&["a", "b"]));
        // The last of these first bytes, 0x80, would be negative if it were signed.
        for (name, reply, expected) in [
            ("a", primary(1, 0), "a"),
            ("a", primary(1, 0), "a"),
            ("b", primary(0, 0xff), "a"),
            ("b", primary(0x80, 0), "b"),
        ] {
            let _ = world.check(name, reply);
            let primary = world.topology().primary().map(|server| server.address.host());
            assert_eq!(primary, Some(expected), "{max}");
        }
    }
}

#[test]
fn a_server_of_any_type_may_change_to_any_other() {
    // A direct connection may be to a server of any type (C-10, D-1, D-11).
    let of_answers = |own: &&ServerType| own.is_available() && **own != ServerType::LoadBalancer;
    let types = || ServerType::ALL.iter().copied().filter(|own| of_answers(&own));
    let mut world = topology_of(TopologyType::Single);
    for before in types() {
        for after in types() {
            for server_type in [before, after] {
                let _ = world.check("a", hello(server_type));
                assert_eq!(world.server_type("a"), server_type, "after {before}");
            }
            assert_eq!(world.topology().topology_type(), TopologyType::Single);
        }
        let _ = world.fail("a", ErrorKind::Network);
        assert_eq!(world.server_type("a"), ServerType::Unknown, "after {before}");
    }
}

#[test]
fn a_member_with_another_set_name_is_removed_from_a_set_with_a_primary() {
    // Even a former primary is removed if it reports another set name (D-26).
    for (name, left) in
        [("b", TopologyType::ReplicaSetWithPrimary), ("a", TopologyType::ReplicaSetNoPrimary)]
    {
        let mut world = World::open(&polled(&["a"]));
        let _ = world.check("a", hello(ServerType::RsPrimary));
        let (me, primary) = (Some(address("other")), Some(address("b")));
        let _ = world.check(name, Hello { me, primary, ..hello(ServerType::RsSecondary) });
        let description = world.topology();
        assert!(description.server(&address(name)).is_none(), "{name}");
        assert_eq!(description.topology_type(), left, "{name}");
        let is_believed =
            |own: &Arc<ServerDescription>| own.server_type == ServerType::PossiblePrimary;
        assert!(!description.servers().iter().any(is_believed), "{name}: it is not believed");
    }
}

#[test]
fn a_lost_server_has_the_same_effects_whether_a_check_or_an_operation_failed() {
    // Each cause resets the round-trip times (C-20, G-3, G-14, F-51, F-53).
    type Lose = fn(&mut World);
    let paths: [(&str, bool, Lose); 7] = [
        ("failed check", false, |world| drop(world.fail("a", ErrorKind::Command))),
        ("dead monitor", false, |world| {
            let server = world.id("a");
            let _ = world.handle(Input::Deserted { server });
        }),
        ("network error", false, |world| drop(world.network_error("a"))),
        ("state change", false, |world| {
            let error = Error::new(ErrorKind::Command, Stage::Operation, "stepped down");
            let error = ErrorReport::new(Generation::FIRST, error.with_code(189));
            let _ = world.error("a", &error);
        }),
        ("displaced primary", false, |world| drop(world.check("b", elected(2)))),
        ("stale primary", false, |world| {
            let _ = world.check("a", hello(ServerType::RsSecondary));
            let _ = world.check("b", elected(2));
            let _ = world.check("a", elected(1));
        }),
        ("wrong set name", true, |world| {
            let _ = world.check("a", Hello { set_name: Some("other".into()), ..elected(1) });
        }),
    ];
    for (path, is_direct, lose) in paths {
        let mut options = polled(if is_direct { &["a"] } else { &["a", "b"] });
        options.direct_connection = is_direct.then_some(true);
        options.replica_set = Some("rs".into());
        let mut world = World::open(&options);
        let _ = world.check("a", elected(1));
        let has_average = |world: &World| {
            let own = world.deployment.servers.get(world.id("a")).unwrap();
            own.rtt.average_millis().is_some()
        };
        assert!(has_average(&world) && world.server("a").rtt.is_some(), "{path}");
        lose(&mut world);
        assert!(!has_average(&world) && world.server("a").rtt.is_none(), "{path}");
        assert_eq!(world.server_type("a"), ServerType::Unknown, "{path}");
    }
}
