//! SRV seed lists and SRV polling, with the simulated DNS in virtual time.

mod polling;

use futures::executor::block_on;
use sdam::{ErrorKind, TopologyDescription};

use super::*;

/// The host of all mongoses, which differ in their ports.
const HOST: &str = "localhost.test.build.10gen.cc";
/// The name of `test1`, the SRV record that most tests use.
const TEST1: &str = "_mongodb._tcp.test1.test.build.10gen.cc";
/// The interval between look-ups, `rescanSRVIntervalMS`, which is also the TTL of all records.
const INTERVAL: Duration = Duration::from_secs(60);

fn hosts(ports: &[u16]) -> Vec<ServerAddress> {
    let host = |port: &u16| ServerAddress::new(HOST, *port);
    ports.iter().map(host).collect()
}

/// Starts mongoses on the ports 27017 to 27020, the first two of which are in the record of
/// `test1`.
fn sharded(seed: u64) -> Sim {
    let mongoses = hosts(&[27017, 27018, 27019, 27020]);
    let sim = Sim::new(seed, &Blueprint::sharded(4).at(mongoses));
    set(&sim, TEST1, &[27017, 27018]);
    sim
}

/// Sets the SRV records of `name`, which then lead to these ports of the host.
fn set(sim: &Sim, name: &str, ports: &[u16]) {
    sim.dns().set_srv(name, INTERVAL, hosts(ports));
}

/// Returns the connection string for the host `name`, such as `test1`, without TLS.
fn uri(name: &str, options: &str) -> String {
    format!("mongodb+srv://{name}.test.build.10gen.cc/?tls=false&{options}")
}

fn resolve(sim: &Sim, uri: &str) -> Result<TopologyBuilder, Error> {
    sim.block_on(sdam::resolve(uri, &sim.runtime().backend)).map(TopologyBuilder::new)
}

/// Starts a topology with background monitors.
fn start(sim: &Sim, uri: &str) -> Topology {
    resolve(sim, uri).unwrap().start(sim.runtime()).unwrap()
}

/// Like [`start`], for `test1` and with a sink that wants the events of `interest`.
fn observed(sim: &Sim, options: &str, interest: Interest) -> (Topology, EventStream) {
    let (sink, events) = unbounded();
    let builder = resolve(sim, &uri("test1", options)).unwrap();
    let builder = builder.sink(sink.interested_in(interest));
    (builder.start(sim.runtime()).unwrap(), events)
}

/// Starts a single-threaded topology.
fn scan(sim: &Sim, uri: &str) -> ScanTopology {
    resolve(sim, uri).unwrap().scan(sim.runtime().backend).unwrap()
}

fn ports(description: &TopologyDescription) -> Vec<u16> {
    let servers = description.servers().iter();
    servers.filter_map(|server| server.address.port()).collect()
}

#[test]
fn both_records_are_looked_up_at_once_and_nothing_else() {
    // Only the SRV and TXT records are looked up, and both at the same time (N-3, N-10, N-12,
    // N-14).
    let sim = sharded(1);
    sim.dns().set_txt("test1.test.build.10gen.cc", ["authSource=thisDB"]);
    sim.dns().set_fault_of_all(Some(DnsFault::Slow(Duration::from_secs(3))));
    let builder = resolve(&sim, &uri("test1", "")).unwrap();
    assert_eq!(sim.now(), Instant::from_millis(3000));
    assert_eq!(sim.dns().lookups(TEST1), 1);
    assert_eq!(sim.dns().lookups("test1.test.build.10gen.cc"), 1);
    assert_eq!((sim.connections(), sim.tasks()), (0, 0));
    let topology = builder.start(sim.runtime()).unwrap();
    assert_eq!(topology.options().seeds, hosts(&[27017, 27018]));
    let description = topology.snapshot().description().clone();
    assert_eq!(description.topology_type(), TopologyType::Unknown);
}

#[test]
fn wrong_values_of_the_txt_record_are_warnings_of_the_topology() {
    // Invalid and repeated values of a TXT record cause a warning (N-15).
    let sim = sharded(1);
    let record = "loadBalanced=yes&authSource=a&authSource=b";
    sim.dns().set_txt("test1.test.build.10gen.cc", [record]);
    let topology = start(&sim, &uri("test1", ""));
    let warnings = topology.warnings().iter().map(ToString::to_string);
    assert_eq!(
        warnings.collect::<Vec<_>>(),
        [
            "`TXT record of test1.test.build.10gen.cc: loadBalanced` is `yes`: it must be `true` \
             or `false`; the option is ignored",
            "`TXT record of test1.test.build.10gen.cc: authSource` is `b`: it is given more than \
             once; `b` is used",
        ],
    );
    assert!(!topology.options().load_balanced);
}

#[test]
fn look_ups_that_fail_name_the_record_the_cause_and_the_remedy() {
    // Missing records and failed look-ups are errors (N-4).
    let check = |name: &str, fault, expected: &str| {
        let sim = sharded(1);
        sim.dns().set_fault(name, Some(fault));
        let error = resolve(&sim, &uri("test1", "connectTimeoutMS=700")).unwrap_err();
        assert_eq!(format!("{error:?}"), expected);
        sim.now()
    };
    let remedy = "check the host name and the name servers of this machine";
    let txt = "test1.test.build.10gen.cc";
    let elapsed = check(
        TEST1,
        DnsFault::Silence,
        &format!(
            "timeout at dns: the SRV record of {TEST1} could not be looked up: no answer within \
             700 ms (connectTimeoutMS); {remedy}"
        ),
    );
    assert_eq!(elapsed, Instant::from_millis(700));
    check(
        txt,
        DnsFault::ServerFailure,
        &format!(
            "network error at dns: the TXT record of {txt} could not be looked up: the name server \
             failed for {txt} (SERVFAIL); {remedy}"
        ),
    );
    check(
        TEST1,
        DnsFault::NoSuchName,
        &format!(
            "the configuration is invalid: `SRV record {TEST1}`: there is none; create the record, \
             or list the servers in a mongodb:// string"
        ),
    );
}

#[test]
fn a_look_up_takes_as_long_as_connect_timeout_ms_allows() {
    let resolves = |options: &str| {
        let sim = sharded(1);
        let slow = DnsFault::Slow(Duration::from_secs(11));
        sim.dns().set_fault_of_all(Some(slow));
        resolve(&sim, &uri("test1", options)).is_ok()
    };
    assert!(!resolves(""));
    assert!(resolves("connectTimeoutMS=12000"));
    assert!(resolves("connectTimeoutMS=0"));
}

#[test]
fn without_a_resolver_the_error_names_the_feature() {
    let sim = sharded(1);
    let mut backend = sim.runtime().backend;
    backend.resolver = None;
    let error = block_on(sdam::resolve(&uri("test1", ""), &backend)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(
        error.source_as::<ConfigError>().unwrap().to_string(),
        "`mongodb+srv` is `test1.test.build.10gen.cc`: the runtime has no resolver to look up its \
         hosts; enable the Cargo feature `srv` of sdam, set `Backend::resolver`, or list the hosts \
         in a mongodb:// string",
    );
    let error = Topology::builder(&uri("test1", "")).unwrap_err();
    assert!(error.to_string().contains("`sdam::resolve`"), "{error}");
}

#[test]
fn a_plain_string_needs_no_resolver_and_no_look_up() {
    let sim = sharded(1);
    let mut backend = sim.runtime().backend;
    backend.resolver = None;
    let options = block_on(sdam::resolve("mongodb://a,b/?replicaSet=rs", &backend)).unwrap();
    assert_eq!(options.seeds.len(), 2);
    assert!(block_on(sdam::resolve("mongodb://a/?srvMaxHosts=1", &backend)).is_err());
    assert_eq!(sim.dns().lookups(TEST1), 0);
}

#[test]
fn the_choice_of_srv_max_hosts_differs_between_seeds_and_not_between_runs() {
    // `srvMaxHosts` limits the number of hosts, which are then chosen at random (N-7).
    let choose = |seed| {
        let sim = sharded(seed);
        set(&sim, TEST1, &[27017, 27018, 27019, 27020]);
        let options = uri("test1", "srvMaxHosts=2");
        let resolved = sim.block_on(sdam::resolve(&options, &sim.runtime().backend));
        resolved.unwrap().seeds
    };
    let chosen: Vec<_> = (0..20).map(choose).collect();
    assert!(chosen.iter().all(|seeds| seeds.len() == 2));
    assert!(chosen.iter().any(|seeds| *seeds != chosen[0]));
    assert_eq!((0..20).map(choose).collect::<Vec<_>>(), chosen);
}
