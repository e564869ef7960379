//! Tests of DNS look-ups of records and hosts, with and without faults.

use futures::future::{Either, select};
use sdam_transport::resolve::Resolver;

use super::*;
use crate::{Blueprint, config::SetConfig, runtime::Sim};

const SRV: &str = "_mongodb._tcp.cluster.sim.test";
const MINUTE: Duration = Duration::from_secs(60);

fn host(name: &str) -> ServerAddress {
    ServerAddress::new(&format!("{name}.sim.test"), 27017)
}

fn sharded() -> (Sim, Arc<dyn Resolver>) {
    let sim = Sim::new(1, &Blueprint::sharded(2).at(["a", "b"].map(host)));
    let resolver = sim.runtime().backend.resolver.unwrap();
    (sim, resolver)
}

#[test]
fn records_change_at_once_and_names_ignore_case_and_the_final_dot() {
    let (sim, resolver) = sharded();
    let look_up = |name: &str| sim.block_on(resolver.lookup_srv(name, None)).unwrap();
    assert_eq!(look_up(SRV), SrvRecords::new(Vec::new(), Duration::ZERO));
    sim.dns().set_srv(SRV, MINUTE, [host("a")]);
    assert_eq!(look_up(SRV), SrvRecords::new(vec![host("a")], MINUTE));
    sim.dns().set_srv(SRV, 2 * MINUTE, ["a", "b"].map(host));
    let found = look_up("_MongoDB._tcp.Cluster.sim.test.");
    assert_eq!(found, SrvRecords::new(["a", "b"].map(host).into(), 2 * MINUTE));
    sim.dns().set_srv(SRV, MINUTE, []);
    assert_eq!(look_up(SRV).hosts, []);
    assert_eq!((sim.dns().lookups(SRV), sim.dns().lookups("other")), (4, 0));
}

#[test]
fn text_records_are_found_one_by_one() {
    let (sim, resolver) = sharded();
    let name = "cluster.sim.test";
    let look_up = || sim.block_on(resolver.lookup_txt(name, None)).unwrap();
    assert!(look_up().is_empty());
    sim.dns().set_txt(name, ["authSource=a", "replicaSet=rs"]);
    assert_eq!(look_up(), ["authSource=a".into(), "replicaSet=rs".into()]);
    sim.dns().set_txt(name, []);
    assert!(look_up().is_empty());
}

#[test]
fn a_fault_meets_hosts_and_records_until_it_ends() {
    let (sim, resolver) = sharded();
    let transport = sim.runtime().backend.transport;
    sim.dns().publish("cluster.sim.test", MINUTE);
    let host = host("a");
    // The fault affects both the look-up of SRV records and connecting to the host.
    let srv = || sim.block_on(resolver.lookup_srv(SRV, None)).map(|found| found.hosts.len());
    let connect = || sim.block_on(transport.connect(&host, None));
    for (fault, records, message) in [
        (DnsFault::NoSuchName, Ok(0), "host a.sim.test has no address"),
        (DnsFault::ServerFailure, Err(()), "the name server failed for a.sim.test"),
    ] {
        sim.dns().set_fault_of_all(Some(fault));
        assert_eq!(srv().map_err(|error| assert_eq!(error.stage(), Stage::Dns)), records);
        let error = connect().unwrap_err();
        assert_eq!(error.stage(), Stage::Dns);
        assert!(error.message().contains(message), "{error}");
        // A name's own fault takes precedence.
        sim.dns().set_fault(SRV, Some(DnsFault::Slow(MINUTE)));
        let before = sim.now();
        assert_eq!(srv().unwrap(), 2);
        assert_eq!(sim.now().since(before), MINUTE);
        sim.dns().set_fault(SRV, None);
        sim.dns().set_fault_of_all(None);
        assert_eq!(srv().unwrap(), 2);
        connect().unwrap();
    }
    sim.dns().set_fault(SRV, Some(DnsFault::NoSuchName));
    sim.network().heal();
    assert_eq!(srv().unwrap(), 2, "records outlast the faults");
}

#[test]
fn a_silent_name_server_is_waited_for_without_end() {
    let (sim, resolver) = sharded();
    sim.dns().set_fault(SRV, Some(DnsFault::Silence));
    let clock = sim.runtime().backend.clock;
    let hour = clock.sleep_until(sim.now() + 60 * MINUTE);
    let outcome = sim.block_on(select(resolver.lookup_srv(SRV, None), hour));
    assert!(matches!(outcome, Either::Right(_)));
}

#[test]
fn a_flapping_name_server_fails_and_answers_in_turns() {
    let (sim, resolver) = sharded();
    sim.dns().publish("cluster.sim.test", MINUTE);
    sim.dns().set_fault(SRV, Some(DnsFault::Flapping(2 * MINUTE)));
    let answers = |_| {
        let found = sim.block_on(resolver.lookup_srv(SRV, None));
        sim.run_for(MINUTE);
        found.is_ok()
    };
    let answers: Vec<bool> = (0..6).map(answers).collect();
    assert_eq!(answers, [false, false, true, true, false, false]);
}

#[test]
fn a_published_deployment_has_a_record_for_each_seed_and_its_options() {
    let config = SetConfig::new("rs", ["a", "b"].map(host));
    let balanced = || (0..2).map(|_| host("lb"));
    for (blueprint, hosts, options) in [
        (Blueprint::replica_set(config), vec![host("a"), host("b")], "replicaSet=rs"),
        (Blueprint::sharded(2).at(["a", "b"].map(host)), vec![host("a"), host("b")], ""),
        (Blueprint::load_balanced(2).at(balanced()), vec![host("lb")], "loadBalanced=true"),
        (Blueprint::standalone().at([host("a")]), vec![host("a")], ""),
    ] {
        let sim = Sim::new(1, &blueprint);
        let resolver = sim.runtime().backend.resolver.unwrap();
        let uri = sim.dns().publish("cluster.sim.test", MINUTE);
        assert_eq!(uri, "mongodb+srv://cluster.sim.test/?tls=false");
        let found = sim.block_on(resolver.lookup_srv(SRV, None)).unwrap();
        assert_eq!(found, SrvRecords::new(hosts, MINUTE));
        let text = sim.block_on(resolver.lookup_txt("cluster.sim.test", None)).unwrap();
        assert_eq!(text.join("&"), options);
    }
}
