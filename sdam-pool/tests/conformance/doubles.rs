//! Faulty pools: the pool of this crate, deliberately used or controlled in the wrong way.

use std::{
    future::pending,
    mem::{self, ManuallyDrop},
    pin::Pin,
    sync::{Arc, Mutex, Weak},
    task::{Context, Poll},
};

use futures::{channel::oneshot, future::BoxFuture};
use sdam_core::{
    error::{Error, ErrorKind, ErrorOutcome, Stage},
    hello::{HelloReply, HelloRequest},
    ids::{Generation, ObjectId, ServerId},
    options::Options,
    pool::PoolClear,
    report::ErrorReport,
};
use sdam_pool::{Pool, PooledConnection, Pools};
use sdam_testkit::conformance::pools::{Claim, PoolUser};
use sdam_transport::{
    async_trait,
    pool::{PoolContext, PoolFactory, PoolHandle, PoolHost, Reporter, ServiceConnection},
    spawn::Task,
};

/// A mistake that a pool makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The pool is already ready when it is created.
    StartsReady,
    /// The pool becomes ready when it is prepared.
    Hurries,
    /// The pool is never ready.
    IgnoresReady,
    /// Clears do not reach the pool.
    ForgetsClears,
    /// Every clear interrupts connections in use, and even the clear of one service clears the
    /// whole pool.
    AlwaysInterrupts,
    NeverInterrupts,
    /// A clear that interrupts connections in use also interrupts every later command.
    InterruptsNewer,
    /// A check-out never returns if a clear interrupts the opening of its connection.
    ForgetsInterruptedOpenings,
    ClearsAllServices,
    /// The pool asks the topology for the generation while the topology is locked.
    CallsBack,
    IgnoresClose,
    /// Check-outs that the pool refuses never return.
    SwallowsPoolErrors,
    ReportsPoolErrors,
    /// The pool reports connection errors a second time.
    ReportsTwice,
    /// After a broken command, the pool calls the topology while it holds a lock that `ready` also
    /// takes.
    CallsUnderLock,
    HidesHandshakes,
    /// Every connection that is checked in is handed out again, regardless of its state.
    KeepsAllConnections,
    /// A connection is handed out again after it received an invalid reply.
    KeepsBadReplies,
    /// A command that receives an invalid reply succeeds nevertheless.
    AcceptsBadReplies,
    /// Connections that are checked in are never used again.
    LeaksConnections,
    NeverReuses,
    /// Connections that are checked in are not handed to check-outs that wait for `maxConnecting`.
    HoldsReturned,
    /// Each connection that cannot be opened occupies its slot forever.
    LeaksFailedOpenings,
    /// Dropped check-outs stay in the wait queue.
    ForgetsDroppedCheckOuts,
    IgnoresMaxPoolSize,
    IgnoresMaxConnecting,
    IgnoresWaitQueueTimeout,
    /// When the pool is full, the check-out that arrived last is served first.
    ServesLatestFirst,
}

/// Lets the conformance suite use pools with this fault.
pub(crate) struct Faulty(pub(crate) Fault);

#[derive(Debug)]
pub(crate) struct Factory {
    pools: Pools,
    fault: Fault,
}

/// A pool with a fault. Clones share the same pool.
#[derive(Clone, Debug)]
pub(crate) struct FaultyPool {
    inner: Pool,
    fault: Fault,
    reporter: Reporter,
    state: Arc<Mutex<State>>,
    lock: Arc<Mutex<()>>,
    _host: Arc<Silence>,
}

#[derive(Debug, Default)]
struct State {
    kept: Vec<PooledConnection>,
    /// The number of connections that could not be opened.
    failed: u32,
    has_interrupted: bool,
    /// True if the last command received an invalid reply.
    has_bad_reply: bool,
    /// True if a check-out waits in the queue of the inner pool.
    is_queued: bool,
    /// Check-outs that wait outside the inner pool.
    outside: Vec<oneshot::Sender<()>>,
}

impl PoolFactory for Factory {
    type Pool = FaultyPool;

    fn create(&self, context: PoolContext) -> FaultyPool {
        let reporter = context.reporter.clone();
        let host = Arc::new(Silence(reporter.clone()));
        let context = if self.fault == Fault::HidesHandshakes {
            let weak: Weak<Silence> = Arc::downgrade(&host);
            let PoolContext { server, address, generation, backend, options, spawner, .. } =
                context;
            let mut silent = PoolContext::new(server, address, backend);
            silent.reporter = Reporter::new(server, weak);
            (silent.generation, silent.options, silent.spawner) = (generation, options, spawner);
            silent
        } else {
            context
        };
        let inner = self.pools.create(context);
        if self.fault == Fault::StartsReady {
            inner.ready();
        }
        FaultyPool {
            inner,
            fault: self.fault,
            reporter,
            state: Arc::default(),
            lock: Arc::default(),
            _host: host,
        }
    }
}

impl PoolHandle for FaultyPool {
    fn prepare(&self) {
        match self.fault {
            Fault::Hurries => self.inner.ready(),
            _ => self.inner.prepare(),
        }
    }

    fn ready(&self) {
        let _lock = self.lock.lock().unwrap();
        if self.fault != Fault::IgnoresReady {
            self.inner.ready();
        }
    }

    fn clear(&self, clear: &PoolClear) {
        let mut clear = clear.clone();
        match self.fault {
            Fault::ForgetsClears => return,
            Fault::AlwaysInterrupts => clear.interrupt_in_use = true,
            Fault::NeverInterrupts => clear.interrupt_in_use = false,
            Fault::InterruptsNewer => {
                self.state.lock().unwrap().has_interrupted |= clear.interrupt_in_use;
            }
            Fault::ClearsAllServices => clear.service_id = None,
            Fault::CallsBack => drop(self.reporter.generation(None)),
            _ => {}
        }
        self.inner.clear(&clear);
    }

    fn close(&self) {
        if self.fault != Fault::IgnoresClose {
            self.inner.close();
        }
    }

    fn background(&self) -> Option<Task> {
        self.inner.background()
    }
}

impl FaultyPool {
    fn report(&self, stage: Stage) {
        let generation = self.reporter.generation(None).unwrap();
        let error = ErrorReport::new(generation, Error::network(stage, "again"));
        self.reporter.handle_error(&error);
    }

    async fn enter(&self) -> Result<PooledConnection, Error> {
        let stats = self.inner.stats();
        let is_full = stats.in_use as u32 >= self.inner.options().max_pool_size;
        let _turn = if self.fault == Fault::ServesLatestFirst && is_full {
            Some(self.turn().await)
        } else {
            None
        };
        self.inner.check_out().await
    }

    /// Makes check-outs wait outside the inner pool while another check-out is in the queue of the
    /// inner pool, in order to serve them in reverse order.
    async fn turn(&self) -> Turn<'_> {
        let outside = {
            let mut state = self.state.lock().unwrap();
            let (release, released) = oneshot::channel();
            if mem::replace(&mut state.is_queued, true) {
                state.outside.push(release);
                Some(released)
            } else {
                None
            }
        };
        if let Some(released) = outside {
            released.await.unwrap();
        }
        Turn(self)
    }

    /// Withholds a returned connection from check-outs that wait for `maxConnecting`.
    fn hold(&self, connection: PooledConnection) {
        let stats = self.inner.stats();
        let total = stats.idle + stats.in_use + stats.pending;
        if stats.waiting > 0 && (total as u32) < self.inner.options().max_pool_size {
            self.state.lock().unwrap().kept.push(connection);
        }
    }
}

/// The permission to use the inner pool's queue. Dropping the permission passes it to the check-out
/// that was the last to begin waiting outside.
struct Turn<'p>(&'p FaultyPool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap();
        while let Some(next) = state.outside.pop() {
            if next.send(()).is_ok() {
                return;
            }
        }
        state.is_queued = false;
    }
}

#[async_trait]
impl PoolUser for Faulty {
    type Factory = Factory;
    type Connection = (FaultyPool, PooledConnection);

    fn claims(&self) -> &[Claim] {
        Claim::ALL
    }

    fn factory(&self, options: &Options) -> Factory {
        let mut pool = options.pool.clone();
        match self.0 {
            Fault::IgnoresMaxPoolSize => pool.max_pool_size = 0,
            Fault::IgnoresMaxConnecting => pool.max_connecting = 100,
            Fault::IgnoresWaitQueueTimeout => pool.wait_queue_timeout = None,
            _ => {}
        }
        Factory { pools: Pools::new().with_options(pool), fault: self.0 }
    }

    async fn check_out(&self, pool: &FaultyPool) -> Result<Self::Connection, Error> {
        let kept = pool.state.lock().unwrap().kept.pop();
        let hands_out = [Fault::KeepsAllConnections, Fault::KeepsBadReplies].contains(&self.0);
        if let Some(kept) = kept.filter(|_| hands_out) {
            return Ok((pool.clone(), kept));
        }
        let failed = pool.state.lock().unwrap().failed;
        if self.0 == Fault::LeaksFailedOpenings && failed >= pool.inner.options().max_pool_size {
            pending::<()>().await;
        }
        let entering: BoxFuture<'static, _> = {
            let pool = pool.clone();
            Box::pin(async move { pool.enter().await })
        };
        let result = match self.0 {
            Fault::ForgetsDroppedCheckOuts => Forgotten(ManuallyDrop::new(entering)).await,
            _ => entering.await,
        };
        match (&result, self.0) {
            (Err(error), Fault::SwallowsPoolErrors) if !error.is_network() => {
                pending::<()>().await;
            }
            (Err(error), Fault::ForgetsInterruptedOpenings)
                if error.kind() == ErrorKind::Interrupted =>
            {
                pending::<()>().await;
            }
            (Err(error), Fault::ReportsPoolErrors) if !error.is_network() => {
                pool.report(Stage::Operation);
            }
            (Err(error), Fault::ReportsTwice) if error.is_network() => pool.report(error.stage()),
            (Err(error), Fault::LeaksFailedOpenings) if error.is_network() => {
                pool.state.lock().unwrap().failed += 1;
            }
            _ => {}
        }
        Ok((pool.clone(), result?))
    }

    async fn run_command(
        &self,
        (pool, connection): &mut Self::Connection,
        command: &[u8],
    ) -> Result<(), Error> {
        if pool.state.lock().unwrap().has_interrupted {
            return Err(Error::interrupted(pool.inner.address()));
        }
        let result = connection.run_command(command, None).await;
        if let Err(error) = &result
            && error.is_network()
        {
            let is_bad = error.kind() == ErrorKind::Protocol;
            match self.0 {
                Fault::KeepsBadReplies => pool.state.lock().unwrap().has_bad_reply = is_bad,
                Fault::AcceptsBadReplies if is_bad => return Ok(()),
                Fault::ReportsTwice => pool.report(Stage::Operation),
                Fault::CallsUnderLock => {
                    let _lock = pool.lock.lock().unwrap();
                    let _ = pool.reporter.generation(None);
                }
                _ => {}
            }
        }
        result.map(drop)
    }

    fn check_in(&self, pool: &FaultyPool, (_, connection): Self::Connection) {
        match self.0 {
            Fault::LeaksConnections => mem::forget(connection),
            Fault::KeepsAllConnections => pool.state.lock().unwrap().kept.push(connection),
            Fault::KeepsBadReplies => {
                let mut state = pool.state.lock().unwrap();
                if mem::take(&mut state.has_bad_reply) {
                    state.kept.push(connection);
                }
            }
            Fault::NeverReuses => connection.discard(),
            Fault::HoldsReturned => pool.hold(connection),
            _ => drop(connection),
        }
    }
}

/// A future that is forgotten instead of dropped.
struct Forgotten<T>(ManuallyDrop<BoxFuture<'static, T>>);

impl<T> Future for Forgotten<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().poll(cx)
    }
}

/// A topology that ignores handshake reports.
#[derive(Debug)]
struct Silence(Reporter);

impl PoolHost for Silence {
    fn handle_error(self: Arc<Self>, _: ServerId, error: &ErrorReport) -> ErrorOutcome {
        self.0.handle_error(error)
    }

    fn handle_handshake(
        self: Arc<Self>,
        _: ServerId,
        _: Generation,
        _: HelloReply,
    ) -> Result<Option<ServiceConnection>, Error> {
        Ok(None)
    }

    fn handle_service_connection_closed(self: Arc<Self>, connection: ServiceConnection) {
        self.0.handle_service_connection_closed(connection);
    }

    fn generation(&self, _: ServerId, service: Option<ObjectId>) -> Option<Generation> {
        self.0.generation(service)
    }

    fn hello(&self) -> HelloRequest {
        self.0.hello().unwrap()
    }
}
