//! The order in which a scan checks servers, and the look-ups of the SRV record before scans.

use std::{string::ToString, vec::Vec};

use super::{super::*, world::*};
use crate::{
    ids::ServerId,
    server::{ServerDescription, ServerType},
};

fn rs(seeds: &str) -> World {
    World::new(seeds, 1, |options| options.replica_set = Some("rs".into()))
}

/// Runs one scan, and returns the names of the checked servers.
fn scan(world: &mut World) -> std::string::String {
    let first = world.log.len();
    assert_eq!(world.run(ScanRequest::Scan), REST);
    world.log.split_off(first).join(" ")
}

#[test]
fn h_3_a_displaced_primary_is_checked_again_in_the_same_scan() {
    // The newer primary resets the older one to "infinity ago".
    let mut world = rs("a b");
    let new = member(ServerType::RsPrimary, "a b");
    let mut old = new.clone();
    old.election.election_id = Some(crate::ids::ObjectId::from_bytes([0; 12]));
    world.answer("a", Answer::Is(0, new)).answer("b", Answer::Is(0, old));
    let orders: Vec<_> = (0..20)
        .map(|seed| {
            let fresh = rs("a b");
            world.scan = fresh.scan;
            world.scan.rng = Rng::new(seed);
            world.topology = fresh.topology;
            scan(&mut world)
        })
        .collect();
    assert!(orders.contains(&"b a b".to_string()), "{orders:?}");
    assert!(orders.contains(&"a b".to_string()), "{orders:?}");
    assert!(orders.iter().all(|order| order == "b a b" || order == "a b"), "{orders:?}");
}

#[test]
fn a_possible_primary_is_checked_before_members_of_unknown_type() {
    for seed in 0..20 {
        let mut world = rs("a b c");
        world.scan.rng = Rng::new(seed);
        for name in ["b", "c"] {
            world.answer(name, secondary("a b c", Some("a")));
        }
        world.answer("a", primary("a b c"));
        let order = scan(&mut world);
        assert!(["a", "b a c", "c a b"].iter().any(|start| order.starts_with(start)), "{order}");
    }
}

#[test]
fn candidates_are_checked_by_type_and_then_by_age() {
    let server = |server_type, updated: Option<u64>| {
        let mut server = ServerDescription::unknown(ServerId::from_u64(1), address("a"));
        server.server_type = server_type;
        server.last_update_time = updated.map(Instant::from_millis);
        server
    };
    let ranked = [
        server(ServerType::RsPrimary, Some(9)),
        server(ServerType::PossiblePrimary, Some(9)),
        server(ServerType::RsSecondary, None),
        server(ServerType::RsArbiter, Some(1)),
        server(ServerType::Mongos, Some(9)),
        server(ServerType::Unknown, None),
        server(ServerType::RsGhost, Some(1)),
        server(ServerType::Unknown, Some(9)),
    ];
    assert!(ranked.is_sorted_by(|one, next| order::rank(one) < order::rank(next)));
}

#[test]
fn an_address_is_checked_twice_at_the_most() {
    let never = ServerDescription::unknown(ServerId::from_u64(1), address("a"));
    let mut scan = Scan::new(Instant::EPOCH);
    let allowed = [(); 4].map(|()| {
        let allowed = (scan.may_repeat(&never.address), scan.is_candidate(&never));
        scan.count(&never.address);
        allowed
    });
    assert_eq!(allowed, [(true, true), (true, true), (false, false), (false, false)]);
}

/// Returns a `World` with one mongos and an SRV record, which must be looked up after `due`
/// milliseconds.
fn world(due: u64) -> World {
    let mut world = World::new("s", 1, |_| {});
    world.wanted = ServerType::Mongos;
    world.answer("s", mongos());
    world.look_up = Some(Instant::from_millis(due));
    world
}

#[test]
fn an_abandoned_rescan_starts_over_with_the_next_scan() {
    // The record is looked up before the scan (H-13, N-28).
    let mut world = world(0);
    assert_eq!(world.request(ScanRequest::Scan), Step::LookUp);
    assert_eq!(world.tell(Scans::awake), Step::Wait, "out of turn");
    assert_eq!(world.request(ScanRequest::Settle), REST);
    assert_eq!(world.tell(Scans::looked_up), Step::Wait, "out of turn");
    assert_eq!(world.select(30_000), "look up, s, selected s");
}
