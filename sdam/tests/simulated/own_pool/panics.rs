//! Transports and authenticators that panic.

use sdam::{
    Authenticator,
    pool::{AuthStep, Conversation},
};
use sdam_core::{hello::HelloAuth, time::Instant};
use sdam_transport::wire::WireMessage;

use super::*;

/// A flag for each operation that can panic. A flag that is set makes the next such operation
/// panic.
#[derive(Debug, Default)]
struct Faults {
    connecting: AtomicBool,
    authenticating: AtomicBool,
    closing: AtomicBool,
}

/// Panics if the flag is set, and unsets it.
fn trip(flag: &AtomicBool) {
    assert!(!flag.swap(false, Ordering::Relaxed), "broken on purpose");
}

#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn Transport>,
    faults: Arc<Faults>,
}

#[async_trait]
impl Transport for Faulty {
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        trip(&self.faults.connecting);
        let inner = self.inner.connect(target, deadline).await?;
        let faults = Arc::clone(&self.faults);
        Ok(Box::new(FaultyConnection { inner, faults }))
    }
}

#[derive(Debug)]
struct FaultyConnection {
    inner: Box<dyn Connection>,
    faults: Arc<Faults>,
}

#[async_trait]
impl Connection for FaultyConnection {
    async fn send(&mut self, message: WireMessage) -> Result<(), Error> {
        self.inner.send(message).await
    }

    async fn recv(&mut self) -> Result<WireMessage, Error> {
        self.inner.recv().await
    }
}

impl Drop for FaultyConnection {
    fn drop(&mut self) {
        trip(&self.faults.closing);
    }
}

/// An authenticator that sends nothing to the server.
#[derive(Debug)]
struct Nobody(Arc<Faults>);

#[async_trait]
impl Authenticator for Nobody {
    async fn begin(&self, _: &ServerAddress) -> Result<Box<dyn Conversation>, Error> {
        Ok(Box::new(Self(Arc::clone(&self.0))))
    }
}

#[async_trait]
impl Conversation for Nobody {
    fn hello_auth(&self) -> HelloAuth {
        HelloAuth::default()
    }

    async fn start(&mut self, _: &[u8]) -> Result<AuthStep, Error> {
        trip(&self.0.authenticating);
        Ok(AuthStep::Done)
    }

    async fn next(&mut self, _: &[u8]) -> Result<AuthStep, Error> {
        Ok(AuthStep::Done)
    }
}

/// Returns a builder and a runtime with these faults.
fn faulty(sim: &Sim, uri: &str, faults: &Arc<Faults>) -> (TopologyBuilder<Pool>, Runtime) {
    let authenticator = Arc::new(Nobody(Arc::clone(faults)));
    let builder = Topology::builder(uri).unwrap().authenticator(authenticator);
    let mut runtime = sim.runtime();
    runtime.backend.transport = Arc::new(Faulty {
        inner: Arc::clone(&runtime.backend.transport),
        faults: Arc::clone(faults),
    });
    (builder.pools(Pools::new()), runtime)
}

/// Makes one attempt to open a connection panic, and checks that exactly one of five check-outs
/// fails.
async fn check_out_around(pool: &Pool, flag: &AtomicBool) {
    flag.store(true, Ordering::Relaxed);
    let outcomes = join_all((0..5).map(|_| pool.check_out())).await;
    assert!(!flag.load(Ordering::Relaxed), "nothing has panicked");
    let errors: Vec<_> = outcomes.iter().filter_map(|one| one.as_ref().err()).collect();
    let [error] = errors.as_slice() else {
        unreachable!("not one attempt has failed: {errors:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Internal);
    let text = "opening the connection panicked: broken on purpose";
    assert!(error.to_string().contains(text), "{error}");
    for mut connection in outcomes.into_iter().flatten() {
        run_ping(&mut connection).await.unwrap();
        // The connection is discarded so that the next round opens connections again.
        connection.discard();
    }
    assert_eq!(pool.stats().pending, 0);
}

#[test]
fn a_panic_costs_one_attempt_or_one_connection_and_not_the_pool() {
    // A panic fails one attempt or closes one connection, not the pool (F-81b, P-34).
    let sim = simulation(1);
    let faults = Arc::new(Faults::default());
    let uri = format!("{}&maxIdleTimeMS=1000&serverMonitoringMode=poll", sim.uri());
    let (builder, runtime) = faulty(&sim, &uri, &faults);
    let topology = builder.start(runtime).unwrap();
    sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        // Meanwhile, the monitors open their connections.
        pass(&sim, Duration::from_secs(2)).await;
        check_out_around(&pool, &faults.connecting).await;
        check_out_around(&pool, &faults.authenticating).await;
        let opened = join_all((0..3).map(|_| pool.check_out())).await;
        drop(opened);
        // The pool's task closes the three connections; closing the first one panics.
        faults.closing.store(true, Ordering::Relaxed);
        pass(&sim, Duration::from_secs(5)).await;
        assert!(!faults.closing.load(Ordering::Relaxed), "nothing was closed");
        assert_eq!(pool.stats().idle, 0);
        ping_primary(&topology).await.unwrap();
        topology.close().await;
    });
    assert_eq!((sim.tasks(), sim.connections()), (0, 0));
}

#[test]
fn a_panic_without_a_worker_is_the_error_of_its_check_out() {
    // Without a worker, a panic while connecting fails the check-out that connects (F-81b).
    let sim = simulation(2);
    let faults = Arc::new(Faults::default());
    let (builder, runtime) = faulty(&sim, &sim.uri(), &faults);
    let mut topology = builder.scan(runtime.backend).unwrap();
    sim.block_on(async {
        let server = topology.select(&Criteria::write()).await.unwrap();
        check_out_around(server.pool(), &faults.connecting).await;
        check_out_around(server.pool(), &faults.authenticating).await;
        drop(server);
        topology.close();
    });
}
