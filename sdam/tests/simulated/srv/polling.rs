//! SRV polling: the prose tests of "Polling SRV Records for mongos Discovery" in both modes, the
//! interval between look-ups, and the start and the end of polling.

use futures::future::{Either, select};
use sdam::{Resolver, runtime::SrvRecords};

use super::*;

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
    let check = |ports: &[u16]| assert_eq!(ports, expected);
    poll(|| sharded(1), &uri("test1", options), change, check);
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
        let check = |ports: &[u16]| {
            assert_eq!((ports.len(), ports[0]), (2, 27017));
            chosen.borrow_mut()[usize::from(ports[1] - 27019)] = true;
        };
        poll(|| sharded(seed), &uri("test1", "srvMaxHosts=2"), change, check);
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
    let (topology, mut events) = observed(&sim, "", Interest::DESCRIPTIONS);
    sim.run_for(INTERVAL / 2);
    let kept = topology.snapshot().description().server(&hosts(&[27017])[0]).cloned();
    drain(&mut events);
    set(&sim, TEST1, &[27017, 27019]);
    sim.run_for(INTERVAL);
    let names: Vec<_> = drain(&mut events).iter().map(|event| event.kind.name()).collect();
    let expected = [
        EventName::ServerClosed,
        EventName::ServerOpening,
        EventName::TopologyDescriptionChanged,
        // The new server was checked.
        EventName::ServerDescriptionChanged,
    ];
    assert_eq!(names[..4], expected);
    let now = topology.snapshot().description().server(&hosts(&[27017])[0]).cloned();
    assert_eq!(now.unwrap().id, kept.unwrap().id);
}

#[test]
fn hosts_outside_the_domain_are_published_and_never_connected_to() {
    // A host outside the domain is ignored (N-22).
    let sim = sharded(1);
    let (topology, mut events) = observed(&sim, "", Interest::SDAM);
    let evil = ServerAddress::new("localhost.evil.build.10gen.cc", 27017);
    let mut mixed = hosts(&[27018]);
    mixed.push(evil.clone());
    sim.dns().set_srv(TEST1, INTERVAL, mixed);
    sim.run_for(5 * INTERVAL / 2);
    assert_eq!(ports(topology.snapshot().description()), [27018]);
    let mut ignored = 0;
    for event in drain(&mut events) {
        assert_ne!(event.kind.address(), Some(&evil));
        if let EventKind::SrvHostsIgnored { domain, hosts, .. } = event.kind {
            assert_eq!((&*domain, &*hosts), ("test.build.10gen.cc", &[evil.clone()][..]));
            ignored += 1;
        }
    }
    assert_eq!(ignored, 2, "once for each look-up");
}

#[test]
fn the_record_is_looked_up_when_its_ttl_has_passed_and_not_before_60_seconds() {
    // Records are polled every 60 s, or less often if their TTL is longer (N-21).
    for (ttl, interval) in [(5, 60), (60, 60), (300, 300)] {
        let sim = sharded(1);
        let set = |ttl| {
            let ttl = Duration::from_secs(ttl);
            sim.dns().set_srv(TEST1, ttl, hosts(&[27017, 27018]));
        };
        set(ttl);
        let _topology = start(&sim, &uri("test1", ""));
        // Until the interval has passed, the topology makes only the initial look-up.
        sim.run_for(Duration::from_secs(interval - 1));
        assert_eq!(sim.dns().lookups(TEST1), 1, "{ttl} s");
        // The TTL of the latest answer applies.
        set(100);
        sim.run_for(Duration::from_secs(2));
        assert_eq!(sim.dns().lookups(TEST1), 2, "{ttl} s");
        sim.run_for(Duration::from_secs(98));
        assert_eq!(sim.dns().lookups(TEST1), 2, "{ttl} s");
        sim.run_for(Duration::from_secs(2));
        assert_eq!(sim.dns().lookups(TEST1), 3, "{ttl} s");
    }
}

#[test]
fn the_interval_counts_from_the_end_of_a_look_up_which_connect_timeout_ms_limits() {
    // The interval is measured from the end of a look-up (N-21), and a look-up that times out is
    // repeated after a heartbeat interval (N-23).
    for (options, fault, third) in [
        // The second look-up lasts from 60 s to 69 s.
        ("", DnsFault::Slow(Duration::from_secs(9)), 129),
        // The second look-up lasts from 60 s to 62 s.
        ("connectTimeoutMS=2000", DnsFault::Silence, 72),
    ] {
        let sim = sharded(1);
        let _topology = start(&sim, &uri("test1", options));
        sim.dns().set_fault(TEST1, Some(fault));
        sim.run_for(Duration::from_millis(1000 * third - 100));
        assert_eq!(sim.dns().lookups(TEST1), 2, "{third}");
        sim.run_for(Duration::from_millis(200));
        assert_eq!(sim.dns().lookups(TEST1), 3, "{third}");
    }
}

#[test]
fn after_a_failure_the_record_is_looked_up_each_heartbeat_until_one_succeeds() {
    // After a failed look-up, the next one follows after a heartbeat interval (N-23).
    let sim = sharded(1);
    let interest = Interest::of(&[EventName::SrvLookupFailed]);
    let (topology, mut events) = observed(&sim, "heartbeatFrequencyMS=7000", interest);
    sim.dns().set_fault(TEST1, Some(DnsFault::ServerFailure));
    sim.run_for(Duration::from_secs(60 + 7 + 7 + 1));
    assert_eq!(sim.dns().lookups(TEST1), 1 + 3);
    set(&sim, TEST1, &[27019]);
    sim.dns().set_fault(TEST1, None);
    sim.run_for(Duration::from_secs(7));
    assert_eq!(sim.dns().lookups(TEST1), 1 + 4);
    assert_eq!(ports(topology.snapshot().description()), [27019]);
    sim.run_for(Duration::from_secs(58));
    assert_eq!(sim.dns().lookups(TEST1), 1 + 4);
    let failures = drain(&mut events);
    assert_eq!(failures.len(), 3);
    for event in failures {
        let EventKind::SrvLookupFailed { name, failure, next } = event.kind else {
            panic!("{event:?}");
        };
        assert_eq!((&*name, next.as_secs()), (TEST1, 7));
        assert!(failure.message().contains("SERVFAIL"), "{failure}");
    }
}

#[test]
fn a_look_up_delays_no_selection_and_no_check() {
    // An SRV look-up delays neither selections nor checks (N-27).
    let sim = sharded(1);
    let (topology, mut events) = observed(&sim, "connectTimeoutMS=60000", Interest::HEARTBEATS);
    sim.run_for(Duration::from_secs(59));
    sim.dns().set_fault(TEST1, Some(DnsFault::Silence));
    sim.run_for(Duration::from_secs(2));
    assert_eq!(sim.dns().lookups(TEST1), 2, "a look-up is under way");
    drain(&mut events);
    sim.run_for(Duration::from_secs(30));
    assert!(topology.try_select(&Criteria::write()).unwrap().is_some());
    let heartbeats = drain(&mut events).len();
    assert!(heartbeats >= 2 * 2 * 3, "{heartbeats} events of 2 servers in 30 s");
}

const LONG: Duration = Duration::from_secs(600);

fn assert_nothing_is_left(sim: &Sim) {
    assert_eq!((sim.tasks(), sim.connections(), sim.timers()), (0, 0, 0));
}

#[test]
fn closing_ends_the_polling_at_once_also_during_a_look_up() {
    // Polling does not delay closing (N-27).
    for after in [1, 61] {
        let sim = sharded(1);
        let topology = start(&sim, &uri("test1", "connectTimeoutMS=600000"));
        sim.dns().set_fault(TEST1, Some(DnsFault::Silence));
        sim.run_for(Duration::from_secs(after));
        assert_eq!(sim.dns().lookups(TEST1), 1 + after / 60);
        let before = sim.now();
        sim.block_on(topology.close());
        assert_eq!(sim.now(), before);
        assert_nothing_is_left(&sim);
    }
}

/// Returns whether the record of this deployment is polled, and the number of tasks that its
/// topology has in addition to the tasks of a topology without a record.
fn is_polled(blueprint: &Blueprint) -> (bool, usize) {
    let sim = Sim::new(1, blueprint);
    let tasks = |uri: &str| {
        let topology = start(&sim, uri);
        sim.run_for(LONG);
        let tasks = sim.tasks();
        sim.block_on(topology.close());
        assert_nothing_is_left(&sim);
        tasks
    };
    let uri = sim.dns().publish("cluster.sim.test", INTERVAL);
    let more = tasks(&uri) - tasks(&sim.uri());
    let lookups = sim.dns().lookups("_mongodb._tcp.cluster.sim.test");
    (lookups > 1, more)
}

#[test]
fn only_unknown_and_sharded_topologies_are_polled() {
    // Records are polled while the topology is Unknown or Sharded (N-20, N-27).
    let hosts = ["a", "b", "c"].map(|name| format!("{name}.sim.test"));
    let hosts = hosts.map(|host| ServerAddress::new(&host, 27017));
    let [first, ..] = &hosts;
    assert_eq!(is_polled(&Blueprint::sharded(3).at(hosts.clone())), (true, 1));
    let set = SetConfig::new("rs", hosts.clone());
    assert_eq!(is_polled(&Blueprint::replica_set(set)), (false, 0));
    let balancer = Blueprint::load_balanced(1).at([first.clone()]);
    assert_eq!(is_polled(&balancer), (false, 0));
    // The topology begins as Unknown, and the first check ends its polling task.
    let standalone = Blueprint::standalone().at([first.clone()]);
    assert_eq!(is_polled(&standalone), (false, 0));
}

#[test]
fn without_a_resolver_a_driver_polls_by_itself() {
    let sim = sharded(1);
    let options = sim.block_on(sdam::resolve(&uri("test1", ""), &sim.runtime().backend));
    let mut runtime = sim.runtime();
    runtime.backend.resolver = None;
    let builder = TopologyBuilder::new(options.unwrap());
    let topology = builder.start(runtime).unwrap();
    sim.run_for(LONG);
    assert_eq!(sim.dns().lookups(TEST1), 1);
    topology.handle_srv_hosts(&hosts(&[27017, 27020]));
    assert_eq!(ports(topology.snapshot().description()), [27017, 27020]);
}

/// A resolver that panics at each look-up of SRV records except the first.
#[derive(Debug)]
struct Panicking(Arc<dyn Resolver>, std::sync::atomic::AtomicBool);

#[async_trait]
impl Resolver for Panicking {
    async fn lookup_srv(&self, name: &str, timeout: Option<Duration>) -> Result<SrvRecords, Error> {
        assert!(!self.1.swap(true, std::sync::atomic::Ordering::Relaxed), "on purpose");
        self.0.lookup_srv(name, timeout).await
    }

    async fn lookup_txt(
        &self,
        name: &str,
        timeout: Option<Duration>,
    ) -> Result<Vec<Box<str>>, Error> {
        self.0.lookup_txt(name, timeout).await
    }
}

#[test]
fn a_resolver_that_panics_counts_as_a_failed_look_up() {
    // A panic in the resolver is treated as a failed look-up (N-23).
    let sim = sharded(1);
    let mut runtime = sim.runtime();
    let inner = runtime.backend.resolver.take().unwrap();
    let resolver = Panicking(inner, false.into());
    runtime.backend.resolver = Some(Arc::new(resolver));
    let resolve = || sim.block_on(sdam::resolve(&uri("test1", ""), &runtime.backend));
    let builder = TopologyBuilder::new(resolve().unwrap());
    let topology = builder.start(runtime.clone()).unwrap();
    let error = resolve().unwrap_err();
    assert!(error.to_string().contains("the resolver panicked"), "{error}");
    sim.run_for(LONG);
    assert_eq!(ports(topology.snapshot().description()), [27017, 27018]);
    sim.block_on(topology.close());
    assert_nothing_is_left(&sim);
}

#[test]
fn a_rescan_that_is_due_comes_before_the_scan() {
    // If a look-up of the record is due, it is made before the scan (H-13, N-28).
    let sim = sharded(1);
    let (sink, mut events) = unbounded();
    let sink = sink.interested_in(Interest::of(&[EventName::ServerHeartbeatStarted]));
    let builder = resolve(&sim, &uri("test1", "")).unwrap().sink(sink);
    let mut topology = builder.scan(sim.runtime().backend).unwrap();
    sim.block_on(topology.scan());
    set(&sim, TEST1, &[27019]);
    sim.run_for(Duration::from_secs(30));
    sim.block_on(topology.scan());
    assert_eq!(sim.dns().lookups(TEST1), 1, "not due yet");
    sim.run_for(Duration::from_secs(61));
    assert_eq!(sim.dns().lookups(TEST1), 1, "no look-up without a scan");
    drain(&mut events);
    sim.block_on(topology.select(&Criteria::write())).unwrap();
    assert_eq!(sim.dns().lookups(TEST1), 2);
    let checked = drain(&mut events).into_iter();
    let checked: Vec<_> = checked.filter_map(|event| event.kind.address().cloned()).collect();
    assert_eq!(checked, hosts(&[27019]), "the scan checks the new hosts only");
}

#[test]
fn a_dropped_scan_leaves_the_look_up_to_the_next_one() {
    // If a scan is dropped during its look-up, the next scan makes the look-up (N-28).
    let sim = sharded(1);
    let mut topology = scan(&sim, &uri("test1", ""));
    sim.dns().set_fault(TEST1, Some(DnsFault::Silence));
    sim.run_for(Duration::from_secs(61));
    let clock = sim.runtime().backend.clock;
    sim.block_on(async {
        let timer = clock.sleep_until(clock.now() + Duration::from_secs(1));
        let scan = pin!(topology.scan());
        assert!(matches!(select(scan, timer).await, Either::Right(_)));
    });
    assert_eq!(sim.dns().lookups(TEST1), 2);
    sim.dns().set_fault(TEST1, None);
    set(&sim, TEST1, &[27020]);
    sim.block_on(topology.scan());
    assert_eq!(sim.dns().lookups(TEST1), 3);
    assert_eq!(ports(&topology.description()), [27020]);
}
