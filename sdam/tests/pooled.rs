//! A connection pool built from `establish` and a reporter, on loopback sockets.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::{RawDocumentBuf, rawdoc};
use futures::StreamExt;
use sdam::{
    Criteria, Error, ErrorOutcome, Established, EventKind, EventName, Generation, NewPool,
    PoolClear, PoolFactory, PoolHandle, ServerAddress, Stage, Topology,
};
use sdam_core::machine::RecordedInput;
use sdam_events::channel;
use sdam_sim::serve::Builder;

/// The time limit of every wait, for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Pools;

/// A pool that keeps idle connections.
#[derive(Debug)]
struct Pool {
    new: NewPool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    generation: Generation,
    idle: Vec<Established>,
}

impl PoolFactory for Pools {
    type Pool = Arc<Pool>;

    fn create(&self, new: NewPool) -> Arc<Pool> {
        let state = State {
            generation: new.generation,
            idle: Vec::new(),
        };
        Arc::new(Pool {
            new,
            state: Mutex::new(state),
        })
    }
}

impl PoolHandle for Pool {
    fn ready(&self) {}

    fn clear(&self, clear: &PoolClear) {
        let mut state = self.state.lock().unwrap();
        if clear.service_id.is_none() {
            state.generation = clear.generation;
        }
    }

    fn close(&self) {}
}

impl Pool {
    async fn check_out(&self) -> Result<Established, Error> {
        loop {
            let idle = self.state.lock().unwrap().idle.pop();
            match idle {
                Some(connection) if connection.is_stale() => connection.close(),
                Some(connection) => return Ok(connection),
                None => return self.open().await,
            }
        }
    }

    async fn open(&self) -> Result<Established, Error> {
        self.new.establish(Some(PATIENCE)).await
    }
}

fn start(uri: &str, host: &tokio::runtime::Runtime) -> Topology<Arc<Pool>> {
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    let builder = Topology::builder(uri).unwrap();
    builder.pools(Pools).start(runtime).unwrap()
}

fn ping() -> RawDocumentBuf {
    rawdoc! { "ping": 1, "$db": "admin" }
}

#[test]
fn an_error_of_establishing_is_reported_with_its_stage_and_labels() {
    let host = tokio::runtime::Runtime::new().unwrap();
    let server = Builder::standalone().start().unwrap();
    let topology = start(server.uri(), &host);
    let selected = host.block_on(topology.select(&Criteria::write())).unwrap();
    let pool = selected.pool();
    let attempt = |address: &ServerAddress| {
        let mut new = pool.new.clone();
        new.address = address.clone();
        host.block_on(new.establish(Some(PATIENCE))).unwrap_err()
    };
    let refused = attempt(&ServerAddress::new("127.0.0.1", 1));
    assert_eq!(refused.stage(), Stage::Connect);
    assert!(refused.has_label("SystemOverloadedError"));
    assert_eq!(refused.outcome(), Some(ErrorOutcome::Irrelevant));
    let unknown = attempt(&ServerAddress::new(&"a".repeat(300), 27017));
    assert_eq!(unknown.stage(), Stage::Dns);
    assert_eq!(unknown.labels().len(), 0);
    assert_eq!(unknown.outcome(), Some(ErrorOutcome::Cleared));
    let described = topology.snapshot();
    let described = described.server_by_id(selected.id()).unwrap();
    let last = described.failures().last.unwrap();
    assert_eq!(last.error.stage(), Stage::Dns);
    host.block_on(topology.close());
    let gone = attempt(selected.address());
    assert_eq!(gone.outcome(), Some(ErrorOutcome::UnknownServer));
}

#[test]
fn a_connect_timeout_of_zero_in_the_string_is_no_limit_for_a_pool() {
    // B-16, B-17, B-30
    let host = tokio::runtime::Runtime::new().unwrap();
    let server = Builder::standalone().start().unwrap();
    let uri = format!("{}/?connectTimeoutMS=0&socketTimeoutMS=0", server.uri());
    let topology = start(&uri, &host);
    host.block_on(async {
        let selected = topology.select(&Criteria::write()).await.unwrap();
        let options = topology.options();
        let opening = selected.pool().new.establish(options.connect_timeout);
        let mut connection = opening.await.unwrap();
        let timeout = options.driver.socket_timeout();
        let reply = connection.run_command(ping().as_bytes(), timeout).await;
        assert!(reply.unwrap().write_concern_error().is_none());
        connection.close();
        topology.close().await;
    });
}

#[test]
fn a_command_reports_an_application_error_only_if_its_reply_has_one() {
    // I-1
    let host = tokio::runtime::Runtime::new().unwrap();
    let server = Builder::standalone().start().unwrap();
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    let (sink, mut events) = channel::unbounded();
    let topology = Topology::builder(server.uri())
        .unwrap()
        .sink(sink.interested_in(EventName::Input.into()))
        .pools(Pools)
        .start(runtime)
        .unwrap();
    let fail_point = rawdoc! {
        "configureFailPoint": "failCommand",
        "mode": { "times": 1 },
        "data": { "failCommands": ["ping"], "errorCode": 10107 },
        "$db": "admin",
    };
    let outcomes = host.block_on(async {
        let selected = topology.select(&Criteria::write()).await.unwrap();
        let mut connection = selected.pool().open().await.unwrap();
        let mut outcomes = Vec::new();
        for command in [ping(), fail_point, ping(), ping()] {
            let reply = connection.run_command(command.as_bytes(), Some(PATIENCE));
            outcomes.push(match reply.await {
                Ok(reply) => reply.write_concern_error().and_then(Error::outcome),
                Err(error) => error.outcome(),
            });
        }
        connection.close();
        topology.close().await;
        outcomes
    });
    let expected = [None, None, Some(ErrorOutcome::MarkedUnknown), None];
    assert_eq!(outcomes, expected);
    let mut reported = 0;
    while let Some(event) = host.block_on(events.next()) {
        if let EventKind::Input(input) = event.kind
            && let RecordedInput::Error { report, .. } = &*input
        {
            assert_eq!(report.error.stage(), Stage::Operation);
            reported += 1;
        }
    }
    assert_eq!(reported, 1, "one command had a state change error");
}

#[test]
fn connections_behind_a_load_balancer_carry_their_service_and_are_counted_until_they_are_closed() {
    let host = tokio::runtime::Runtime::new().unwrap();
    let balancer = Builder::load_balanced(1).start().unwrap();
    let topology = start(balancer.uri(), &host);
    let selected = host.block_on(topology.select(&Criteria::write())).unwrap();
    let pool = selected.pool();
    let first = host.block_on(pool.open()).unwrap();
    let service = first.service_id().unwrap();
    let generation = || topology.generation(selected.id(), Some(service)).unwrap();
    assert_eq!(first.generation(), generation());
    let broken = || Error::network(Stage::Operation, "the connection broke");
    let cleared = first.report(broken());
    assert_eq!(cleared.outcome(), Some(ErrorOutcome::ServiceCleared));
    assert!(first.generation() < generation());
    assert_eq!(first.report(broken()).outcome(), Some(ErrorOutcome::Stale));
    let second = host.block_on(pool.open()).unwrap();
    assert_eq!(second.generation(), generation());
    first.close();
    let last = second.generation();
    second.close();
    // The topology forgets a service with its last connection, and does not reuse its generation.
    let third = host.block_on(pool.open()).unwrap();
    assert!(third.generation() > last);
    third.close();
    host.block_on(topology.close());
}

#[test]
fn a_pool_that_outlives_the_topology_keeps_no_task_running() {
    let host = tokio::runtime::Runtime::new().unwrap();
    let server = Builder::standalone().start().unwrap();
    let topology = start(server.uri(), &host);
    let weak = topology.downgrade();
    let selected = host.block_on(topology.select(&Criteria::write())).unwrap();
    let pool = Arc::clone(selected.pool());
    assert!(weak.upgrade().is_some());
    let mut connection = host.block_on(pool.check_out()).unwrap();
    drop(topology);
    assert!(weak.upgrade().is_none(), "pools hold no strong handle");
    let reporter = &pool.new.reporter;
    let error = sdam::ErrorReport::new(
        Generation::FIRST,
        Error::network(Stage::Operation, "the connection broke"),
    );
    assert_eq!(reporter.handle_error(&error), ErrorOutcome::UnknownServer);
    assert_eq!(reporter.generation(None), None);
    let reply = host.block_on(connection.run_command(ping().as_bytes(), Some(PATIENCE)));
    assert!(reply.is_ok(), "the pool's own connections stay open");
    // The tasks end with the topology, and with them its shared state.
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
    let host = tokio::runtime::Runtime::new().unwrap();
    let server = Builder::standalone().start().unwrap();
    let io = sdam_runtime_tokio::from_handle(host.handle().clone())
        .unwrap()
        .io;
    let builder = Topology::builder(server.uri()).unwrap();
    let mut topology = builder.pools(Pools).scan(io).unwrap();
    let selected = host.block_on(topology.select(&Criteria::write())).unwrap();
    let id = selected.id();
    let connection = host.block_on(selected.pool().check_out()).unwrap();
    assert!(topology.channel(id).is_some(), "the scan has opened it");
    let broken = connection.report(Error::network(Stage::Operation, "it broke"));
    assert_eq!(broken.outcome(), Some(ErrorOutcome::Cleared));
    connection.close();
    let known = |topology: &sdam::ScanTopology<Arc<Pool>>| {
        let snapshot = topology.snapshot();
        let server = snapshot.server_by_id(id).unwrap();
        server.description().server_type.is_available()
    };
    assert!(!known(&topology));
    // The next call closes the connection for checks, as it would close a pooled one.
    host.block_on(topology.settle());
    assert!(topology.channel(id).is_none());
    let again = host.block_on(topology.select(&Criteria::write())).unwrap();
    assert!(known(&topology));
    assert!(again.generation() > selected.generation());
    assert!(host.block_on(again.pool().check_out()).is_ok());
}
