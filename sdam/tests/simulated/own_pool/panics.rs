//! Transports and authenticators that panic.

use sdam::{Authenticator, pool::Conversation};
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

#[derive(Debug)]
struct FaultyAuthenticator {
    inner: Arc<dyn Authenticator>,
    faults: Arc<Faults>,
}

#[async_trait]
impl Authenticator for FaultyAuthenticator {
    async fn begin(&self, server: &ServerAddress) -> Result<Box<dyn Conversation>, Error> {
        trip(&self.faults.authenticating);
        self.inner.begin(server).await
    }
}

/// Returns a simulation with a user, and a builder and a runtime with these faults.
fn faulty(seed: u64, options: &str, faults: &Arc<Faults>) -> (Sim, TopologyBuilder<Pool>, Runtime) {
    let sim = Sim::new(seed, &replica_set().user(User::new("ada", "pencil")));
    let uri = format!("{}&{options}", uri_of_user(&sim, "ada:pencil@"));
    let inner = sdam_auth::authenticator(&Options::parse(&uri).unwrap()).unwrap().unwrap();
    let faults = || Arc::clone(faults);
    let authenticator = Arc::new(FaultyAuthenticator { inner, faults: faults() });
    let mut runtime = sim.runtime();
    let inner = runtime.backend.transport;
    runtime.backend.transport = Arc::new(Faulty { inner, faults: faults() });
    (sim, builder(&uri).authenticator(authenticator), runtime)
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
    let faults = Arc::new(Faults::default());
    let options = "maxIdleTimeMS=1000&serverMonitoringMode=poll";
    let (sim, builder, runtime) = faulty(1, options, &faults);
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
    let faults = Arc::new(Faults::default());
    let (sim, builder, runtime) = faulty(2, "", &faults);
    let mut topology = builder.scan(runtime.backend).unwrap();
    sim.block_on(async {
        let server = topology.select(&Criteria::write()).await.unwrap();
        check_out_around(server.pool(), &faults.connecting).await;
        check_out_around(server.pool(), &faults.authenticating).await;
        drop(server);
        topology.close();
    });
}
