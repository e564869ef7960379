//! A name server with the zone of the official tests, and runtimes with accelerated time.

use std::{sync::Arc, time::Duration};

use futures::{executor::block_on, future::BoxFuture};
use sdam::{
    Clock, Connection, Error, EventKind, EventName, Instant, Interest, Io, Resolver, Runtime,
    ScanTopology, ServerAddress, Snapshot, SrvRecords, Stage, Topology, TopologyDescription,
    Transport, UnixTime, async_trait,
};
use sdam_dns::DnsResolver;
use sdam_events::channel::{EventStream, unbounded};
use sdam_live::{Dns, Record, or_skip};

/// The host of every server; they differ in their ports. None of them exists.
const HOST: &str = "localhost.test.build.10gen.cc";
/// The name of the usual record, `test1`.
pub(crate) const TEST1: &str = "_mongodb._tcp.test1.test.build.10gen.cc";
/// `rescanSRVIntervalMS`, the TTL of all records.
const INTERVAL: Duration = Duration::from_secs(60);
/// The number of test seconds that pass in a real second.
const HASTE: u32 = 200;
/// The time limit of every wait: half a minute of real time.
const PATIENCE: Duration = Duration::from_secs(30 * HASTE as u64);

/// Returns the SRV records of `name` for these ports.
pub(crate) fn records(name: &str, ports: &[u16]) -> Vec<Record> {
    let record = |port: &u16| Record::srv(name, HOST, *port).ttl(60);
    ports.iter().map(record).collect()
}

/// A name server, and a resolver that queries it.
pub(crate) struct World {
    pub(crate) dns: Dns,
}

/// A topology under test, in either mode.
enum Client {
    Background(Topology, Runtime),
    Single(Box<ScanTopology>, Io),
}

impl World {
    /// Starts the name server; `None` if none is installed on this machine.
    pub(crate) fn start() -> Option<Self> {
        let dns = or_skip(Dns::start([])).unwrap()?;
        Some(Self { dns })
    }

    /// On every runtime and in single-threaded mode: resolves the connection string of `test1` or
    /// another `name` with its `before` ports, changes the records, and waits until the ports of
    /// the topology are as `expected`.
    pub(crate) fn check(
        &self,
        (name, query): (&str, &str),
        before: &[u16],
        change: impl Fn(&Dns),
        expected: impl Fn(&[u16]) -> bool,
    ) {
        self.each(name, query, before, |client, _| {
            change(&self.dns);
            match client {
                Client::Background(topology, _) => {
                    let as_expected = |snapshot: &Snapshot| {
                        expected(&ports(snapshot.description())).then_some(())
                    };
                    let found = block_on(topology.wait_for(as_expected, PATIENCE));
                    assert!(found.is_some(), "{:?}", topology.snapshot());
                }
                Client::Single(topology, io) => {
                    pass(&*io.clock, 2 * INTERVAL);
                    block_on(topology.scan());
                    let ports = ports(&topology.description());
                    assert!(expected(&ports), "{ports:?}");
                }
            }
        });
    }

    /// Like [`check`](Self::check), but waits for a failed look-up and the next one, and asserts
    /// that the servers stay.
    pub(crate) fn check_failure(
        &self,
        query: &str,
        fail: impl Fn(&Dns),
        heal: impl Fn(&Dns),
        reason: &str,
    ) {
        self.each(TEST1, query, &[27017, 27018], |client, failures| {
            fail(&self.dns);
            let description = match client {
                Client::Background(topology, _) => {
                    for _ in 0..2 {
                        let failure = block_on(futures::StreamExt::next(failures)).unwrap();
                        assert_reason(&failure.kind, reason);
                    }
                    topology.snapshot().description().clone()
                }
                Client::Single(topology, io) => {
                    for _ in 0..2 {
                        pass(&*io.clock, 2 * INTERVAL);
                        block_on(topology.scan());
                        assert_reason(&failures.try_next().unwrap().kind, reason);
                    }
                    topology.description()
                }
            };
            heal(&self.dns);
            assert_eq!(ports(&description), [27017, 27018]);
        });
    }

    /// Like [`check`](Self::check), but asserts after two intervals that no look-up has happened.
    pub(crate) fn check_not_polled(&self, name: &str, query: &str, change: impl Fn(&Dns)) {
        self.each(name, query, &[27017], |client, failures| {
            change(&self.dns);
            let description = match client {
                Client::Background(topology, runtime) => {
                    pass(&*runtime.io.clock, 2 * INTERVAL);
                    topology.snapshot().description().clone()
                }
                Client::Single(topology, io) => {
                    pass(&*io.clock, 2 * INTERVAL);
                    block_on(topology.scan());
                    topology.description()
                }
            };
            assert_eq!(ports(&description), [27017]);
            assert!(failures.try_next().is_none());
        });
    }

    fn each(
        &self,
        name: &str,
        query: &str,
        before: &[u16],
        mut test: impl FnMut(&mut Client, &mut EventStream),
    ) {
        let (_, host) = name.split_once("._tcp.").unwrap();
        let uri = format!("mongodb+srv://{host}/?tls=false&{query}");
        let resolver = DnsResolver::with_servers([self.dns.address()]);
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        for runtime in [
            sdam_runtime_tokio::from_handle(tokio.handle().clone()).unwrap(),
            sdam_runtime_smol::runtime(),
            sdam_runtime_async_std::runtime(),
        ] {
            self.dns.set(records(name, before)).unwrap();
            let io = hasty(runtime.io, resolver.clone());
            let runtime = Runtime::new(io, runtime.spawner);
            let builder = block_on(Topology::resolve(&uri, &runtime.io)).unwrap();
            let (sink, mut failures) = unbounded();
            let sink = sink.interested_in(Interest::of(&[EventName::SrvLookupFailed]));
            let topology = builder.sink(sink).start(runtime.clone()).unwrap();
            assert_eq!(ports(topology.snapshot().description()), before);
            let mut client = Client::Background(topology, runtime);
            test(&mut client, &mut failures);
            if let Client::Background(topology, _) = client {
                block_on(topology.close());
            }
        }
        self.dns.set(records(name, before)).unwrap();
        let io = hasty(sdam_runtime_blocking::io(), resolver.blocking());
        let builder = block_on(Topology::resolve(&uri, &io)).unwrap();
        let (sink, mut failures) = unbounded();
        let sink = sink.interested_in(Interest::of(&[EventName::SrvLookupFailed]));
        let topology = builder.sink(sink).scan(io.clone()).unwrap();
        test(&mut Client::Single(Box::new(topology), io), &mut failures);
    }
}

fn assert_reason(kind: &EventKind, reason: &str) {
    let EventKind::SrvLookupFailed { failure, .. } = kind else {
        unreachable!("the sink wants nothing else");
    };
    assert!(failure.message().contains(reason), "{failure}");
}

fn ports(description: &TopologyDescription) -> Vec<u16> {
    let servers = description.servers().iter();
    servers.filter_map(|server| server.address.port()).collect()
}

/// Waits until `time` has passed on the clock.
fn pass(clock: &dyn Clock, time: Duration) {
    block_on(clock.sleep_until(clock.now() + time));
}

/// Returns a bundle with a faster clock and without servers.
fn hasty(io: Io, resolver: DnsResolver) -> Io {
    let clock = Arc::new(HastyClock(io.clock));
    let resolver = Arc::new(HastyResolver(resolver));
    Io::new(clock, Arc::new(NoServers), 1).with_resolver(resolver)
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

/// A clock that runs faster.
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
        // One nanosecond later, because the division rounds down.
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
