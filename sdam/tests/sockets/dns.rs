//! Tests SRV records from a real name server: special names, and polling on every runtime and
//! without a runtime.

use futures::future::BoxFuture;
use sdam::{
    Clock, Resolver, TopologyDescription, async_trait,
    runtime::{Backend, Instant, SrvRecords, UnixTime},
};
use sdam_dns::DnsResolver;
use sdam_live::{Dns, Record};

use super::*;

/// Resolves the connection string for each host, and checks the result. The records of a host
/// contain a set name and a single target, which is the second string of the pair.
fn check(pairs: &[(&str, &str)]) {
    let records = pairs.iter().flat_map(|(host, target)| {
        let srv = Record::srv(&format!("_mongodb._tcp.{host}"), target, 27017);
        [srv, Record::txt(host, ["replicaSet=rs"])]
    });
    let Some(dns) = or_skip(Dns::start(records)).unwrap() else {
        return;
    };
    let resolver = DnsResolver::with_servers([dns.address()]);
    let mut backend = sdam_runtime_blocking::backend();
    backend.resolver = Some(Arc::new(resolver));
    for (host, target) in pairs {
        let uri = format!("mongodb+srv://{host}/");
        let options = block_on(sdam::resolve(&uri, &backend)).unwrap();
        assert_eq!(options.seeds, [ServerAddress::new(target, 27017)]);
        assert_eq!(options.replica_set.as_deref(), Some("rs"));
    }
}

#[test]
fn internationalized_names_keep_their_ascii_form() {
    // Names are compared in their ASCII form (N-5, N-16).
    check(&[
        ("h.xn--bcher-kva.example", "db-0.xn--bcher-kva.example"),
        ("xn--h-wga.example.com", "xn--db-0-koa.example.com"),
    ]);
}

#[test]
fn the_name_server_is_asked_for_reserved_names() {
    // Reserved names are looked up like any other (N-3, N-8).
    check(&[
        ("localhost", "test_1.localhost"),
        ("cluster.localhost", "test_1.cluster.localhost"),
        ("h.b.localhost", "db-0.b.localhost"),
        ("h.b.invalid", "db-0.b.invalid"),
        ("h.b.local", "db-0.b.local"),
    ]);
}

/// The host name of all servers, which differ only in their ports. No such server is running.
const HOST: &str = "localhost.test.build.10gen.cc";
/// The interval between look-ups, `rescanSRVIntervalMS`, which is also the TTL of all records.
const INTERVAL: Duration = Duration::from_secs(60);
/// The number of test seconds that pass in a real second.
const HASTE: u32 = 200;

/// Returns the SRV records of `test1` for these ports.
fn records(ports: &[u16]) -> Vec<Record> {
    let name = "_mongodb._tcp.test1.test.build.10gen.cc";
    let record = |port: &u16| Record::srv(name, HOST, *port).ttl(60);
    ports.iter().map(record).collect()
}

fn ports(description: &TopologyDescription) -> Vec<u16> {
    let servers = description.servers().iter();
    servers.filter_map(|server| server.address.port()).collect()
}

/// The name server answers in real time, so this test takes as long as its answers. The simulated
/// DNS runs all prose tests of "Polling SRV Records for mongos Discovery".
#[test]
fn prose_3_a_replaced_record_replaces_its_server() {
    // A changed record changes the servers (N-20, N-24).
    const BEFORE: [u16; 2] = [27017, 27018];
    const AFTER: [u16; 2] = [27017, 27019];
    let Some(dns) = or_skip(Dns::start([])).unwrap() else {
        return;
    };
    let resolver = DnsResolver::with_servers([dns.address()]);
    let resolve = |backend: &Backend| {
        dns.set(records(&BEFORE)).unwrap();
        // A look-up may take several seconds of real time, which are many more seconds on the
        // faster clock.
        let uri = "mongodb+srv://test1.test.build.10gen.cc/?tls=false&connectTimeoutMS=2000000";
        TopologyBuilder::new(block_on(sdam::resolve(uri, backend)).unwrap())
    };
    on_every_runtime(|mut runtime| {
        runtime.backend = hasty(runtime.backend, resolver.clone());
        let topology = resolve(&runtime.backend).start(runtime).unwrap();
        dns.set(records(&AFTER)).unwrap();
        let changed = |now: &Snapshot| (ports(now.description()) == AFTER).then_some(());
        // Half a minute of real time.
        block_on(topology.wait_for(changed, Duration::from_secs(30) * HASTE)).unwrap();
    });
    let backend = hasty(sdam_runtime_blocking::backend(), resolver.blocking());
    let clock = Arc::clone(&backend.clock);
    let mut topology = resolve(&backend).scan(backend).unwrap();
    dns.set(records(&AFTER)).unwrap();
    block_on(clock.sleep_until(clock.now() + 2 * INTERVAL));
    block_on(topology.scan());
    assert_eq!(ports(&topology.description()), AFTER);
}

/// Returns a backend that has a faster clock and that can reach no servers.
fn hasty(backend: Backend, resolver: DnsResolver) -> Backend {
    let clock = Arc::new(HastyClock(backend.clock));
    let resolver = Arc::new(HastyResolver(resolver));
    let mut backend = Backend::new(clock, Arc::new(NoServers), 1);
    backend.resolver = Some(resolver);
    backend
}

/// A resolver that applies time-outs on the faster clock.
#[derive(Debug)]
struct HastyResolver(DnsResolver);

#[async_trait]
impl Resolver for HastyResolver {
    async fn lookup_srv(&self, name: &str, timeout: Option<Duration>) -> Result<SrvRecords, Error> {
        let timeout = timeout.map(|timeout| timeout / HASTE);
        self.0.lookup_srv(name, timeout).await
    }

    async fn lookup_txt(
        &self,
        name: &str,
        timeout: Option<Duration>,
    ) -> Result<Vec<Box<str>>, Error> {
        let timeout = timeout.map(|timeout| timeout / HASTE);
        self.0.lookup_txt(name, timeout).await
    }
}

/// A clock that runs faster than real time.
#[derive(Debug)]
struct HastyClock(Arc<dyn Clock>);

impl Clock for HastyClock {
    fn now(&self) -> Instant {
        let elapsed = self.0.now().since(Instant::EPOCH);
        Instant::EPOCH + elapsed * HASTE
    }

    fn wall(&self) -> UnixTime {
        self.0.wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        // The timer is one nanosecond longer, because the division rounds down.
        let left = deadline.since(Instant::EPOCH) / HASTE + Duration::from_nanos(1);
        self.0.sleep_until(Instant::EPOCH + left)
    }
}

/// A transport to servers that do not exist.
#[derive(Debug)]
struct NoServers;

#[async_trait]
impl Transport for NoServers {
    async fn connect(
        &self,
        _: &ServerAddress,
        _: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        Err(Error::network(Stage::Connect, "there is no server"))
    }
}
