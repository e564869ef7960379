//! Start and shutdown: the state that remains when a handle, a runtime, a sink or a pool ends or
//! fails.

use std::sync::{Arc, Mutex, mpsc};

use async_trait::async_trait;
use futures::{StreamExt, executor::block_on};
use sdam::{
    Backend, Connection, Criteria, Error, ErrorKind, Instant, Runtime, ServerAddress, ServerType,
    Snapshot, Stage, Topology, Transport,
};
use sdam_sim::serve::ReplicaSet;

use crate::{PATIENCE, on, tokio};

#[test]
fn after_the_runtime_has_shut_down_all_servers_are_unknown_and_close_returns() {
    // No task is left when the runtime has ended (I12).
    let (set, host) = (ReplicaSet::start(3).unwrap(), tokio());
    let builder = Topology::builder(set.uri()).unwrap();
    let topology = builder.start(on(&host)).unwrap();
    // A later reply of a secondary could make the primary a possible one again.
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

/// A transport whose DNS look-ups block threads, like tokio's while no name server answers.
#[derive(Debug)]
struct HangingLookUps {
    host: tokio::runtime::Handle,
    begun: mpsc::Sender<()>,
    end: Arc<Mutex<mpsc::Receiver<()>>>,
}

#[async_trait]
impl Transport for HangingLookUps {
    async fn connect(
        &self,
        _: &ServerAddress,
        _: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        let (begun, end) = (self.begun.clone(), Arc::clone(&self.end));
        let look_up = self.host.spawn_blocking(move || {
            begun.send(()).unwrap();
            // Nothing is ever sent, so the call returns when the test ends.
            end.lock().unwrap().recv()
        });
        assert!(look_up.await.unwrap().is_err());
        Err(Error::network(Stage::Dns, "no name server answers"))
    }
}

#[test]
fn closing_does_not_wait_for_hanging_dns_lookups() {
    let host = tokio();
    let (begun, look_ups) = mpsc::channel();
    let (over, end) = mpsc::channel::<()>();
    let transport =
        HangingLookUps { host: host.handle().clone(), begun, end: Arc::new(Mutex::new(end)) };
    let runtime = on(&host);
    let backend = Backend::new(Arc::clone(&runtime.backend.clock), Arc::new(transport), 1);
    let topology = Topology::builder("mongodb://a,b,c/?replicaSet=rs")
        .unwrap()
        .start(Runtime::new(backend, Arc::clone(&runtime.spawner)))
        .unwrap();
    for _ in 0..3 {
        look_ups.recv_timeout(PATIENCE).unwrap();
    }
    // Closing does not wait for the three look-ups, which are still hanging.
    block_on(topology.close());
    host.shutdown_background();
    drop(over);
}

#[test]
fn a_watch_yields_newer_snapshots_and_ends_when_the_topology_closes() {
    let (set, host) = (ReplicaSet::start(3).unwrap(), tokio());
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
