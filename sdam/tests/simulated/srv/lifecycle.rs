//! The start and the end of SRV polling.

use std::{sync::Arc, time::Duration};

use sdam::{Error, Resolver, ServerAddress, TopologyBuilder, async_trait, runtime::SrvRecords};
use sdam_sim::{
    Blueprint,
    config::SetConfig,
    runtime::{DnsFault, Sim},
};

use super::world::*;

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

/// Returns whether the record of this deployment is polled, and how many more tasks its topology
/// has than one without a record.
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
