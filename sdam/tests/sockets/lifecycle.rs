//! Tests the end of a topology, alone or together with its runtime, and the pools and transports of
//! a driver.

use async_trait::async_trait;
use sdam::{ScanTopology, error::ErrorReport, pool::Generation, runtime::Instant};
use sdam_testkit::{RecordingPool, RecordingPools};

use super::*;

#[test]
fn after_the_runtime_has_shut_down_all_servers_are_unknown_and_close_returns() {
    // No task is left when the runtime has ended (I12).
    let (set, host) = (Blueprint::replica_set(3).serve().unwrap(), tokio());
    let builder = Topology::builder(set.uri()).unwrap();
    let topology = builder.start(on(&host)).unwrap();
    // Waits until all servers are known. Otherwise, a reply from a secondary could arrive after the
    // primary has become Unknown, and turn the primary into a possible primary.
    let known = |now: &Snapshot| {
        let mut servers = now.description().servers().iter();
        servers.all(|server| server.server_type.is_available()).then_some(())
    };
    block_on(topology.wait_for(known, PATIENCE)).unwrap();
    host.shutdown_timeout(PATIENCE);
    let snapshot = topology.snapshot();
    let servers = snapshot.description().servers();
    assert!(!servers.is_empty());
    for server in servers {
        assert_eq!(server.server_type, ServerType::Unknown);
        assert_eq!(server.error.as_ref().unwrap().kind(), ErrorKind::Internal);
    }
    drop(snapshot);
    block_on(topology.close());
    assert!(topology.snapshot().is_closed());
}

/// Checks that selections from unreachable servers fail once `end` has shut down `runtime`.
fn check_shut_down(runtime: Runtime, end: impl FnOnce()) {
    let uri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=30000";
    let topology = Topology::builder(uri).unwrap().start(runtime).unwrap();
    let select = |topology: Topology| move || block_on(topology.select(&Criteria::write()));
    let pending = std::thread::spawn(select(topology.clone()));
    while topology.waiters() == 0 {
        std::thread::yield_now();
    }
    end();
    let pending = pending.join().unwrap().unwrap_err();
    let later = select(topology.clone())().unwrap_err();
    for error in [pending, later] {
        assert!(error.is_runtime_shut_down(), "{error}");
    }
    block_on(topology.close());
}

#[test]
fn selections_fail_at_once_when_the_runtime_has_shut_down() {
    let host = tokio();
    check_shut_down(on(&host), || host.shutdown_timeout(PATIENCE));

    let executor = Arc::new(smol::Executor::new());
    let (stop, stopped) = futures::channel::oneshot::channel::<()>();
    let runtime = sdam_runtime_smol::on(&executor);
    let thread = std::thread::spawn(move || {
        let _ = block_on(executor.run(stopped));
    });
    check_shut_down(runtime, || {
        drop(stop);
        thread.join().unwrap();
    });
}

#[test]
fn a_check_out_after_the_runtime_has_ended_fails_and_a_check_in_is_possible() {
    let (set, host) = (Blueprint::replica_set(1).serve().unwrap(), tokio());
    let builder = Topology::builder(set.uri()).unwrap().pools(Pools::new());
    let topology = builder.start(on(&host)).unwrap();
    let (pool, connection) = host.block_on(async {
        let server = topology.select(&Criteria::write()).await.unwrap();
        let pool = server.pool().clone();
        let connection = pool.check_out().await.unwrap();
        (pool, connection)
    });
    drop(host);
    let outcome = block_on(pool.check_out());
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::RuntimeShutDown);
    drop(connection);
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.waiting), (0, 0), "{stats:?}");
}

#[test]
fn a_watch_yields_newer_snapshots_and_ends_when_the_topology_closes() {
    let (set, host) = (Blueprint::replica_set(3).serve().unwrap(), tokio());
    let builder = Topology::builder(set.uri()).unwrap();
    let topology = builder.start(on(&host)).unwrap();
    let versions: Vec<u64> = block_on(async {
        let closing = async {
            topology.select(&Criteria::write()).await.unwrap();
            topology.close().await;
        };
        let versions = topology.watch().map(|snapshot| snapshot.version()).collect();
        futures::future::join(versions, closing).await.0
    });
    assert!(versions.is_sorted() && versions.len() > 1, "{versions:?}");
    assert_eq!(versions.last(), Some(&topology.snapshot().version()));
}

#[test]
fn a_pool_that_outlives_the_topology_keeps_no_task_running() {
    let host = tokio();
    let server = Blueprint::standalone().serve().unwrap();
    let builder = Topology::builder(server.uri()).unwrap().pools(RecordingPools::default());
    let topology = builder.start(on(&host)).unwrap();
    let weak = topology.downgrade();
    let selected = host.block_on(topology.select(&Criteria::write())).unwrap();
    let context = selected.pool().context().clone();
    assert!(weak.upgrade().is_some());
    let mut connection = host.block_on(context.establish(Some(PATIENCE))).unwrap();
    drop((selected, topology));
    assert!(weak.upgrade().is_none(), "pools hold no strong handle");
    let reporter = &context.reporter;
    let error = ErrorReport::new(
        Generation::FIRST,
        Error::network(Stage::Operation, "the connection broke"),
    );
    assert_eq!(reporter.handle_error(&error), ErrorOutcome::UnknownServer);
    assert_eq!(reporter.generation(None), None);
    let ping = rawdoc! { "ping": 1, "$db": "admin" };
    let reply = host.block_on(connection.run_command(ping.as_bytes(), Some(PATIENCE)));
    assert!(reply.is_ok(), "the pool's own connections stay open");
    // The topology has been dropped, so its tasks end soon, which frees the topology's shared
    // state.
    let (ended, end) = std::sync::mpsc::channel();
    let waiting = reporter.clone();
    host.spawn(async move {
        while waiting.is_attached() {
            tokio::task::yield_now().await;
        }
        ended.send(()).unwrap();
    });
    end.recv_timeout(PATIENCE).unwrap();
    connection.close();
}

#[test]
fn a_report_of_a_pool_in_single_threaded_mode_is_applied_at_once() {
    let host = tokio();
    let server = Blueprint::standalone().serve().unwrap();
    let builder = Topology::builder(server.uri()).unwrap();
    let builder = builder.pools(RecordingPools::default());
    let mut topology = builder.scan(on(&host).backend).unwrap();
    let selected = host.block_on(topology.select(&Criteria::write())).unwrap();
    let id = selected.id();
    let connection = host.block_on(selected.pool().context().establish(Some(PATIENCE))).unwrap();
    assert!(topology.connection(id).is_some(), "the scan has opened it");
    let broken = connection.report(Error::network(Stage::Operation, "it broke"));
    assert_eq!(broken.outcome(), Some(ErrorOutcome::Cleared));
    connection.close();
    let known = |topology: &ScanTopology<RecordingPool>| {
        let snapshot = topology.snapshot();
        let server = snapshot.server_by_id(id).unwrap();
        server.description().server_type.is_available()
    };
    assert!(!known(&topology));
    // The next call closes the connection used for checks, just as a cleared pool closes its
    // connections.
    host.block_on(topology.settle());
    assert!(topology.connection(id).is_none());
    let again = host.block_on(topology.select(&Criteria::write())).unwrap();
    assert!(known(&topology));
    assert!(again.generation() > selected.generation());
    assert!(host.block_on(again.pool().context().establish(Some(PATIENCE))).is_ok());
}

/// A driver's transport with its own error type.
#[derive(Debug)]
struct Driver;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("driver error {0}")]
struct DriverError(u8);

#[async_trait]
impl Transport for Driver {
    async fn connect(
        &self,
        _: &ServerAddress,
        _: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        Err(Error::network(Stage::Dns, "no address").with_source(DriverError(7)))
    }
}

#[test]
fn the_error_of_a_drivers_transport_is_kept_by_descriptions_and_events() {
    let host = tokio();
    let mut runtime = on(&host);
    runtime.backend.transport = Arc::new(Driver);
    let (sink, mut events) = unbounded();
    let topology = Topology::builder("mongodb://a.example.com")
        .unwrap()
        .sink(sink.interested_in(EventName::ServerHeartbeatFailed.into()))
        .start(runtime)
        .unwrap();
    let failed = topology
        .wait_for(|snapshot| snapshot.description().servers().first()?.error.clone(), PATIENCE);
    let error = block_on(failed).unwrap();
    assert_eq!(error.source_as(), Some(&DriverError(7)));
    assert_eq!(error.message(), "no address: driver error 7");
    let EventKind::ServerHeartbeatFailed { failure, .. } = block_on(events.next()).unwrap().kind
    else {
        unreachable!("the sink wants nothing else");
    };
    assert_eq!(failure.source_as(), Some(&DriverError(7)));
    block_on(topology.close());
}
