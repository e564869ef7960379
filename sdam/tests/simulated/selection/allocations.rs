//! Checks that selecting from a topology with a suitable server allocates no memory.
//!
//! The allocator is `allocation_counter`, which counts per thread.

use std::time::Duration;

use futures::FutureExt;
use sdam::{Criteria, ReadMode, ReadPreference, Topology};
use sdam_core::read_preference::TagSet;
use sdam_testkit::Server;

use super::harness::{Harness, hosts};

/// Counts the allocations of `select` in 100 calls after the first one.
fn allocations(mut select: impl FnMut()) -> u64 {
    // Excludes allocations that a thread and its snapshot guards make only once.
    select();
    allocation_counter::measure(|| (0..100).for_each(|_| select())).count_total
}

fn check(name: &str, topology: &Topology, criteria: &Criteria) {
    let at_once = || drop(topology.try_select(criteria).unwrap().unwrap());
    assert_eq!(allocations(at_once), 0, "{name}: try_select");
    let waiting = || drop(topology.select(criteria).now_or_never().unwrap().unwrap());
    assert_eq!(allocations(waiting), 0, "{name}: select");
}

/// L-62: this test cannot observe locks, but it counts allocations.
#[test]
fn a_selection_that_does_not_wait_allocates_nothing() {
    let nearest = Criteria::read(ReadPreference::new(ReadMode::Nearest)).unwrap();
    let any: TagSet = [("dc", "ny")].into_iter().collect();
    let picky = ReadPreference::new(ReadMode::SecondaryPreferred)
        .with_tag_sets(vec![any, TagSet::default()])
        .with_max_staleness(Duration::from_secs(120));
    let picky = Criteria::read(picky).unwrap();
    for members in [1, 3, 50] {
        let hosts = hosts(members);
        let mut harness = Harness::with_replica_set(&hosts);
        let topology = harness.start(&hosts, |builder| builder);
        check("write", &topology, &Criteria::write());
        check("nearest", &topology, &nearest);
        check("picky", &topology, &picky);
    }
    let hosts = hosts(1000);
    let mut harness = Harness::new();
    for host in &hosts {
        harness.servers.set(host, Server::mongos());
    }
    let topology = harness.start(&hosts, |builder| builder);
    check("1000 mongos", &topology, &Criteria::write());
}

#[test]
fn criteria_of_writes_and_of_read_modes_are_made_and_cloned_without_allocation() {
    let of = |criteria: &dyn Fn() -> Criteria| allocations(|| drop(criteria().clone()));
    assert_eq!(of(&Criteria::write), 0);
    assert_eq!(of(&|| Criteria::primary().with_write_stage()), 0);
    let nearest = || ReadPreference::new(ReadMode::Nearest);
    assert_eq!(of(&|| Criteria::read(nearest()).unwrap()), 0);
    assert_eq!(of(&|| Criteria::read(ReadMode::Secondary).unwrap()), 0);
    let limited = || nearest().with_max_staleness(Duration::from_secs(120));
    assert_eq!(of(&|| Criteria::read(limited()).unwrap()), 100, "a control");
}
