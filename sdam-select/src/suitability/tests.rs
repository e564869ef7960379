mod model;

use std::{time::Duration, vec::Vec};

use proptest::prelude::*;
use sdam_core::{
    server::ServerType::{
        LoadBalancer, Mongos, PossiblePrimary, RsArbiter, RsPrimary, RsSecondary, Unknown,
    },
    time::Instant,
    topology::TopologyType::{
        LoadBalanced, ReplicaSetNoPrimary, ReplicaSetWithPrimary, Sharded, Single,
    },
};

use super::*;
use crate::{
    explain::explain,
    suitable,
    testing::{any_criteria, any_topology, server, topology},
};

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

#[test]
fn write_stages_run_on_the_primary_while_any_server_is_older_than_5_0() {
    // MongoDB 5.0 has wire version 13 (L-6). The staleness limit of `picky` is too small, which has
    // no effect if the preference is overridden.
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
    check(with, &[(RsPrimary, 13), (RsSecondary, 13), (RsArbiter, 9)], &[1], true);
    // The version of a server that has not answered is unknown, so it is not considered too old.
    check(with, &[(RsPrimary, 13), (RsSecondary, 13), (Unknown, 0)], &[2], false);
    check(without, &[(RsSecondary, 12)], &[], true);
    check(without, &[(RsSecondary, 13)], &[1], false);
    check(without, &[(PossiblePrimary, 0)], &[], false);
    check(Sharded, &[(Mongos, 9), (Mongos, 13)], &[1, 2], true);
    check(Single, &[(RsSecondary, 9)], &[1], true);
    check(LoadBalanced, &[(LoadBalancer, 0)], &[1], false);
    let write = Criteria::write().with_write_stage();
    let old = topology(with, [server(1, RsPrimary)]);
    assert!(!write.is_overridden_on(&old));
}

/// Returns whether a secondary with this staleness limit is suitable beside a primary. Each pair
/// contains the times of a server's last check and last write in milliseconds.
fn is_fresh(heartbeat: u64, limit: u64, primary: (u64, i64), secondary: (u64, i64)) -> bool {
    let member = |number, server_type, (updated, wrote)| {
        let mut server = server(number, server_type);
        server.last_update_time = Some(Instant::from_millis(updated));
        server.last_write_date = Some(wrote);
        server
    };
    let members = [member(1, RsPrimary, primary), member(2, RsSecondary, secondary)];
    let topology = topology(ReplicaSetWithPrimary, members);
    let settings =
        Settings { heartbeat_frequency: Duration::from_secs(heartbeat), ..Settings::default() };
    let limited = mode(ReadMode::Secondary).with_max_staleness(Duration::from_secs(limit));
    let found = suitable(&topology, &settings, &read(limited)).unwrap();
    !found.is_empty()
}

#[test]
fn staleness_includes_the_heartbeat_frequency_and_no_clock_or_write_date_is_too_extreme() {
    // The secondary is suitable if lag + heartbeat <= limit (L-21, L-28).
    let primary = (1_000_000, 5_000_000);
    for (heartbeat, wrote) in [(10, 4_910_000), (50, 4_950_000)] {
        assert!(is_fresh(heartbeat, 100, primary, (1_000_000, wrote)));
        assert!(!is_fresh(heartbeat, 100, primary, (1_000_000, wrote - 1)));
    }
    // The secondary was checked a minute after the primary, so a minute of the difference is not
    // lag (L-23). The result does not depend on when the clock begins (L-27).
    for begin in [0, 940_000] {
        for (wrote, fresh) in [(4_980_000, true), (4_979_999, false)] {
            let secondary = (begin + 60_000, wrote);
            assert_eq!(is_fresh(10, 90, (begin, 5_000_000), secondary), fresh);
        }
    }
    assert!(is_fresh(10, 90, primary, (1_000_000, i64::MAX)), "ahead");
    assert!(!is_fresh(10, 90, primary, (1_000_000, i64::MIN)));
}

proptest! {
    /// The model implements the rules A-8, L-2, L-5, L-10 to L-16, L-21 to L-26,
    /// L-32 to L-35 and L-50 to L-53.
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
