//! Checks that a successful selection allocates nothing.
//!
//! The global allocator comes from `allocation_counter`, which counts separately for each thread.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    address::ServerAddress,
    ids::ServerId,
    read_preference::{ReadMode, ReadPreference, TagSet},
    server::{Rtt, ServerDescription, ServerType},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};
use sdam_select::{
    candidate::{Candidate, Candidates},
    choose,
    criteria::Criteria,
    settings::Settings,
};

fn topology(
    topology_type: TopologyType,
    types: impl IntoIterator<Item = ServerType>,
) -> TopologyDescription {
    let servers = types.into_iter().zip(1..).map(|(server_type, number)| {
        let address = ServerAddress::new(&format!("s{number}"), 27017);
        let mut server = ServerDescription::unknown(ServerId::from_u64(number), address);
        server.server_type = server_type;
        server.rtt = Some(Rtt {
            average: Duration::from_micros(5_000 + number * 37 % 20_000),
            ..Rtt::default()
        });
        server.last_update_time = Some(Instant::from_millis(number));
        server.last_write_date = Some(1_700_000_000_000);
        server.tags = [("dc", "ny")].into_iter().collect();
        server
    });
    TopologyDescription::new(topology_type, servers)
}

fn replica_set(members: usize) -> TopologyDescription {
    let secondaries = std::iter::repeat_n(ServerType::RsSecondary, members - 1);
    let types = std::iter::once(ServerType::RsPrimary).chain(secondaries);
    topology(TopologyType::ReplicaSetWithPrimary, types)
}

/// Returns the number of allocations in 100 successful selections.
fn allocations(topology: &TopologyDescription, settings: &Settings, criteria: &Criteria) -> u64 {
    let load = |candidate: Candidate<'_>| candidate.index as u32;
    let count = allocation_counter::measure(|| {
        for number in 0..100 {
            let random = sdam_core::rng::mix(number);
            let found = choose(topology, settings, criteria, load, random);
            assert!(matches!(found, Ok(Some(_))));
        }
    });
    count.count_total
}

#[test]
fn selection_allocates_nothing_up_to_1024_servers() {
    let nearest = Criteria::read(ReadMode::Nearest).unwrap();
    let tags = |dc: &str| -> TagSet { [("dc", dc)].into_iter().collect() };
    let preference = ReadPreference::new(ReadMode::SecondaryPreferred)
        .with_tag_sets([tags("la"), tags("ny")].into())
        .with_max_staleness(Duration::from_secs(120));
    let picky = Criteria::read(preference).unwrap();
    let deprioritized = (1..=50).map(|number| ServerAddress::new(&format!("s{number}"), 27017));
    let routers = |count| {
        let types = std::iter::repeat_n(ServerType::Mongos, count);
        topology(TopologyType::Sharded, types)
    };
    let settings = Settings::default();
    let check = |name: &str, topology: &TopologyDescription, criteria: &Criteria| {
        assert_eq!(allocations(topology, &settings, criteria), 0, "{name}");
    };
    let all = picky.with_deprioritized(deprioritized);
    check("every server deprioritized", &replica_set(50), &all);
    check("1024 mongos", &routers(1024), &nearest);
    // Proves that the documented limit is exact, and that the counter counts at all.
    assert_eq!(allocations(&routers(1025), &settings, &Criteria::write()), 100);
}

#[test]
fn selectors_allocate_nothing_up_to_eight_suitable_servers() {
    let slower = |suitable: &mut Candidates<'_>| {
        suitable.retain(|candidate| !candidate.index.is_multiple_of(3));
    };
    let settings = Settings::default().with_selector(Arc::new(slower));
    let criteria = Criteria::read(ReadPreference::new(ReadMode::Nearest)).unwrap();
    assert_eq!(allocations(&replica_set(8), &settings, &criteria), 0);
    assert_eq!(allocations(&replica_set(9), &settings, &criteria), 100);
}

#[test]
fn cloning_criteria_allocates_nothing() {
    let tags: TagSet = [("dc", "ny")].into_iter().collect();
    let preference = ReadPreference::new(ReadMode::Nearest).with_tag_sets([tags].into());
    let criteria = Criteria::read(preference)
        .unwrap()
        .with_deprioritized([ServerAddress::new("a", 1)])
        .with_operation_name("find");
    let count = allocation_counter::measure(|| {
        assert_eq!(criteria.clone().with_operation_id(7).operation_id(), Some(7));
    });
    assert_eq!(count.count_total, 0);
}
