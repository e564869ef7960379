//! A small connection pool behind `PoolHandle`, and what its check-outs fail with.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::executor::block_on;
use sdam::topology::Topology;
use sdam_core::{
    address::ServerAddress,
    app_error::{AppError, Cause, ErrorOutcome, Phase},
    ids::{Generation, ServerId},
    options::ServerMonitoringMode,
    pool::{PoolClear, PoolError, PoolFactory, PoolHandle},
};
use sdam_select::criteria::Criteria;
use sdam_sim::serve::Builder;

/// A pool whose connections are the generations they were opened under.
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

/// Makes the pool of the only server, and knows it.
#[derive(Clone, Debug, Default)]
struct Only(Arc<Mutex<Option<Arc<Pool>>>>);

impl PoolFactory for Only {
    fn create(&self, _: ServerId, address: &ServerAddress) -> Arc<dyn PoolHandle> {
        let address = address.clone();
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
fn a_paused_pool_refuses_and_the_topology_does_not_hear_of_it() {
    // F-68, F-68b, I-19
    let (server, pools) = (Builder::standalone().start().unwrap(), Only::default());
    let host = tokio::runtime::Runtime::new().unwrap();
    let topology = Topology::builder(server.uri())
        .unwrap()
        // Nobody checks the server but for a selection that waits.
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

    // An operation meets an error, and all that follows has happened on return.
    let report = |error: &str| {
        let cause = Cause::Network {
            timeout: false,
            labels: &[],
            message: error,
        };
        let error = AppError {
            generation,
            service_id: None,
            phase: Phase::AfterHandshake,
            cause,
            max_wire_version: 17,
        };
        topology.handle_error(selected.id(), error)
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
    // The type system keeps it from the topology. Whoever passes its text on as that of a broken
    // connection has no connection, and hence no generation but an old one.
    assert_eq!(report(&error.to_string()), ErrorOutcome::Stale);
    assert_eq!(topology.snapshot().version(), before);
    assert_eq!(pool.check_out(), Err(error), "it is as paused as before");

    block_on(topology.select(&Criteria::write())).unwrap();
    assert!(pool.check_out().unwrap() > generation);
    block_on(topology.close());
    let closed = pool.check_out().unwrap_err();
    assert!(matches!(closed, PoolError::Closed { .. }), "{closed}");
    assert!(!closed.is_retryable());
}
