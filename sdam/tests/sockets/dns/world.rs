//! A name server with the zone of the official tests, and runtimes with accelerated time.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, executor::block_on, future::BoxFuture};
use sdam::{
    Clock, Connection, Error, EventKind, Resolver, Runtime, ScanTopology, ServerAddress, Snapshot,
    Spawner, Topology, TopologyBuilder, TopologyDescription, Transport, async_trait,
    error::Stage,
    events::EventName,
    runtime::{Backend, Instant, SrvRecords, UnixTime},
};
use sdam_dns::DnsResolver;
use sdam_events::channel::{EventStream, unbounded};
use sdam_live::{Dns, Record, or_skip};

/// The host name of all servers, which differ only in their ports. No such server is running.
const HOST: &str = "localhost.test.build.10gen.cc";
/// The name of the record `test1`.
pub(super) const TEST1: &str = "_mongodb._tcp.test1.test.build.10gen.cc";
/// The interval between look-ups, `rescanSRVIntervalMS`, which is also the TTL of all records.
const INTERVAL: Duration = Duration::from_secs(60);
/// The number of test seconds that pass in a real second.
const HASTE: u32 = 200;
/// The time limit of every wait: half a minute of real time.
const PATIENCE: Duration = Duration::from_secs(30 * HASTE as u64);

/// The ports in the SRV records before a test changes them.
const BEFORE: [u16; 2] = [27017, 27018];

/// Returns the SRV records of `test1` for these ports.
pub(super) fn records(ports: &[u16]) -> Vec<Record> {
    let record = |port: &u16| Record::srv(TEST1, HOST, *port).ttl(60);
    ports.iter().map(record).collect()
}

/// A name server.
pub(super) struct World(Dns);

/// A topology under test, in either mode, and the events of its failed look-ups.
struct Client {
    mode: Mode,
    clock: Arc<dyn Clock>,
    failures: EventStream,
}

enum Mode {
    Background(Topology),
    Single(Box<ScanTopology>),
}

impl Client {
    /// Waits for the next look-up: in background mode by calling `met`, which has to wait for it,
    /// and in single-threaded mode by scanning after two intervals.
    fn look_up(
        &mut self,
        met: impl FnOnce(&Topology, &mut EventStream),
    ) -> Arc<TopologyDescription> {
        match &mut self.mode {
            Mode::Background(topology) => {
                met(topology, &mut self.failures);
                Arc::clone(topology.snapshot().description())
            }
            Mode::Single(topology) => {
                block_on(self.clock.sleep_until(self.clock.now() + 2 * INTERVAL));
                block_on(topology.scan());
                topology.description()
            }
        }
    }
}

impl World {
    /// Starts the name server. Returns `None` if no name server is installed on this machine.
    pub(super) fn start() -> Option<Self> {
        or_skip(Dns::start([])).unwrap().map(Self)
    }

    /// Resolves the connection string of `test1`, changes the records, and waits until the topology
    /// has the ports `after`, on every runtime and in single-threaded mode.
    pub(super) fn check(&self, change: impl Fn(&Dns), after: &[u16]) {
        // A look-up may take several seconds of real time, and the faster clock counts many more.
        self.each("connectTimeoutMS=2000000", |client| {
            change(&self.0);
            let description = client.look_up(|topology, _| {
                let changed = |now: &Snapshot| (ports(now.description()) == after).then_some(());
                block_on(topology.wait_for(changed, PATIENCE));
            });
            assert_eq!(ports(&description), after);
        });
    }

    /// Like [`check`](Self::check), but waits for two failed look-ups, and asserts that neither of
    /// them changes the servers.
    pub(super) fn check_failure(
        &self,
        query: &str,
        fail: impl Fn(&Dns),
        heal: impl Fn(&Dns),
        reason: &str,
    ) {
        self.each(query, |client| {
            fail(&self.0);
            for _ in 0..2 {
                let mut failure = None;
                let description = client.look_up(|_, failures| failure = block_on(failures.next()));
                let failure = failure.or_else(|| client.failures.try_next()).unwrap();
                let EventKind::SrvLookupFailed { failure, .. } = failure.kind else {
                    unreachable!("the sink wants nothing else");
                };
                assert!(failure.message().contains(reason), "{failure}");
                assert_eq!(ports(&description), BEFORE);
            }
            heal(&self.0);
        });
    }

    fn each(&self, query: &str, mut test: impl FnMut(&mut Client)) {
        let uri = format!("mongodb+srv://test1.test.build.10gen.cc/?tls=false&{query}");
        let resolver = DnsResolver::with_servers([self.0.address()]);
        let mut run = |backend: &Backend, spawner: Option<Arc<dyn Spawner>>| {
            self.0.set(records(&BEFORE)).unwrap();
            let (sink, failures) = unbounded();
            let sink = sink.interested_in(EventName::SrvLookupFailed.into());
            let builder =
                TopologyBuilder::new(block_on(sdam::resolve(&uri, backend)).unwrap()).sink(sink);
            let mode = match spawner {
                Some(spawner) => {
                    let runtime = Runtime::new(backend.clone(), spawner);
                    Mode::Background(builder.start(runtime).unwrap())
                }
                None => Mode::Single(Box::new(builder.scan(backend.clone()).unwrap())),
            };
            let clock = Arc::clone(&backend.clock);
            test(&mut Client { mode, clock, failures });
        };
        let tokio = crate::tokio();
        for runtime in
            [crate::on(&tokio), sdam_runtime_smol::runtime(), sdam_runtime_async_std::runtime()]
        {
            run(&hasty(runtime.backend, resolver.clone()), Some(runtime.spawner));
        }
        run(&hasty(sdam_runtime_blocking::backend(), resolver.blocking()), None);
    }
}

fn ports(description: &TopologyDescription) -> Vec<u16> {
    let servers = description.servers().iter();
    servers.filter_map(|server| server.address.port()).collect()
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
