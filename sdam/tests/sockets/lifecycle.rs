//! Tests what happens to a topology when its runtime ends, and how a topology ends.

use std::sync::Arc;

use futures::{StreamExt, executor::block_on};
use sdam::{Criteria, ErrorKind, Runtime, ServerType, Snapshot, Topology};
use sdam_pool::Pools;
use sdam_sim::Blueprint;

use crate::{PATIENCE, on, tokio};

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
    let pools = Pools::new();
    let builder = Topology::builder(set.uri()).unwrap().pools(pools);
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
