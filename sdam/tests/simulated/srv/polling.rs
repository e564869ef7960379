//! Runs the prose tests of "Polling SRV Records for mongos Discovery" in both modes.

use sdam::{EventKind, Interest, ServerAddress, events::EventName};
use sdam_events::channel::unbounded;
use sdam_sim::{Blueprint, runtime::Sim};

use super::world::*;

/// Resolves `uri`, changes the DNS, waits for two intervals, and passes the topology's ports to
/// `check`, in both modes.
fn poll(sim: impl Fn() -> Sim, uri: &str, change: impl Fn(&Sim), check: impl Fn(&[u16])) {
    let background = sim();
    let topology = start(&background, uri);
    background.run_for(INTERVAL / 10);
    change(&background);
    background.run_for(2 * INTERVAL);
    check(&ports(topology.snapshot().description()));

    let single = sim();
    let mut topology = scan(&single, uri);
    single.block_on(topology.scan());
    change(&single);
    single.run_for(2 * INTERVAL);
    single.block_on(topology.scan());
    check(&ports(&topology.description()));
}

fn check_test1(options: &str, after: &[u16], expected: &[u16]) {
    let change = |sim: &Sim| set(sim, TEST1, after);
    poll(
        || sharded(1),
        &uri("test1", options),
        change,
        |ports| {
            assert_eq!(ports, expected);
        },
    );
}

/// Prose tests 1 to 5, 8, 10 and 11: changed records.
#[test]
fn changed_records_add_and_remove_servers_unless_there_is_none() {
    // Hosts that are no longer listed are removed, and new ones are added (N-20, N-23, N-24, N-25).
    for (options, after) in [
        ("", &[27017, 27018, 27019][..]),
        ("", &[27017]),
        ("", &[27017, 27019]),
        ("", &[27019]),
        ("", &[27019, 27020]),
        ("srvMaxHosts=0", &[27017, 27019, 27020]),
        ("srvMaxHosts=2", &[27019, 27020]),
    ] {
        check_test1(options, after, after);
    }
    check_test1("", &[], &[27017, 27018]);
}

#[test]
fn prose_9_behind_a_load_balancer_the_record_is_not_polled() {
    // Behind a load balancer, records are not polled (N-20, N-13).
    const TEST3: &str = "_mongodb._tcp.test3.test.build.10gen.cc";
    let sim = || {
        let sim = Sim::new(1, &Blueprint::load_balanced(1).at(hosts(&[27017])));
        set(&sim, TEST3, &[27017]);
        sim
    };
    let change = |sim: &Sim| {
        set(sim, TEST3, &[27017, 27018]);
        assert_eq!(sim.dns().lookups(TEST3), 1);
    };
    let balanced = uri("test3", "loadBalanced=true");
    poll(sim, &balanced, change, |ports| assert_eq!(ports, [27017]));
}

#[test]
fn prose_12_beyond_srv_max_hosts_new_hosts_are_chosen_at_random() {
    // `srvMaxHosts` limits the number of added hosts (N-25).
    let mut chosen = [false; 2];
    for seed in 0..10 {
        let change = |sim: &Sim| set(sim, TEST1, &[27017, 27019, 27020]);
        let chosen = std::cell::RefCell::new(&mut chosen);
        poll(
            || sharded(seed),
            &uri("test1", "srvMaxHosts=2"),
            change,
            |ports| {
                assert_eq!(ports.len(), 2);
                assert_eq!(ports[0], 27017);
                chosen.borrow_mut()[usize::from(ports[1] - 27019)] = true;
            },
        );
    }
    assert_eq!(chosen, [true; 2]);
}

#[test]
fn prose_13_the_record_of_another_service_is_polled() {
    const TEST22: &str = "_customname._tcp.test22.test.build.10gen.cc";
    let sim = || {
        let sim = sharded(1);
        set(&sim, TEST22, &[27017, 27018]);
        sim
    };
    let change = |sim: &Sim| set(sim, TEST22, &[27019, 27020]);
    let custom = uri("test22", "srvServiceName=customname");
    poll(sim, &custom, change, |ports| {
        assert_eq!(ports, [27019, 27020]);
    });
}

#[test]
fn changed_hosts_are_one_change_of_the_topology_that_leaves_the_others_alone() {
    // Unchanged hosts are kept, and changes cause the usual events (N-24, N-29).
    let sim = sharded(1);
    let (sink, mut events) = unbounded();
    let sink = sink.interested_in(Interest::DESCRIPTIONS);
    let builder = resolve(&sim, &uri("test1", "")).unwrap().sink(sink);
    let topology = builder.start(sim.runtime()).unwrap();
    sim.run_for(INTERVAL / 2);
    let kept = topology.snapshot().description().server(&hosts(&[27017])[0]).cloned();
    while events.try_next().is_some() {}
    set(&sim, TEST1, &[27017, 27019]);
    sim.run_for(INTERVAL);
    let mut names = Vec::new();
    while let Some(event) = events.try_next() {
        if matches!(&event.kind, EventKind::ServerDescriptionChanged { .. }) {
            // This event shows that the new server was checked.
            break;
        }
        names.push(event.kind.name());
    }
    assert_eq!(
        names,
        [EventName::ServerClosed, EventName::ServerOpening, EventName::TopologyDescriptionChanged]
    );
    let now = topology.snapshot().description().server(&hosts(&[27017])[0]).cloned();
    assert_eq!(now.unwrap().id, kept.unwrap().id);
}

#[test]
fn hosts_outside_the_domain_are_published_and_never_connected_to() {
    // A host outside the domain is ignored (N-22).
    let sim = sharded(1);
    let (sink, mut events) = unbounded();
    let sink = sink.interested_in(Interest::SDAM);
    let builder = resolve(&sim, &uri("test1", "")).unwrap().sink(sink);
    let topology = builder.start(sim.runtime()).unwrap();
    let evil = ServerAddress::new("localhost.evil.build.10gen.cc", 27017);
    let mut mixed = hosts(&[27018]);
    mixed.push(evil.clone());
    sim.dns().set_srv(TEST1, INTERVAL, mixed);
    sim.run_for(5 * INTERVAL / 2);
    assert_eq!(ports(topology.snapshot().description()), [27018]);
    let mut ignored = 0;
    while let Some(event) = events.try_next() {
        assert_ne!(event.kind.address(), Some(&evil));
        if let EventKind::SrvHostsIgnored { domain, hosts, .. } = event.kind {
            assert_eq!((&*domain, &*hosts), ("test.build.10gen.cc", &[evil.clone()][..]));
            ignored += 1;
        }
    }
    assert_eq!(ignored, 2, "once for each look-up");
}
