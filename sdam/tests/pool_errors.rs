//! A small connection pool behind `PoolHandle`, and its check-out errors.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::{doc, oid};
use futures::executor::block_on;
use sdam::{
    AppError, Criteria, ErrorOutcome, Generation, NewPool, ObjectId, Options, PoolClear, PoolError,
    PoolFactory, PoolHandle, ServerAddress, Stage, Topology, TopologyBuilder,
};
use sdam_core::options::ServerMonitoringMode;
use sdam_events::{record::RecordSink, replay::replay};
use sdam_sim::serve::Builder;

/// A pool whose connections are only their generations.
#[derive(Debug)]
struct Pool {
    address: ServerAddress,
    state: Mutex<(Generation, State)>,
}

#[derive(Clone, Debug)]
enum State {
    Ready,
    Refusing(PoolError),
}

impl Pool {
    fn check_out(&self) -> Result<Generation, PoolError> {
        match &*self.state.lock().unwrap() {
            (generation, State::Ready) => Ok(*generation),
            (_, State::Refusing(error)) => Err(error.clone()),
        }
    }
}

impl PoolHandle for Pool {
    fn ready(&self) {
        self.state.lock().unwrap().1 = State::Ready;
    }

    fn clear(&self, clear: &PoolClear) {
        let error = PoolError::cleared(self.address.clone(), clear);
        *self.state.lock().unwrap() = (clear.generation, State::Refusing(error));
    }

    fn close(&self) {
        let address = self.address.clone();
        self.state.lock().unwrap().1 = State::Refusing(PoolError::Closed { address });
    }
}

/// The factory of the only server's pool, which it keeps.
#[derive(Clone, Debug, Default)]
struct OnlyPool(Arc<Mutex<Option<Arc<Pool>>>>);

impl PoolFactory for OnlyPool {
    type Pool = Arc<Pool>;

    fn create(&self, NewPool { address, .. }: NewPool) -> Arc<Pool> {
        let refusal = PoolError::NotReady {
            address: address.clone(),
        };
        let pool = Arc::new(Pool {
            address,
            state: Mutex::new((Generation::FIRST, State::Refusing(refusal))),
        });
        *self.0.lock().unwrap() = Some(Arc::clone(&pool));
        pool
    }
}

#[test]
fn check_out_errors_of_a_paused_pool_do_not_change_the_topology() {
    // F-68, F-68b, I-19
    let (server, pools) = (Builder::standalone().start().unwrap(), OnlyPool::default());
    let host = tokio::runtime::Runtime::new().unwrap();
    let topology = Topology::builder(server.uri())
        .unwrap()
        // Only a waiting selection causes a check.
        .options(|options| {
            options.heartbeat_frequency = Some(Duration::from_secs(600));
            options.server_monitoring_mode = ServerMonitoringMode::Poll;
        })
        .pools(pools.clone())
        .start(sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap())
        .unwrap();
    let pool = pools.0.lock().unwrap().clone().unwrap();
    let selected = block_on(topology.select(&Criteria::write())).unwrap();
    let generation = pool.check_out().unwrap();

    // Reports an operation's error; all effects have run on return.
    let report = |error: &str| {
        let error = AppError::network(generation, Stage::Operation, error);
        topology.handle_error(selected.id(), &error)
    };
    assert_eq!(report("connection reset"), ErrorOutcome::Cleared);
    let before = topology.snapshot().version();
    let error = pool.check_out().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "Connection pool for {} was cleared because another operation failed with: network \
             error at operation: connection reset",
            selected.address()
        )
    );
    assert!(error.is_retryable());
    // The type system prevents reporting a check-out error. If its text is reported as a connection
    // error, there is no connection, and hence only an old generation.
    assert_eq!(report(&error.to_string()), ErrorOutcome::Stale);
    assert_eq!(topology.snapshot().version(), before);
    assert_eq!(pool.check_out(), Err(error), "the pool is still paused");

    block_on(topology.select(&Criteria::write())).unwrap();
    assert!(pool.check_out().unwrap() > generation);
    block_on(topology.close());
    let closed = pool.check_out().unwrap_err();
    assert!(matches!(closed, PoolError::Closed { .. }), "{closed}");
    assert!(!closed.is_retryable());
}

/// The buffer of a recording.
#[derive(Clone, Default)]
struct Recording(Arc<Mutex<Vec<u8>>>);

impl io::Write for Recording {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn errors_of_a_service_are_stale_after_its_last_connection_is_closed() {
    // F-67
    const SERVICE: [u8; 12] = [1; 12];
    let mut options = Options::new(vec![ServerAddress::new("127.0.0.1", 1)]);
    options.load_balanced = true;
    let buffer = Recording::default();
    let recording = RecordSink::new(buffer.clone(), &options).unwrap();
    let builder = TopologyBuilder::new(options);
    let host = tokio::runtime::Runtime::new().unwrap();
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    let topology = builder.sink(recording).start(runtime).unwrap();
    let server = topology.snapshot().description().servers()[0].id;
    let reply = doc! {
        "ok": 1, "msg": "isdbgrid", "maxWireVersion": 17, "serviceId": oid::ObjectId::from_bytes(SERVICE),
    };
    let reply = reply.to_vec().unwrap();
    let open = || {
        let connection = topology.handle_handshake(server, Generation::FIRST, &reply);
        connection.unwrap().unwrap()
    };
    let close = |connection| topology.handle_service_connection_closed(connection);
    let fail = |generation| {
        let error = AppError::network(generation, Stage::Operation, "connection reset")
            .with_service(ObjectId::from_bytes(SERVICE));
        topology.handle_error(server, &error)
    };
    for _ in 0..3 {
        let (first, second) = (open(), open());
        let generation = first.generation();
        assert_eq!(second.generation(), generation);
        close(first);
        assert_eq!(
            fail(generation),
            ErrorOutcome::ServiceCleared,
            "one connection is left"
        );
        close(second);
        let third = open();
        assert!(third.generation() > generation);
        assert_eq!(
            fail(generation),
            ErrorOutcome::Stale,
            "no connection is left"
        );
        close(third);
    }
    block_on(topology.close());
    assert_eq!(
        topology.handle_handshake(server, Generation::FIRST, &reply),
        Ok(None)
    );
    let recording = buffer.0.lock().unwrap().clone();
    let outcome = replay(&*recording).unwrap();
    assert_eq!(outcome.divergence, None);
    assert_eq!(
        outcome.inputs,
        2 + 3 * 8,
        "{}",
        String::from_utf8_lossy(&recording)
    );
}
