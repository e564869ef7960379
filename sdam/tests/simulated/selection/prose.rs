//! The prose tests of Server Selection.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use sdam::{
    Clock, Criteria, ReadMode, ReadPreference, ServerAddress, Topology, select::Candidates,
};
use sdam_testkit::Server;

use super::harness::{Harness, hosts};

fn nearest() -> ReadPreference {
    ReadPreference::new(ReadMode::Nearest)
}

/// L-45, "Application-Provided Server Selector": ten selections all choose the server with the
/// highest port.
#[test]
fn the_selector_of_the_application_chooses_among_suitable_servers() {
    let hosts = hosts(3);
    let highest = |suitable: &mut Candidates<'_>| {
        let ports = suitable.iter().map(|candidate| candidate.address.port());
        let highest = ports.max().flatten();
        suitable.retain(|candidate| candidate.address.port() == highest);
    };
    let mut harness = Harness::with_replica_set(&hosts);
    let topology = harness.start(&hosts, |builder| builder.selector(highest));
    let criteria = Criteria::read(nearest()).unwrap();
    for _ in 0..10 {
        let selected = topology.try_select(&criteria).unwrap().unwrap();
        assert_eq!(selected.address(), &hosts[2]);
    }
}

/// Counts the operations per server when ten concurrent workers run ten finds each. Each find takes
/// the time that `times` specifies for its server.
fn load(
    harness: &mut Harness,
    topology: &Topology,
    times: &BTreeMap<ServerAddress, Duration>,
) -> BTreeMap<ServerAddress, u32> {
    let counts = Rc::new(RefCell::new(BTreeMap::new()));
    let ended = Rc::new(Cell::new(0));
    for _ in 0..10 {
        let (topology, times, clock) = (topology.clone(), times.clone(), harness.clock.clone());
        let (counts, ended) = (Rc::clone(&counts), Rc::clone(&ended));
        let worker = harness.begin(async move {
            let criteria = Criteria::read(nearest()).unwrap();
            for _ in 0..10 {
                let selected = topology.select(&criteria).await.unwrap();
                let server = selected.address().clone();
                clock.sleep_until(clock.now() + times[&server]).await;
                drop(selected);
                *counts.borrow_mut().entry(server).or_default() += 1;
            }
            ended.set(ended.get() + 1);
        });
        worker.forget();
    }
    harness.pass(Duration::from_secs(60));
    assert_eq!(ended.get(), 10);
    counts.take()
}

/// L-41, L-43, "operationCount-based selection within the latency window": a slow mongos gets less
/// than a quarter of the operations; two equal ones get about half each.
#[test]
fn a_slow_server_is_given_fewer_operations() {
    let hosts = hosts(2);
    let mut harness = Harness::new();
    for host in &hosts {
        harness.servers.set(host, Server::mongos());
    }
    let topology = harness.start(&hosts, |builder| {
        builder.options(|options| options.local_threshold = Duration::from_secs(30))
    });
    let mut times: BTreeMap<_, _> =
        hosts.iter().map(|host| (host.clone(), Duration::from_millis(5))).collect();
    times.insert(hosts[0].clone(), Duration::from_millis(500));
    let counts = load(&mut harness, &topology, &times);
    assert_eq!(counts.values().sum::<u32>(), 100);
    assert!(counts[&hosts[0]] < 25, "{counts:?}");

    times.insert(hosts[0].clone(), Duration::from_millis(5));
    let counts = load(&mut harness, &topology, &times);
    assert_eq!(counts.values().sum::<u32>(), 100);
    assert!((40..=60).contains(&counts[&hosts[0]]), "{counts:?}");
    let snapshot = topology.snapshot();
    let counts = snapshot.servers().map(|server| server.operation_count());
    assert_eq!(counts.collect::<Vec<_>>(), [0, 0], "every operation has ended");
}
