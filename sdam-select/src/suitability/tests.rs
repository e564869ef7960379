mod model;

use std::{string::ToString, time::Duration, vec, vec::Vec};

use proptest::prelude::*;
use sdam_core::{
    server::ServerType::{
        LoadBalancer, Mongos, PossiblePrimary, RsArbiter, RsGhost, RsOther, RsPrimary, RsSecondary,
        Standalone, Unknown,
    },
    time::Instant,
    topology::TopologyType::{
        LoadBalanced, ReplicaSetNoPrimary, ReplicaSetWithPrimary, Sharded, Single,
    },
};

use super::*;
use crate::{
    explain, suitable,
    testing::{
        address,
        any::{any_criteria, any_topology},
        server, tags, topology,
    },
};

const MODES: [ReadMode; 5] = [
    ReadMode::Primary,
    ReadMode::PrimaryPreferred,
    ReadMode::Secondary,
    ReadMode::SecondaryPreferred,
    ReadMode::Nearest,
];

fn read(preference: ReadPreference) -> Criteria {
    Criteria::read(preference).unwrap()
}

fn mode(mode: ReadMode) -> ReadPreference {
    ReadPreference::new(mode)
}

/// Returns the numbers of the suitable servers.
fn found(topology: &TopologyDescription, criteria: &Criteria) -> Vec<u64> {
    let found = suitable(topology, &Settings::default(), criteria).unwrap();
    found.iter().map(|server| server.id.as_u64()).collect()
}

/// Returns servers of these types, numbered from 1.
fn of_types(topology_type: TopologyType, types: &[ServerType]) -> TopologyDescription {
    let servers = types.iter().zip(1..);
    topology(
        topology_type,
        servers.map(|(server_type, number)| server(number, *server_type)),
    )
}

/// Returns a primary (1) and secondaries (2, 3), each with its number as the tag `n`; 2 and 3 have
/// the same `dc`.
fn tagged() -> TopologyDescription {
    let types = [RsPrimary, RsSecondary, RsSecondary];
    let servers = types.into_iter().zip(1..).map(|(server_type, number)| {
        let mut server = server(number, server_type);
        let dc = if number == 1 { "ny" } else { "la" };
        server.tags = tags(&[("n", &number.to_string()), ("dc", dc)]);
        server
    });
    topology(ReplicaSetWithPrimary, servers)
}

#[test]
fn each_mode_selects_its_members_and_falls_back_to_the_others() {
    // L-10, L-11, L-12
    let rest = [RsArbiter, RsOther, RsGhost, Unknown, PossiblePrimary];
    let check = |members: &[ServerType], expected: [&[u64]; 5]| {
        let has_primary = members.contains(&RsPrimary);
        let topology_type = if has_primary {
            ReplicaSetWithPrimary
        } else {
            ReplicaSetNoPrimary
        };
        let topology = of_types(topology_type, &[members, &rest].concat());
        for (of, expected) in MODES.into_iter().zip(expected) {
            assert_eq!(
                found(&topology, &read(mode(of))),
                expected,
                "{members:?} {of}"
            );
        }
    };
    check(
        &[RsPrimary, RsSecondary, RsSecondary],
        [&[1], &[1], &[2, 3], &[2, 3], &[1, 2, 3]],
    );
    check(&[RsPrimary], [&[1], &[1], &[], &[1], &[1]]);
    check(&[RsSecondary], [&[], &[1], &[1], &[1], &[1]]);
    check(&[], [&[]; 5]);
}

#[test]
fn other_topologies_ignore_the_read_preference() {
    // L-2, L-5, L-25, L-32, L-33, L-34, L-35: tags that no server has, and a limit that is too
    // small. Mode primary is not rejected early either, although there is no primary.
    let picky = mode(ReadMode::Secondary)
        .with_tag_sets(vec![tags(&[("dc", "none")])])
        .with_max_staleness(Duration::from_secs(1));
    let check = |topology_type, types: &[ServerType], expected: &[u64]| {
        let topology = of_types(topology_type, types);
        let primary = read(ReadPreference::default());
        for criteria in [read(picky.clone()), primary, Criteria::write()] {
            assert_eq!(found(&topology, &criteria), expected, "{topology_type}");
        }
    };
    check(TopologyType::Unknown, &[Unknown, RsGhost], &[]);
    check(Single, &[Standalone], &[1]);
    check(Single, &[RsSecondary], &[1]);
    check(Single, &[RsGhost], &[1]);
    check(Single, &[Unknown], &[]);
    check(Single, &[PossiblePrimary], &[]);
    check(Sharded, &[Mongos, Unknown, Mongos], &[1, 3]);
    check(LoadBalanced, &[LoadBalancer], &[1]);
}

#[test]
fn the_first_tag_set_that_matches_a_candidate_decides() {
    // L-15, L-16
    let topology = tagged();
    let check = |of: ReadMode, sets: &[&[(&str, &str)]], expected: &[u64]| {
        let sets: Vec<_> = sets.iter().map(|set| tags(set)).collect();
        let criteria = read(mode(of).with_tag_sets(sets));
        assert_eq!(found(&topology, &criteria), expected, "{criteria}");
    };
    check(ReadMode::Nearest, &[], &[1, 2, 3]);
    check(ReadMode::Nearest, &[&[]], &[1, 2, 3]);
    check(ReadMode::Nearest, &[&[("dc", "la")], &[]], &[2, 3]);
    check(ReadMode::Nearest, &[&[("dc", "x")], &[("n", "3")]], &[3]);
    check(ReadMode::Nearest, &[&[("dc", "x")], &[]], &[1, 2, 3]);
    check(ReadMode::Nearest, &[&[("dc", "la"), ("n", "1")]], &[]);
    check(ReadMode::Nearest, &[&[("dc", "x")]], &[]);
    // The primary is no candidate, so its tags have no effect.
    check(ReadMode::Secondary, &[&[("n", "1")], &[("n", "2")]], &[2]);
    // As a fallback, the primary needs no tags.
    check(ReadMode::PrimaryPreferred, &[&[("n", "2")]], &[1]);
    check(ReadMode::SecondaryPreferred, &[&[("n", "2")]], &[2]);
    check(ReadMode::SecondaryPreferred, &[&[("n", "1")]], &[1]);
}

#[test]
fn deprioritized_servers_are_suitable_only_if_no_other_is() {
    // L-50, L-51, L-52
    let check = |topology: &TopologyDescription,
                 criteria: &Criteria,
                 deprioritized: &[u64],
                 expected: &[u64]| {
        let addresses = deprioritized.iter().map(|number| address(*number));
        let for_preference = criteria.clone().with_deprioritized(addresses);
        assert_eq!(
            found(topology, &for_preference),
            expected,
            "{criteria} {deprioritized:?}"
        );
    };
    let set = tagged();
    let reads = |of| read(mode(of));
    check(&set, &reads(ReadMode::Nearest), &[2], &[1, 3]);
    check(&set, &reads(ReadMode::Nearest), &[1, 2, 3], &[1, 2, 3]);
    check(&set, &reads(ReadMode::Nearest), &[7, 3, 3], &[1, 2]);
    check(&set, &reads(ReadMode::PrimaryPreferred), &[1], &[2, 3]);
    check(&set, &reads(ReadMode::PrimaryPreferred), &[1, 2, 3], &[1]);
    check(&set, &reads(ReadMode::SecondaryPreferred), &[2, 3], &[1]);
    check(&set, &reads(ReadMode::Secondary), &[2, 3], &[2, 3]);
    check(&set, &reads(ReadMode::Primary), &[1], &[1]);
    check(&set, &Criteria::write(), &[1], &[1]);
    // Without server 3, the first tag set matches nothing and the second one counts.
    let sets = vec![tags(&[("n", "3")]), tags(&[("dc", "la")])];
    let ordered = read(mode(ReadMode::Nearest).with_tag_sets(sets));
    check(&set, &ordered, &[], &[3]);
    check(&set, &ordered, &[3], &[2]);
    let routers = of_types(Sharded, &[Mongos, Mongos]);
    check(&routers, &Criteria::write(), &[1], &[2]);
    check(&routers, &Criteria::write(), &[1, 2], &[1, 2]);
    check(
        &of_types(Single, &[Standalone]),
        &Criteria::write(),
        &[1],
        &[1],
    );
    let balanced = of_types(LoadBalanced, &[LoadBalancer]);
    check(&balanced, &Criteria::write(), &[1], &[1]);
}

#[test]
fn write_stages_run_on_the_primary_while_any_server_is_older_than_5_0() {
    // L-6: MongoDB 5.0 has wire version 13. The staleness limit is too small, which has no effect
    // if the preference is overridden.
    let secondary = read(mode(ReadMode::Secondary));
    let picky = read(mode(ReadMode::Secondary).with_max_staleness(Duration::from_secs(1)));
    let check = |topology_type, servers: &[(ServerType, i32)], expected: &[u64], overridden| {
        let servers = servers.iter().zip(1..).map(|((of, version), number)| {
            let mut server = server(number, *of);
            server.wire_versions.max = *version;
            server
        });
        let topology = topology(topology_type, servers);
        let writing = secondary.clone().with_write_stage();
        let case = std::format!("{topology}");
        assert_eq!(found(&topology, &writing), expected, "{case}");
        assert_eq!(writing.is_overridden_on(&topology), overridden, "{case}");
        let counts = writing.operation_on(&topology).read_preference().unwrap();
        let expected = if overridden {
            &ReadPreference::default()
        } else {
            secondary.read_preference().unwrap()
        };
        assert_eq!(counts, expected, "{case}");
        let explained = explain(&topology, &Settings::default(), &writing);
        assert_eq!(explained.operation, *writing.operation_on(&topology));
        if overridden {
            let picky = picky.clone().with_write_stage();
            assert!(suitable(&topology, &Settings::default(), &picky).is_ok());
        }
        assert!(!secondary.is_overridden_on(&topology), "only if it writes");
    };
    let (with, without) = (ReplicaSetWithPrimary, ReplicaSetNoPrimary);
    check(with, &[(RsPrimary, 13), (RsSecondary, 13)], &[2], false);
    check(with, &[(RsPrimary, 12), (RsSecondary, 13)], &[1], true);
    check(with, &[(RsPrimary, 13), (RsSecondary, 12)], &[1], true);
    check(
        with,
        &[(RsPrimary, 13), (RsSecondary, 13), (RsArbiter, 9)],
        &[1],
        true,
    );
    // The age of a server that has not answered is unknown.
    check(
        with,
        &[(RsPrimary, 13), (RsSecondary, 13), (Unknown, 0)],
        &[2],
        false,
    );
    check(without, &[(RsSecondary, 12)], &[], true);
    check(without, &[(RsSecondary, 13)], &[1], false);
    check(without, &[(PossiblePrimary, 0)], &[], false);
    check(Sharded, &[(Mongos, 9), (Mongos, 13)], &[1, 2], true);
    check(Single, &[(RsSecondary, 9)], &[1], true);
    check(LoadBalanced, &[(LoadBalancer, 0)], &[1], false);
    let write = Criteria::write().with_write_stage();
    let old = of_types(ReplicaSetWithPrimary, &[RsPrimary]);
    assert!(!write.is_overridden_on(&old));
}

/// Returns a server with these times of its check and its last write, in milliseconds.
fn member(number: u64, server_type: ServerType, updated: u64, wrote: i64) -> ServerDescription {
    let mut server = server(number, server_type);
    server.last_update_time = Some(Instant::from_millis(updated));
    server.last_write_date = Some(wrote);
    server
}

fn limited(seconds: u64) -> ReadPreference {
    mode(ReadMode::Secondary).with_max_staleness(Duration::from_secs(seconds))
}

#[test]
fn with_a_primary_staleness_compares_last_writes_and_check_times() {
    // L-21, L-23: lag + 10 s of heartbeat <= 90 s; L-27: the clock may begin at any time
    let check = |updated, wrote, expected: &[u64]| {
        for earlier in [0, 940_000] {
            let primary = member(1, RsPrimary, 1_000_000 - earlier, 5_000_000);
            let servers = [primary, member(2, RsSecondary, updated - earlier, wrote)];
            let topology = topology(ReplicaSetWithPrimary, servers);
            assert_eq!(
                found(&topology, &read(limited(90))),
                expected,
                "{updated} {wrote} {earlier}"
            );
        }
    };
    check(1_000_000, 5_000_000, &[2]);
    check(1_000_000, 4_920_000, &[2]);
    check(1_000_000, 4_919_999, &[]);
    // It was checked a minute after the primary, so a minute of the difference is not lag.
    check(1_060_000, 4_980_000, &[2]);
    check(1_060_000, 4_979_999, &[]);
    check(940_000, 4_860_000, &[2]);
    check(940_000, 4_859_999, &[]);
    // Ahead of the primary: the estimate is negative.
    check(1_000_000, 9_000_000, &[2]);
    check(1_000_000, i64::MIN, &[]);
}

#[test]
fn without_a_primary_staleness_is_measured_from_the_newest_secondary_write() {
    // L-22, L-28
    let servers = |wrote| {
        [
            member(1, RsSecondary, 0, 5_000_000),
            member(2, RsSecondary, 0, wrote),
            member(3, RsArbiter, 0, 9_000_000),
        ]
    };
    let check = |wrote, heartbeat, expected: &[u64]| {
        let topology = topology(ReplicaSetNoPrimary, servers(wrote));
        let settings = Settings {
            heartbeat_frequency: Duration::from_secs(heartbeat),
            ..Settings::default()
        };
        let criteria = read(limited(100));
        let found = suitable(&topology, &settings, &criteria).unwrap();
        let found: Vec<_> = found.iter().map(|server| server.id.as_u64()).collect();
        assert_eq!(found, expected, "{wrote} {heartbeat}");
    };
    check(4_910_000, 10, &[1, 2]);
    check(4_909_999, 10, &[1]);
    check(4_950_000, 50, &[1, 2]);
    check(4_949_999, 50, &[1]);
}

#[test]
fn staleness_is_measured_from_the_whole_topology_even_if_the_newest_member_is_deprioritized() {
    // L-53
    let servers = [
        member(1, RsSecondary, 0, 5_000_000),
        member(2, RsSecondary, 0, 4_000_000),
    ];
    let topology = topology(ReplicaSetNoPrimary, servers);
    // Without 1, server 2 would be the newest and therefore suitable.
    let for_preference = read(limited(90)).with_deprioritized([address(1)]);
    assert_eq!(found(&topology, &for_preference), [1]);
    // The same with a primary: 3 lags behind it, but not behind 2.
    let servers = [
        member(1, RsPrimary, 0, 5_000_000),
        member(2, RsSecondary, 0, 4_000_000),
        member(3, RsSecondary, 0, 4_000_000),
    ];
    let topology = self::topology(ReplicaSetWithPrimary, servers);
    let preferred = mode(ReadMode::PrimaryPreferred).with_max_staleness(Duration::from_secs(90));
    let for_preference = read(preferred).with_deprioritized([address(1)]);
    assert_eq!(found(&topology, &for_preference), [1]);
}

#[test]
fn members_of_unknown_staleness_count_as_stale() {
    // L-26
    let bare = |number| server(number, RsSecondary);
    let check = |servers: Vec<ServerDescription>, expected: &[u64]| {
        let has_primary = servers.iter().any(|it| it.server_type == RsPrimary);
        let topology_type = if has_primary {
            ReplicaSetWithPrimary
        } else {
            ReplicaSetNoPrimary
        };
        let topology = topology(topology_type, servers);
        assert_eq!(found(&topology, &read(limited(90))), expected);
    };
    let primary = || member(1, RsPrimary, 5, 5);
    let fresh = || member(2, RsSecondary, 5, 5);
    check(vec![primary(), fresh(), bare(3)], &[2]);
    check(vec![fresh(), bare(3)], &[2]);
    check(vec![bare(3)], &[]);
    check(vec![server(1, RsPrimary), fresh()], &[]);
    // Without a primary, the time of the check does not matter.
    let mut unchecked = fresh();
    unchecked.last_update_time = None;
    check(vec![unchecked.clone()], &[2]);
    check(vec![primary(), unchecked], &[]);
}

proptest! {
    #[test]
    fn suitable_servers_match_the_reference_model(
        topology in any_topology(),
        criteria in any_criteria(),
    ) {
        let suitability = Suitability::new(&topology, &Settings::default(), &criteria);
        let found = suitability.ok().map(|suitability| -> Vec<_> {
            let servers = topology.servers().iter();
            let admitted = servers.filter(|server| suitability.is_suitable(server));
            admitted.map(|server| server.address.clone()).collect()
        });
        let expected = model::suitable(&topology, &criteria).map(|servers| -> Vec<_> {
            servers.into_iter().map(|server| server.address).collect()
        });
        prop_assert_eq!(found, expected);
    }
}
