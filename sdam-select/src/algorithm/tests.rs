use std::vec::Vec;

use proptest::prelude::*;
use sdam_core::{
    server::ServerType::{Mongos, RsPrimary, RsSecondary},
    topology::TopologyType,
};

use super::*;
use crate::testing::{any_criteria, any_topology, server, topology, with_rtt};

fn mongoses(latencies: &[u64]) -> TopologyDescription {
    let servers =
        latencies.iter().zip(1..).map(|(millis, number)| with_rtt(server(number, Mongos), *millis));
    topology(TopologyType::Sharded, servers)
}

#[test]
fn the_window_starts_at_the_fastest_suitable_server_and_is_inclusive() {
    // The latency window is relative to the fastest suitable server (L-40).
    let check = |latencies: &[u64], threshold, expected: &[usize]| {
        let topology = mongoses(latencies);
        let all = suitable(&topology, &Settings::default(), &Criteria::write()).unwrap();
        let window = latency_window(&all, Duration::from_millis(threshold));
        let indices: Vec<_> = window.iter().map(|candidate| candidate.index).collect();
        assert_eq!(indices, expected, "{latencies:?} within {threshold} ms");
    };
    check(&[20, 5, 21], 15, &[0, 1]);
    check(&[20, 5, 21], 0, &[1]);
    check(&[7, 7], 0, &[0, 1]);
    check(&[20, 5, 21], 1_000, &[0, 1, 2]);
    check(&[], 15, &[]);
}

#[test]
fn latencies_of_up_to_a_century_are_distinguished() {
    // The arithmetic neither wraps nor rounds, even with extreme latencies and settings (L-40).
    const YEAR: u64 = 365 * 24 * 60 * 60;
    let check = |years: &[u64], threshold: Duration, expected: usize| {
        let latencies: Vec<_> = years.iter().map(|years| years * YEAR * 1_000).collect();
        let topology = mongoses(&latencies);
        let all = suitable(&topology, &Settings::default(), &Criteria::write()).unwrap();
        let size = latency_window(&all, threshold).len();
        assert_eq!(size, expected, "{years:?} years within {threshold:?}");
    };
    check(&[98, 99], Duration::ZERO, 1);
    check(&[98, 99], Duration::from_secs(YEAR - 1), 1);
    check(&[98, 99], Duration::from_secs(YEAR), 2);
    check(&[0, 98, 99], Duration::from_secs(98 * YEAR), 2);
    check(&[0, 99, 10_000], Duration::MAX, 3);
    // A latency above a century is treated as a century.
    check(&[101, 10_000], Duration::ZERO, 2);
}

#[test]
fn a_server_without_latency_is_the_slowest_and_still_suitable() {
    let mut unmeasured = server(2, Mongos);
    unmeasured.rtt = None;
    let alone = topology(TopologyType::Sharded, [unmeasured.clone()]);
    let measured = with_rtt(server(1, Mongos), 1_000_000_000);
    let both = topology(TopologyType::Sharded, [measured, unmeasured]);
    for random in [0, u64::MAX] {
        let choose = |topology| {
            let (settings, criteria) = (Settings::default(), Criteria::write());
            let found = choose(topology, &settings, &criteria, |_| 0, random);
            found.unwrap().map(|candidate| candidate.id.as_u64())
        };
        assert_eq!(choose(&alone), Some(2));
        assert_eq!(choose(&both), Some(1));
    }
}

#[test]
fn half_of_the_random_bits_draw_each_of_the_two_servers() {
    let topology = mongoses(&[5, 5, 5]);
    let chosen = |strategy, loads: [u32; 3], low: u32, high: u32| {
        let load = |candidate: Candidate<'_>| loads[candidate.index];
        let random = u64::from(high) << 32 | u64::from(low);
        let settings = Settings { strategy, ..Settings::default() };
        choose(&topology, &settings, &Criteria::write(), load, random).unwrap().unwrap().index
    };
    // The first server drawn has the greatest load, so the second one is chosen (L-41).
    let two = SelectionStrategy::TwoChoices;
    assert_eq!(chosen(two, [9, 0, 0], 0, 0), 1);
    assert_eq!(chosen(two, [9, 0, 0], 0, u32::MAX), 2);
    assert_eq!(chosen(two, [0, 0, 9], u32::MAX, 0), 0);
    assert_eq!(chosen(two, [0, 0, 9], u32::MAX, u32::MAX), 1);
    // With this strategy, the loads do not matter (L-42).
    for (random, index) in [(0, 0), (1 << 31, 1), (u32::MAX, 2)] {
        assert_eq!(chosen(SelectionStrategy::Random, [7, 8, 9], random, 0), index);
    }
}

#[test]
fn the_operation_count_of_a_single_server_is_not_read() {
    // If only one server is in the window, it is chosen without reading its load (L-41).
    let servers = [server(1, RsPrimary), server(2, RsSecondary)];
    let topology = topology(TopologyType::ReplicaSetWithPrimary, servers);
    let load =
        |_: Candidate<'_>| -> u32 { panic!("the operation count of the only server was read") };
    let found = choose(&topology, &Settings::default(), &Criteria::write(), load, 5);
    assert_eq!(found.unwrap().unwrap().server_type, RsPrimary);
}

proptest! {
    #[test]
    fn the_chosen_server_is_in_the_window_of_suitable_servers(
        topology in any_topology(),
        criteria in any_criteria(),
        random: u64,
    ) {
        let settings = Settings::default();
        let load = |candidate: Candidate<'_>| candidate.index as u32 % 3;
        for criteria in [criteria.clone().with_deprioritized([]), criteria] {
            let chosen = choose(&topology, &settings, &criteria, load, random);
            match suitable(&topology, &settings, &criteria) {
                Err(error) => prop_assert_eq!(chosen.unwrap_err(), error),
                Ok(suitable) => {
                    let window = latency_window(&suitable, settings.local_threshold);
                    let chosen = chosen.unwrap().map(|chosen| chosen.index);
                    let is_within = |index| window.iter().any(|own| own.index == index);
                    prop_assert!(chosen.map_or(window.is_empty(), is_within));
                }
            }
        }
    }
}
