//! Pools with a fault each: the pool of this crate, used or controlled wrongly.

use std::{
    future::pending,
    mem::{self, ManuallyDrop},
    pin::Pin,
    sync::{Arc, Mutex, Weak},
    task::{Context, Poll},
};

use futures::{channel::oneshot, future::BoxFuture, poll};
use sdam_core::{
    app_error::{AppError, ErrorOutcome},
    error::{ServerError, Stage},
    hello::HelloRequest,
    ids::{Generation, ObjectId, ServerId},
    options::Options,
    pool::PoolClear,
};
use sdam_pool::{Pool, PooledConnection, Pools};
use sdam_transport::{
    async_trait,
    conformance::pools::{Claim, Failure, PoolUser},
    pool::{NewPool, PoolFactory, PoolHandle, PoolHost, Reporter, ServiceConnection},
    spawn::Task,
};

use super::failure;

/// What a pool does wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It is ready when it is created.
    StartsReady,
    /// It is never ready.
    IgnoresReady,
    /// No clear reaches it.
    ForgetsClears,
    /// Its clears interrupt connections in use, and those of one service the whole pool.
    AlwaysInterrupts,
    NeverInterrupts,
    ClearsAllServices,
    /// It asks the topology for the generation while the topology is locked.
    CallsBack,
    IgnoresClose,
    /// Check-outs that the pool refuses wait for ever.
    SwallowsPoolErrors,
    ReportsPoolErrors,
    /// It reports errors of connections again.
    ReportsTwice,
    /// It reports errors of commands while it holds a lock that `ready` takes.
    ReportsUnderLock,
    HidesHandshakes,
    /// It hands out every connection that is checked in, in whatever state.
    KeepsAllConnections,
    /// Connections that are checked in are lost.
    LeaksConnections,
    /// Check-outs that are dropped stay in the wait queue.
    ForgetsDroppedCheckOuts,
    /// It has neither `maxPoolSize` nor `maxConnecting`.
    IgnoresLimits,
    /// Every second check-out is overtaken by the next.
    OvertakesInQueue,
}

/// Uses the pools with this fault.
pub(crate) struct Faulty(pub(crate) Fault);

#[derive(Debug)]
pub(crate) struct Factory {
    pools: Pools,
    fault: Fault,
}

/// A pool with a fault. Clones share it.
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
    check_outs: u32,
    overtaken: Option<oneshot::Sender<()>>,
}

impl PoolFactory for Factory {
    type Pool = FaultyPool;

    fn create(&self, new: NewPool) -> FaultyPool {
        let reporter = new.reporter.clone();
        let host = Arc::new(Silence(reporter.clone()));
        let new = if self.fault == Fault::HidesHandshakes {
            let weak: Weak<Silence> = Arc::downgrade(&host);
            NewPool::of(weak, new.server, new.address, new.generation, new.io)
                .with_spawner(new.spawner)
        } else {
            new
        };
        let inner = self.pools.create(new);
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
        let error = AppError::network(generation, stage, "again");
        self.reporter.handle_error(&error);
    }

    /// Checks out a connection, after the next check-out if the fault is that.
    async fn enter(&self) -> Result<PooledConnection, Failure> {
        let number = {
            let mut state = self.state.lock().unwrap();
            state.check_outs += 1;
            state.check_outs
        };
        if self.fault == Fault::OvertakesInQueue && number % 2 == 0 {
            let (release, released) = oneshot::channel();
            self.state.lock().unwrap().overtaken = Some(release);
            released.await.unwrap();
        }
        let mut check_out = Box::pin(self.inner.check_out());
        let first = poll!(&mut check_out);
        let overtaken = self.state.lock().unwrap().overtaken.take();
        if let Some(release) = overtaken {
            release.send(()).unwrap();
        }
        let result = match first {
            Poll::Ready(result) => result,
            Poll::Pending => check_out.await,
        };
        result.map_err(failure)
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
        let unlimited = Options::parse("mongodb://a/?maxPoolSize=0&maxConnecting=100").unwrap();
        let options = match self.0 {
            Fault::IgnoresLimits => &unlimited,
            _ => options,
        };
        Factory {
            pools: Pools::new(options).unwrap(),
            fault: self.0,
        }
    }

    async fn check_out(&self, pool: &FaultyPool) -> Result<Self::Connection, Failure> {
        let kept = pool.state.lock().unwrap().kept.pop();
        if let Some(kept) = kept {
            return Ok((pool.clone(), kept));
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
            (Err(Failure::Pool(_)), Fault::SwallowsPoolErrors) => pending().await,
            (Err(Failure::Pool(_)), Fault::ReportsPoolErrors) => pool.report(Stage::Operation),
            (Err(Failure::Connection(error)), Fault::ReportsTwice) => {
                pool.report(error.error.stage);
            }
            _ => {}
        }
        Ok((pool.clone(), result?))
    }

    async fn run_command(
        &self,
        (pool, connection): &mut Self::Connection,
        command: &[u8],
    ) -> Result<(), Failure> {
        let result = connection.run_command(command, None).await.map_err(failure);
        if matches!(result, Err(Failure::Connection(_))) {
            match self.0 {
                Fault::ReportsTwice => pool.report(Stage::Operation),
                Fault::ReportsUnderLock => {
                    let _lock = pool.lock.lock().unwrap();
                    pool.report(Stage::Operation);
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

/// A topology to which handshakes are not reported.
#[derive(Debug)]
struct Silence(Reporter);

impl PoolHost for Silence {
    fn handle_error(self: Arc<Self>, _: ServerId, error: &AppError<'_>) -> ErrorOutcome {
        self.0.handle_error(error)
    }

    fn handle_handshake(
        self: Arc<Self>,
        _: ServerId,
        _: Generation,
        _: &[u8],
    ) -> Result<Option<ServiceConnection>, ServerError> {
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
