//! Tests the connections that a driver's own pool opens with `PoolContext::establish`, and the
//! errors that this pool reports.

use bson::rawdoc;
use sdam::{
    Criteria, Error, ScanTopology, Topology,
    error::{ErrorOutcome, ErrorReport, Stage},
    pool::Generation,
};
use sdam_sim::Blueprint;
use sdam_testkit::{RecordingPool, RecordingPools};

use crate::{PATIENCE, on, tokio};

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
