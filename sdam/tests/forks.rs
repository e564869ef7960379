//! Checks that forked children of a process get an error and leave the parent's connections alone.
//!
//! A relay counts the bytes that are sent to the servers. After its first checks, the topology
//! sends no bytes by itself, because its checks are an hour apart.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bson::doc;
use fork::Fork;
use futures::executor::block_on;
use sdam::{
    AddressTable, Criteria, Error, ErrorKind, ErrorReport, Generation, Options, SelectedServer,
    ServerAddress, ServerId, Snapshot, Topology, TopologyBuilder,
};
use sdam_core::options::ServerMonitoringMode;
use sdam_live::{Certificates, Mongod, ServerTls, or_skip};
use sdam_pool::{Pool, PooledConnection, Pools};
use sdam_sim::serve::ReplicaSet;
use sdam_tls::Rustls;

/// Held by each test, so that tests run one at a time. Otherwise a child could inherit a lock that
/// another test holds, and could then never acquire it.
static ALONE: Mutex<()> = Mutex::new(());

/// The exit status of a child in which everything was as expected.
const FINE: i32 = 7;

/// The number of bytes that clients have sent through relays, plus one for each connection.
type Sent = Arc<AtomicU64>;

/// Starts a relay to `server`, and returns its address.
fn relay(server: SocketAddr, sent: &Sent) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::clone(sent);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
            let pair = (client.try_clone().unwrap(), server.try_clone().unwrap());
            sent.fetch_add(1, Ordering::SeqCst);
            let sent = Arc::clone(&sent);
            thread::spawn(move || copy(client, server, &sent));
            thread::spawn(move || copy(pair.1, pair.0, &Sent::default()));
        }
    });
    address
}

/// Copies bytes until either end closes its side, and counts them before it sends them. When a
/// client has a reply, all bytes of its request are therefore counted.
fn copy(mut from: TcpStream, mut to: TcpStream, count: &Sent) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        count.fetch_add(length as u64, Ordering::SeqCst);
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn address(place: SocketAddr) -> ServerAddress {
    ServerAddress::new(&place.ip().to_string(), place.port())
}

/// A parent process: a topology, and a connection that is in use.
struct Parent {
    topology: Topology<Pool>,
    server: SelectedServer<Pool>,
    connection: PooledConnection,
    sent: Sent,
}

impl Parent {
    /// Starts a topology that reaches its servers through relays. Must be called within a runtime.
    async fn start(uri: &str, servers: &[SocketAddr]) -> Self {
        let sent = Sent::default();
        let relays = servers.iter().map(|own| (address(*own), address(relay(*own, &sent))));
        let table: AddressTable = relays.collect();
        let mut options = Options::parse(uri).unwrap();
        options.heartbeat_frequency = Some(Duration::from_secs(3600));
        options.server_monitoring_mode = ServerMonitoringMode::Poll;
        options.early_dial = false;
        let pools = Pools::new(&options).unwrap();
        let topology = start(TopologyBuilder::new(options).translate(table).pools(pools));
        let known = |now: &Snapshot| is_known(now).then_some(());
        topology.wait_for(known, Duration::from_secs(30)).await.unwrap();
        let server = topology.select(&Criteria::write()).await.unwrap();
        let idle = server.pool().check_out().await.unwrap();
        let connection = server.pool().check_out().await.unwrap();
        drop(idle);
        Self { topology, server, connection, sent }
    }

    /// Uses the topology, the pool and the connection in a child, and then drops them.
    async fn child(mut self) {
        let error = self.topology.try_select(&Criteria::write()).unwrap_err();
        assert!(error.is_forked() && error.to_string().contains("start a topology"), "{error}");
        assert!(self.topology.select(&Criteria::write()).await.unwrap_err().is_forked());
        assert_eq!(self.server.pool().check_out().await.unwrap_err().kind(), ErrorKind::Forked);
        let ping = doc! { "ping": 1, "$db": "admin" }.to_vec().unwrap();
        let error = self.connection.run_command(&ping, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forked, "{error}");
        assert!(error.remedy().is_some());
        self.topology.close().await;
        self.connection.discard();
        drop((self.server, self.topology));
    }

    /// Uses the connections in the parent, which must still work, and then closes the topology.
    async fn finish(mut self) {
        let ping = doc! { "ping": 1, "$db": "admin" }.to_vec().unwrap();
        self.connection.run_command(&ping, None).await.unwrap();
        let mut idle = self.server.pool().check_out().await.unwrap();
        idle.run_command(&ping, None).await.unwrap();
        assert_eq!(self.server.pool().stats().opened, 2, "no connection was replaced");
        drop((idle, self.connection, self.server));
        self.topology.close().await;
    }
}

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether all servers are available.
fn is_known(snapshot: &Snapshot) -> bool {
    let mut servers = snapshot.description().servers().iter();
    servers.all(|server| server.server_type.is_available())
}

/// Sets a flag when it is dropped, even if a panic is the reason for the drop.
struct Stop<'f>(&'f AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn start(builder: TopologyBuilder<Pool>) -> Topology<Pool> {
    let mut runtime = sdam_runtime_tokio::current().unwrap();
    runtime.backend = runtime.backend.with_tls(Arc::new(Rustls::ring()));
    builder.start(runtime).unwrap()
}

/// Waits for a child to end, and checks its exit status.
fn expect(child: i32) {
    let began = Instant::now();
    let status = loop {
        if let Some(status) = fork::waitpid_nohang(child).unwrap() {
            break status;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "a child hangs");
        thread::yield_now();
    };
    assert!(fork::WIFEXITED(status), "{status}");
    assert_eq!(fork::WEXITSTATUS(status), FINE);
}

/// Forks `times` times while other threads run the tasks of the parent.
fn fork_often(times: usize, uri: &str, servers: &[SocketAddr]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let parent = runtime.block_on(Parent::start(uri, servers));
    let before = parent.sent.load(Ordering::SeqCst);
    let is_over = AtomicBool::new(false);
    let (pool, topology) = (parent.server.pool().clone(), parent.topology.clone());
    let mut parent = Some(parent);
    // A child inherits the locks that these threads hold, but not the threads themselves, so those
    // locks are never released in the child.
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(block_on(pool.check_out()).unwrap());
            }
        });
        scope.spawn(|| {
            let unknown = ServerId::from_u64(u64::MAX);
            let error = ErrorReport::new(Generation::FIRST, Error::auth("nothing"));
            while !is_over.load(Ordering::Relaxed) {
                topology.handle_error(unknown, &error);
            }
        });
        let _stop = Stop(&is_over);
        for number in 0..times {
            is_over.store(number > times / 10, Ordering::Relaxed);
            match fork::fork().unwrap() {
                Fork::Child => {
                    block_on(parent.take().unwrap().child());
                    std::process::exit(FINE);
                }
                Fork::Parent(child) => expect(child),
            }
        }
    });
    let parent = parent.unwrap();
    assert_eq!(parent.sent.load(Ordering::SeqCst), before, "a child has sent bytes");
    runtime.block_on(parent.finish());
}

fn members(set: &ReplicaSet) -> Vec<SocketAddr> {
    let places = set.places().iter();
    places.map(|(_, place)| place.to_string().parse().unwrap()).collect()
}

#[test]
fn ten_thousand_children_send_nothing_over_the_connections_of_the_parent() {
    let _alone = alone();
    let set = ReplicaSet::start(3).unwrap();
    fork_often(10_000, set.uri(), &members(&set));
}

#[test]
fn children_send_no_end_of_tls() {
    let _alone = alone();
    let certificates = Arc::new(Certificates::create().unwrap());
    let tls = ServerTls::new(&certificates);
    let Some(server) = or_skip(Mongod::start_tls(None, &tls, &[])).unwrap() else {
        return;
    };
    let uri = format!("{}&{}", server.uri(), certificates.options());
    fork_often(100, &uri, &[server.address()]);
}

#[test]
fn a_child_that_goes_on_with_the_runtime_of_the_parent_sends_nothing() {
    let _alone = alone();
    let set = ReplicaSet::start(3).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let parent = Parent::start(set.uri(), &members(&set)).await;
        let before = parent.sent.load(Ordering::SeqCst);
        for _ in 0..5 {
            match fork::fork().unwrap() {
                Fork::Child => {
                    let topology = parent.topology.clone();
                    topology.request_check();
                    let forked = Instant::now();
                    // The requested check would begin half a second after the previous one, so wait
                    // longer.
                    while forked.elapsed() < Duration::from_millis(700) {
                        tokio::task::yield_now().await;
                    }
                    assert!(is_known(&topology.snapshot()), "a check has begun");
                    parent.child().await;
                    std::process::exit(FINE);
                }
                Fork::Parent(child) => expect(child),
            }
        }
        assert_eq!(parent.sent.load(Ordering::SeqCst), before, "a child has sent bytes");
        parent.finish().await;
    });
}

#[test]
fn a_child_that_drops_the_runtime_closes_no_connection_of_the_parent() {
    let _alone = alone();
    let set = ReplicaSet::start(3).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let parent = runtime.block_on(Parent::start(set.uri(), &members(&set)));
    let before = parent.sent.load(Ordering::SeqCst);
    for _ in 0..100 {
        match fork::fork().unwrap() {
            Fork::Child => {
                drop(runtime);
                block_on(parent.child());
                std::process::exit(FINE);
            }
            Fork::Parent(child) => expect(child),
        }
    }
    assert_eq!(parent.sent.load(Ordering::SeqCst), before, "a child has sent bytes");
    runtime.block_on(async {
        parent.topology.request_check();
        let known = |now: &Snapshot| is_known(now).then_some(());
        parent.topology.wait_for(known, Duration::from_secs(30)).await.unwrap();
        parent.finish().await;
    });
}
