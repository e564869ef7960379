use std::{vec, vec::Vec};

use proptest::prelude::*;
use sdam_core::{
    rng::Rng,
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

/// Returns how often each server is chosen in `draws` draws.
fn frequencies(
    topology: &TopologyDescription,
    strategy: SelectionStrategy,
    loads: &[u32],
    draws: usize,
) -> Vec<usize> {
    let settings = Settings { strategy, ..Settings::default() };
    let mut rng = Rng::new(11);
    let mut chosen = vec![0; topology.servers().len()];
    for _ in 0..draws {
        let load = |candidate: Candidate<'_>| loads[candidate.index];
        let criteria = Criteria::write();
        let found = choose(topology, &settings, &criteria, load, rng.next_u64());
        chosen[found.unwrap().unwrap().index] += 1;
    }
    chosen
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
fn of_two_random_servers_the_one_with_fewer_operations_is_chosen() {
    // With three servers, the least loaded is chosen two times out of three, and the most loaded is
    // never chosen (L-41).
    let topology = mongoses(&[5, 5, 5]);
    let chosen = frequencies(&topology, SelectionStrategy::TwoChoices, &[2, 1, 3], 3_000);
    assert!((1_850..2_150).contains(&chosen[1]), "{chosen:?}");
    assert_eq!(chosen[2], 0);
    let two = mongoses(&[5, 5]);
    let chosen = frequencies(&two, SelectionStrategy::TwoChoices, &[9, 8], 100);
    assert_eq!(chosen, [0, 100]);
}

#[test]
fn equal_loads_and_the_random_strategy_choose_evenly() {
    // Every server has the same chance (L-41, L-42).
    let topology = mongoses(&[5; 4]);
    for (strategy, loads) in
        [(SelectionStrategy::TwoChoices, [7; 4]), (SelectionStrategy::Random, [1, 2, 3, 4])]
    {
        let chosen = frequencies(&topology, strategy, &loads, 4_000);
        assert!(chosen.iter().all(|count| (880..1_120).contains(count)), "{strategy:?} {chosen:?}");
    }
}

#[test]
fn half_of_the_random_bits_draw_each_of_the_two_servers() {
    let topology = mongoses(&[5, 5, 5]);
    // The first server drawn has the greatest load, so the second one is chosen.
    let chosen = |loads: [u32; 3], low: u32, high: u32| {
        let load = |candidate: Candidate<'_>| loads[candidate.index];
        let random = u64::from(high) << 32 | u64::from(low);
        let settings = Settings::default();
        choose(&topology, &settings, &Criteria::write(), load, random).unwrap().unwrap().index
    };
    assert_eq!(chosen([9, 0, 0], 0, 0), 1);
    assert_eq!(chosen([9, 0, 0], 0, u32::MAX), 2);
    assert_eq!(chosen([0, 0, 9], u32::MAX, 0), 0);
    assert_eq!(chosen([0, 0, 9], u32::MAX, u32::MAX), 1);
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
    fn the_three_steps_choose_the_same_server_as_the_single_call(
        topology in any_topology(),
        criteria in any_criteria(),
        random: u64,
    ) {
        let settings = Settings::default();
        let load = |candidate: Candidate<'_>| candidate.index as u32 % 3;
        let index = |found: Option<Candidate<'_>>| found.map(|candidate| candidate.index);
        for criteria in [criteria.clone().with_deprioritized([]), criteria] {
            let chosen = choose(&topology, &settings, &criteria, load, random).map(index);
            let picked = suitable(&topology, &settings, &criteria).map(|suitable| {
                let window = latency_window(&suitable, settings.local_threshold);
                index(pick(&window, settings.strategy, load, random))
            });
            prop_assert_eq!(chosen, picked);
        }
    }
}
