//! The order in which a scan checks servers.

use std::{string::ToString, vec::Vec};

use super::{super::*, world::*};
use crate::{error::ErrorKind, server::ServerType};

fn rs(seeds: &str) -> World {
    World::new(seeds, 1, |options| options.replica_set = Some("rs".into()))
}

/// Runs one scan, and returns the names of the checked servers.
fn scan(world: &mut World) -> std::string::String {
    let first = world.log.len();
    assert_eq!(world.run(ScanInput::Scan), ScanEffect::Rest);
    world.log.split_off(first).join(" ")
}

#[test]
fn h_4_h_5_a_possible_primary_is_checked_next_and_new_servers_join_the_scan() {
    // SDAM: the example at "Scanning order".
    let mut world = World::new("a", 1, |_| ());
    world
        .answer("a", secondary("a b c", Some("c")))
        .answer("b", secondary("a b c", Some("c")))
        .answer("c", primary("a b c"));
    assert_eq!(scan(&mut world), "a c b");
}

#[test]
fn h_4_the_primary_is_checked_first_and_the_others_from_the_oldest_on() {
    let mut world = rs("a b c");
    let all = "a b c";
    world
        .answer("a", Answer::Is(1, member(ServerType::RsSecondary, all)))
        .answer("b", Answer::Is(1, member(ServerType::RsSecondary, all)))
        .answer("c", Answer::Is(1, member(ServerType::RsPrimary, all)));
    let first = scan(&mut world);
    let others: Vec<&str> = first.split(' ').filter(|name| *name != "c").collect();
    for at in [1000, 2000, 3000] {
        assert_eq!(
            scan(world.at(at)),
            ["c", others[0], others[1]].join(" "),
            "the order does not change from scan to scan"
        );
    }
}

#[test]
fn h_4_unknown_servers_and_ghosts_come_last() {
    let mut world = rs("a b c d");
    let all = "a b c d";
    world
        .answer("a", Answer::Down(1))
        .answer("b", Answer::Is(1, member(ServerType::RsGhost, "")))
        .answer("c", Answer::Is(1, member(ServerType::RsOther, all)))
        .answer("d", Answer::Is(1, member(ServerType::RsSecondary, all)));
    scan(&mut world);
    let later = scan(world.at(60_000));
    let (known, rest) = later.split_at(4);
    assert!(known == "c d " || known == "d c ", "{later}");
    assert!(rest == "a b" || rest == "b a", "{later}");
}

#[test]
fn h_4_ties_are_broken_at_random_and_by_the_seed_alone() {
    let order = |seed| {
        let mut world = World::new("a b c", seed, |_| ());
        for name in ["a", "b", "c"] {
            world.answer(name, mongos());
        }
        scan(&mut world)
    };
    let mut seen: Vec<_> = (0..100).map(order).collect();
    assert_eq!(order(5), order(5));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 6, "{seen:?}");
}

#[test]
fn h_5_servers_that_leave_during_the_scan_are_skipped() {
    let mut world = rs("a b");
    world
        .answer("a", secondary("a p b", Some("p")))
        .answer("b", secondary("a p b", Some("p")))
        .answer("p", primary("p"));
    let checked = scan(&mut world);
    assert!(checked == "a p" || checked == "b p", "{checked}");
}

#[test]
fn h_6_a_server_is_not_checked_for_5000_ms_after_a_failed_check() {
    //
    let mut world = rs("a");
    world.answer("a", Answer::Down(0));
    assert_eq!(scan(&mut world), "a");
    assert_eq!(scan(world.at(4_999)), "");
    assert_eq!(scan(world.at(5_500)), "a");
    // The cooldown runs from the end of the check.
    world.answer("a", Answer::Down(300));
    assert_eq!(scan(world.at(12_000)), "a");
    assert_eq!(scan(world.at(17_299)), "");
    assert_eq!(scan(world.at(17_800)), "a");
}

#[test]
fn h_6_a_reply_of_another_member_does_not_end_the_cooldown() {
    let mut world = rs("a b");
    world
        .answer("a", secondary("a b", Some("b")))
        .answer("b", Answer::Down(0));
    scan(&mut world);
    assert_eq!(scan(world.at(1_000)), "a");
    assert_eq!(scan(world.at(5_500)), "b a", "it is the possible primary");
}

#[test]
fn h_3_a_command_error_starts_a_cooldown() {
    let mut world = rs("a");
    world.answer("a", Answer::Refuses(0));
    assert_eq!(scan(&mut world), "a");
    assert_eq!(scan(world.at(1_000)), "");
}

#[test]
fn h_7_a_server_that_was_never_checked_has_no_cooldown() {
    let mut world = rs("a");
    world.at(1);
    assert_eq!(scan(&mut world), "a", "one millisecond after the epoch");
}

#[test]
fn h_10_a_network_error_of_a_known_server_is_retried_once_at_once() {
    let mut world = rs("a b");
    world
        .answer("a", primary("a b"))
        .answer("b", secondary("a b", None));
    scan(&mut world);
    world.answer("b", Answer::Down(100));
    assert_eq!(scan(world.at(1_000)), "a b b");
    assert_eq!(millis(world.now), 1_200, "without any pause");
    let lost = world.topology.description().server(&address("b")).unwrap();
    assert_eq!(lost.error.as_ref().unwrap().kind, ErrorKind::Network);
    // It was Unknown from the first failure on, and the cooldown runs from the second.
    assert_eq!(scan(world.at(6_199)), "a");
    assert_eq!(scan(world.at(7_000)), "a b");
}

#[test]
fn h_10_a_successful_retry_makes_the_server_known() {
    let mut world = rs("a");
    world.answer("a", primary("a"));
    scan(&mut world);
    world.at(1_000).answer("a", Answer::Down(0));
    let first = world.tell(ScanInput::Scan);
    let again = world.step(first).unwrap();
    assert!(matches!(again, ScanEffect::Check { .. }), "{again:?}");
    let between = world.topology.description().clone();
    assert_eq!(between.servers()[0].server_type, ServerType::Unknown);
    world.answer("a", primary("a"));
    assert_eq!(world.step(again), Some(ScanEffect::Rest));
    assert_eq!(
        world.topology.description().primary().unwrap().address,
        address("a")
    );
}

#[test]
fn h_10_neither_a_command_error_nor_an_unknown_server_is_retried() {
    let mut world = rs("a b");
    world
        .answer("a", primary("a b"))
        .answer("b", Answer::Down(0));
    let checked = scan(&mut world);
    assert!(checked == "a b" || checked == "b a", "{checked}");
    world.answer("a", Answer::Refuses(0));
    assert_eq!(scan(world.at(10_000)), "a b");
}

#[test]
fn h_3_a_displaced_primary_is_checked_again_in_the_same_scan() {
    // It is reset to "infinity ago" by the newer primary.
    let mut world = rs("a b");
    let new = member(ServerType::RsPrimary, "a b");
    let mut old = new.clone();
    old.election.election_id = Some(crate::ids::ObjectId::from_bytes([0; 12]));
    world
        .answer("a", Answer::Is(0, new))
        .answer("b", Answer::Is(0, old));
    let orders: Vec<_> = (0..20)
        .map(|seed| {
            world.scan = ScanMachine::new(world.scan.config.clone(), Rng::new(seed));
            world.topology = rs("a b").topology;
            scan(&mut world)
        })
        .collect();
    assert!(orders.contains(&"b a b".to_string()), "{orders:?}");
    assert!(orders.contains(&"a b".to_string()), "{orders:?}");
    assert!(
        orders
            .iter()
            .all(|order| order == "b a b" || order == "a b"),
        "{orders:?}"
    );
}

#[test]
fn h_8_a_single_server_can_be_checked_on_demand() {
    let mut world = rs("a b");
    world
        .answer("a", primary("a b"))
        .answer("b", secondary("a b", None));
    scan(&mut world);
    let ended = world.scan.last_scan();
    let server = world.topology.description().servers()[1].id;
    world.at(100).log.clear();
    assert_eq!(world.run(ScanInput::Check { server }), ScanEffect::Rest);
    assert_eq!(world.log, ["b"]);
    assert_eq!(world.scan.last_scan(), ended, "that was no scan");
    let server = ServerId::from_u64(99);
    assert_eq!(world.run(ScanInput::Check { server }), ScanEffect::Rest);
}

#[test]
fn h_14_a_load_balancer_is_never_checked() {
    let mut world = World::new("lb", 1, |options| options.load_balanced = true);
    assert_eq!(scan(&mut world), "");
    let server = world.topology.description().servers()[0].id;
    assert_eq!(world.run(ScanInput::Check { server }), ScanEffect::Rest);
    world.wanted = ServerType::LoadBalancer;
    assert_eq!(world.select(0), "selected lb");
    assert_eq!(world.at(1_000_000).select(0), "selected lb");
    world.wanted = ServerType::Mongos;
    assert_eq!(
        world.select(30_000),
        "Fail(TriedOnce)",
        "nothing will change"
    );
}
