use core::time::Duration;
use std::{collections::BTreeSet, vec::Vec};

use proptest::prelude::*;
use sdam_core::{
    options::SelectionStrategy,
    read_preference::{ReadMode, ReadPreference},
    rng::Rng,
    server::ServerType::{Mongos, RsPrimary, RsSecondary},
    topology::{TopologyDescription, TopologyType},
};

use super::*;
use crate::{
    choose,
    criteria::Criteria,
    explain::{Rejection, Verdict, explain},
    settings::Settings,
    suitable,
    testing::{
        address,
        any::{any_criteria, any_topology},
        server, tags, topology, with_rtt,
    },
};

/// Returns a replica set with a member in each of these zones; the first one is the primary.
fn replica_set(zones: &[&str]) -> TopologyDescription {
    let members = zones.iter().zip(1..).map(|(zone, number)| {
        let mut member = server(number, if number == 1 { RsPrimary } else { RsSecondary });
        member.tags = tags(&[("zone", zone)]);
        member
    });
    topology(TopologyType::ReplicaSetWithPrimary, members)
}

fn read(mode: ReadMode) -> Criteria {
    Criteria::read(ReadPreference::new(mode)).unwrap()
}

fn in_zone(zone: &str) -> ZoneAffinity {
    ZoneAffinity::by_tag("zone", zone)
}

/// Returns the numbers of the servers that 200 selections choose.
fn chosen(
    topology: &TopologyDescription,
    affinity: ZoneAffinity,
    criteria: &Criteria,
) -> Vec<usize> {
    let settings = Settings::default().with_zone_affinity(affinity);
    let mut rng = Rng::new(3);
    let choose = |_| choose(topology, &settings, criteria, |_| 0, rng.next_u64());
    let all: BTreeSet<_> =
        (0..200).map(choose).filter_map(|found| Some(found.unwrap()?.index + 1)).collect();
    all.into_iter().collect()
}

#[test]
fn servers_of_the_zone_are_chosen_as_long_as_one_is_suitable() {
    let set = replica_set(&["a", "a", "b", "b"]);
    let check = |zone, mode, expected: &[usize]| {
        assert_eq!(chosen(&set, in_zone(zone), &read(mode)), expected, "{zone} {mode}");
    };
    check("a", ReadMode::Nearest, &[1, 2]);
    check("b", ReadMode::Nearest, &[3, 4]);
    check("a", ReadMode::Secondary, &[2]);
    check("b", ReadMode::PrimaryPreferred, &[1]);
    // If no server in the zone is suitable, the suitable servers of all other zones are used.
    check("c", ReadMode::Secondary, &[2, 3, 4]);
    // Deprioritized servers are not suitable as long as there are others.
    let criteria = read(ReadMode::Secondary).with_deprioritized([address(2)]);
    assert_eq!(chosen(&set, in_zone("a"), &criteria), [3, 4]);
    // Neither the zone nor the mode matters for writes.
    assert_eq!(chosen(&set, in_zone("b"), &Criteria::write()), [1]);
}

#[test]
fn the_latency_window_begins_at_the_fastest_server_of_the_zone() {
    let routers = [(1, 1), (2, 30), (3, 40), (4, 50)];
    let routers = routers.map(|(number, millis)| with_rtt(server(number, Mongos), millis));
    let sharded = topology(TopologyType::Sharded, routers);
    let affinity = ZoneAffinity::by(|server| server.address != address(1));
    assert_eq!(chosen(&sharded, affinity, &Criteria::write()), [2, 3]);
}

#[test]
fn a_local_primary_serves_secondary_preferred_only_if_configured() {
    let set = replica_set(&["a", "b", "b"]);
    let criteria = read(ReadMode::SecondaryPreferred);
    assert_eq!(chosen(&set, in_zone("a"), &criteria), [2, 3]);
    assert_eq!(chosen(&set, in_zone("a").with_local_primary(), &criteria), [1]);
    // Local secondaries are preferred to a local primary.
    assert_eq!(chosen(&set, in_zone("b").with_local_primary(), &criteria), [2, 3]);
    assert_eq!(chosen(&set, in_zone("c").with_local_primary(), &criteria), [2, 3]);
    let both = replica_set(&["a", "a", "b"]);
    assert_eq!(chosen(&both, in_zone("a").with_local_primary(), &criteria), [2]);
    // Reads with mode `secondary` do not fall back to the primary.
    let secondary = read(ReadMode::Secondary);
    assert_eq!(chosen(&set, in_zone("a").with_local_primary(), &secondary), [2, 3]);
    // The primary must satisfy the tags.
    let tagged = ReadPreference::new(ReadMode::SecondaryPreferred)
        .with_tag_sets(std::vec![tags(&[("zone", "b")]), tags(&[])]);
    let tagged = Criteria::read(tagged).unwrap();
    assert_eq!(chosen(&set, in_zone("a").with_local_primary(), &tagged), [2, 3]);
}

/// Returns the load of each member, as a multiple of the mean, if the clients are distributed over
/// the zones in these proportions. `is_guarded` is true if the clients know the share of their
/// zone.
fn loads(set: &TopologyDescription, clients: &[(&str, usize)], is_guarded: bool) -> Vec<f64> {
    let all: usize = clients.iter().map(|(_, count)| count).sum();
    let criteria = read(ReadMode::Nearest);
    let mut loads = std::vec![0.0; set.servers().len()];
    let mut rng = Rng::new(5);
    for (zone, count) in clients {
        let share = if is_guarded { *count as f64 / all as f64 } else { 0.0 };
        let affinity = in_zone(zone).with_client_share(share).unwrap();
        let mut settings = Settings::default().with_zone_affinity(affinity);
        for number in 0..count * 1_000 {
            settings.strategy = match number % 2 {
                0 => SelectionStrategy::Random,
                _ => SelectionStrategy::default(),
            };
            let found = choose(set, &settings, &criteria, |_| 0, rng.next_u64());
            loads[found.unwrap().unwrap().index] += 1.0;
        }
    }
    let mean = all as f64 * 1_000.0 / loads.len() as f64;
    loads.iter().map(|load| load / mean).collect()
}

#[test]
fn a_known_share_of_clients_limits_the_load_of_the_zone() {
    let most = |loads: Vec<f64>| loads.into_iter().fold(0.0, f64::max);
    let (three, six) =
        (replica_set(&["a", "b", "c"]), replica_set(&["a", "a", "b", "b", "c", "c"]));
    let uneven = [("a", 80), ("b", 10), ("c", 10)];
    assert!(most(loads(&three, &uneven, false)) > 2.3);
    for set in [&three, &six] {
        assert!(most(loads(set, &uneven, true)) < 1.3);
        assert!(most(loads(set, &[("a", 45), ("b", 45), ("c", 10)], true)) < 1.4);
    }
    // Evenly distributed clients never leave their zone.
    for zone in ["a", "b", "c"] {
        let affinity = in_zone(zone).with_client_share(1.0 / 3.0).unwrap();
        assert_eq!(chosen(&three, affinity, &read(ReadMode::Nearest)).len(), 1);
    }
    // A single zone has all clients and all servers.
    let (one, all) = (replica_set(&["a", "a"]), in_zone("a").with_client_share(1.0).unwrap());
    assert_eq!(chosen(&one, all, &read(ReadMode::Nearest)), [1, 2]);
}

#[test]
fn an_invalid_share_is_refused_with_the_remedy() {
    for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let error = in_zone("a").with_client_share(share).unwrap_err();
        assert_eq!((error.option(), error.value()), ("client share", &*format!("{share}")));
        assert!(error.remedy().contains("number of all clients"));
    }
}

#[test]
fn servers_of_other_zones_are_explained() {
    let set = replica_set(&["a", "b", "b"]);
    let verdicts = |affinity| {
        let settings = Settings::default().with_zone_affinity(affinity);
        let explanation = explain(&set, &settings, &read(ReadMode::Nearest));
        explanation.servers.into_iter().map(|server| server.verdict).collect::<Vec<_>>()
    };
    let eligible = Verdict::Eligible { average: Some(Duration::from_millis(5)) };
    let zone = Verdict::Rejected(Rejection::Zone);
    assert_eq!(verdicts(in_zone("a")), [eligible.clone(), zone.clone(), zone]);
    let guarded = in_zone("a").with_client_share(0.8).unwrap();
    assert_eq!(verdicts(guarded), [eligible.clone(), eligible.clone(), eligible]);
    let text = "is in another zone, and there are suitable servers in this one";
    assert_eq!(format!("{}", Rejection::Zone), text);
}

proptest! {
    #[test]
    fn only_explained_servers_are_chosen_and_the_zone_comes_first(
        topology in any_topology(),
        criteria in any_criteria(),
        share in prop::sample::select(std::vec![0.0, 0.5, 1.0]),
        uses_primary in any::<bool>(),
        random: u64,
    ) {
        let mut affinity = ZoneAffinity::by_tag("dc", "ny").with_client_share(share).unwrap();
        if uses_primary {
            affinity = affinity.with_local_primary();
        }
        let settings = Settings::default().with_zone_affinity(affinity.clone());
        let Ok(all) = suitable(&topology, &settings, &criteria) else {
            return Ok(());
        };
        let found = choose(&topology, &settings, &criteria, |_| 0, random).unwrap();
        prop_assert_eq!(found.is_some(), !all.is_empty());
        if let Some(found) = found {
            prop_assert!(all.iter().any(|candidate| candidate.index == found.index));
            let explained = explain(&topology, &settings, &criteria);
            if explained.refusal.is_none() {
                prop_assert!(explained.servers[found.index].is_eligible(), "{}", explained);
            }
            if share == 0.0 && all.iter().any(|candidate| affinity.is_local(candidate.server)) {
                prop_assert!(affinity.is_local(found.server));
            }
        }
    }
}
