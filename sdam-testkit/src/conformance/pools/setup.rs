//! A pool under test with its simulated environment and the executor of its check.

use std::{
    future::Future,
    mem,
    sync::{Arc, Mutex, Weak},
    thread,
    time::{Duration, Instant},
};

use futures::{
    FutureExt as _,
    executor::LocalPool,
    future::{AbortHandle, abortable},
    task::LocalSpawnExt as _,
};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    hello::ping,
    ids::{ObjectId, ServerId},
    options::Options,
    pool::PoolClear,
};
use sdam_transport::{
    pool::{PoolContext, PoolFactory as _, PoolHandle as _, PoolHost, Reporter},
    runtime::Backend,
    spawn::{Spawner, Task},
};

use super::{
    Claim, Outcome, PoolOf, PoolUser, Run, ensure,
    host::{Host, TopologyLock, lock},
    server::{Gate, Server},
};
use crate::ManualClock;

/// Creates the pools of one check.
pub(super) struct Lab<U> {
    user: Arc<U>,
    run: Run,
    patience: Duration,
}

impl<U: PoolUser> Lab<U> {
    /// Creates the environment of a check. A step that takes longer than `patience` counts as
    /// hanging.
    pub(super) fn new(user: Arc<U>, run: Run, patience: Duration) -> Self {
        Self { user, run, patience }
    }

    /// Returns whether the pool claims to work behind a load balancer.
    pub(super) fn is_balanced(&self) -> bool {
        self.user.claims().contains(&Claim::LoadBalanced)
    }

    /// Creates a paused pool that is configured by the connection string options `options`.
    pub(super) fn paused(&self, options: &str) -> Result<Setup<U>, String> {
        self.run.step("creating a pool");
        let text = format!("mongodb://a/?{options}");
        let options = Options::parse(&text).map_err(|error| error.to_string())?;
        let lock = Arc::new(TopologyLock::default());
        let host = Arc::new(Host::new(Arc::clone(&lock), options.load_balanced));
        let server = Server::new(Arc::clone(&lock));
        let executor = Executor::default();
        let (clock, transport) = (ManualClock::default(), server.clone());
        let own_clock = clock.clone();
        let weak = Arc::downgrade(&host);
        let backend = Backend::new(Arc::new(clock), Arc::new(transport), 1);
        let (id, address) = (ServerId::from_u64(1), ServerAddress::new("a", 27017));
        let mut context = PoolContext::new(id, address, backend);
        context.reporter = Reporter::new(id, weak as Weak<dyn PoolHost>);
        context.spawner = Some(executor.spawner());
        let factory = self.user.factory(&options);
        factory.check(&options, None).map_err(|error| error.to_string())?;
        context.options = Arc::new(options);
        let (pool, background) = lock.hold(|| {
            let pool = factory.create(context);
            let background = pool.background();
            (pool, background)
        });
        let mut setup = Setup {
            user: Arc::clone(&self.user),
            pool: Arc::new(pool),
            background: None,
            clock: own_clock,
            executor,
            host,
            lock,
            server,
            run: self.run.clone(),
            patience: self.patience,
        };
        setup.background = background.map(|task| setup.executor.start(task));
        setup.settle();
        Ok(setup)
    }

    /// Creates a pool that is configured by the connection string options `options`, and makes it
    /// ready.
    pub(super) fn ready(&self, options: &str) -> Result<Setup<U>, String> {
        let mut setup = self.paused(options)?;
        setup.ready();
        Ok(setup)
    }

    /// Creates a pool that was cleared before it became ready, so its generation is not the first.
    pub(super) fn cleared(&self) -> Result<Setup<U>, String> {
        let mut setup = self.paused("")?;
        setup.clear();
        setup.ready();
        Ok(setup)
    }
}

/// A pool, its topology, its server and the executor of its tasks.
pub(super) struct Setup<U: PoolUser> {
    user: Arc<U>,
    pool: Arc<PoolOf<U>>,
    background: Option<Attempt<()>>,
    clock: ManualClock,
    executor: Executor,
    lock: Arc<TopologyLock>,
    run: Run,
    patience: Duration,
    pub(super) host: Arc<Host>,
    pub(super) server: Server,
}

/// The result of a check-out.
pub(super) type CheckedOut<U> = Result<<U as PoolUser>::Connection, Error>;

/// A connection, and the result of a command that ran on it.
pub(super) type Ran<U> = (<U as PoolUser>::Connection, Result<(), Error>);

impl<U: PoolUser> Setup<U> {
    /// Starts a step that failure messages describe as `doing`.
    pub(super) fn step(&self, doing: &'static str) {
        self.run.step(doing);
    }

    /// Prepares the pool as a topology does, and runs its tasks.
    pub(super) fn prepare(&mut self) {
        self.lock.hold(|| self.pool.prepare());
        self.settle();
    }

    /// Makes the pool ready as a topology does, and runs its tasks.
    pub(super) fn ready(&mut self) {
        self.lock.hold(|| self.pool.ready());
        self.settle();
    }

    /// Clears the pool without running its tasks.
    pub(super) fn clear_at_once(&self, interrupt_in_use: bool, service: Option<ObjectId>) {
        let cause = Error::new(ErrorKind::Network, Stage::Operation, "the server failed");
        let mut clear = PoolClear::new(self.host.raise(service), cause);
        clear.interrupt_in_use = interrupt_in_use;
        clear.service_id = service;
        self.lock.hold(|| self.pool.clear(&clear));
    }

    pub(super) fn clear(&mut self) {
        self.clear_at_once(false, None);
        self.settle();
    }

    pub(super) fn close(&mut self) {
        self.lock.hold(|| self.pool.close());
        self.settle();
    }

    /// Makes the pool ready without running its tasks.
    pub(super) fn ready_at_once(&self) {
        self.lock.hold(|| self.pool.ready());
    }

    /// Begins a check-out.
    pub(super) fn check_out(&mut self) -> Attempt<CheckedOut<U>> {
        let (user, pool) = (Arc::clone(&self.user), Arc::clone(&self.pool));
        let attempt = self.executor.start(async move { user.check_out(&pool).await });
        self.settle();
        attempt
    }

    /// Checks out a connection.
    pub(super) fn open(&mut self) -> Result<U::Connection, String> {
        self.step("checking out a connection");
        let attempt = self.check_out();
        self.connection(&attempt)
    }

    /// Waits for the connection of a check-out.
    pub(super) fn connection(
        &mut self,
        attempt: &Attempt<CheckedOut<U>>,
    ) -> Result<U::Connection, String> {
        let outcome = self.wait_for(attempt)?;
        outcome.map_err(|failure| format!("the check-out fails: {failure:#}"))
    }

    /// Checks out a connection and checks it in.
    pub(super) fn use_one(&mut self) -> Outcome {
        let connection = self.open()?;
        self.check_in(connection);
        Ok(())
    }

    /// Waits until each check-out has a connection, and checks that connection in.
    pub(super) fn serve(
        &mut self,
        attempts: impl IntoIterator<Item = Attempt<CheckedOut<U>>>,
    ) -> Outcome {
        for attempt in attempts {
            let connection = self.connection(&attempt)?;
            self.check_in(connection);
        }
        Ok(())
    }

    /// Waits for a check-out to fail with a retryable error from the pool.
    pub(super) fn refusal(&mut self, attempt: &Attempt<CheckedOut<U>>) -> Outcome {
        expect_retryable(&self.failure(attempt)?)
    }

    /// Waits for a check-out to fail with an error of the given kind.
    pub(super) fn failure_of(
        &mut self,
        kind: ErrorKind,
        attempt: &Attempt<CheckedOut<U>>,
    ) -> Outcome {
        let failure = self.failure(attempt)?;
        ensure!(failure.kind() == kind, "the check-out does not fail as {kind:?}: {failure:#}");
        Ok(())
    }

    /// Waits for the failure of a check-out.
    pub(super) fn failure(&mut self, attempt: &Attempt<CheckedOut<U>>) -> Result<Error, String> {
        match self.wait_for(attempt)? {
            Ok(connection) => {
                self.check_in(connection);
                Err("the check-out succeeds".into())
            }
            Err(failure) => Ok(failure),
        }
    }

    /// Begins a command.
    pub(super) fn command(&mut self, mut connection: U::Connection) -> Attempt<Ran<U>> {
        let user = Arc::clone(&self.user);
        let attempt = self.executor.start(async move {
            let outcome = user.run_command(&mut connection, &ping(None)).await;
            (connection, outcome)
        });
        self.settle();
        attempt
    }

    /// Runs a command, which must succeed, and returns the number of the socket on which it
    /// arrived.
    pub(super) fn socket_of(
        &mut self,
        connection: U::Connection,
    ) -> Result<(U::Connection, usize), String> {
        let attempt = self.command(connection);
        let (connection, outcome) = self.wait_for(&attempt)?;
        outcome.map_err(|failure| format!("the command fails: {failure:#}"))?;
        let socket = self.server.state().arrivals.last().copied();
        Ok((connection, socket.ok_or("no command has reached the server")?))
    }

    /// Checks out a connection and runs a command on it. Returns the connection and its socket.
    pub(super) fn open_socket(&mut self) -> Result<(U::Connection, usize), String> {
        let connection = self.open()?;
        self.socket_of(connection)
    }

    /// Checks out a connection, runs a command on it and checks it in. Returns its socket.
    pub(super) fn use_socket(&mut self) -> Result<usize, String> {
        let (connection, socket) = self.open_socket()?;
        self.check_in(connection);
        Ok(socket)
    }

    pub(super) fn check_in(&mut self, connection: U::Connection) {
        self.check_in_at_once(connection);
        self.settle();
    }

    /// Checks in a connection without running tasks.
    pub(super) fn check_in_at_once(&self, connection: U::Connection) {
        self.user.check_in(&self.pool, connection);
    }

    /// Advances the clock and runs all tasks.
    pub(super) fn advance(&mut self, time: Duration) {
        self.clock.advance(time);
        self.settle();
    }

    /// Runs all tasks until none can make progress.
    pub(super) fn settle(&mut self) {
        self.executor.settle();
    }

    /// Runs all tasks and waits for other threads until the condition holds.
    pub(super) fn wait_until(&mut self, condition: impl Fn(&Self) -> bool) -> Outcome {
        let end = Instant::now() + self.patience;
        loop {
            self.settle();
            if condition(self) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "nothing has happened for {:?}", self.patience);
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Starts a step that waits until the condition holds.
    pub(super) fn until(
        &mut self,
        doing: &'static str,
        condition: impl Fn(&Self) -> bool,
    ) -> Outcome {
        self.step(doing);
        self.wait_until(condition)
    }

    /// Starts a step that waits until `socket` is closed.
    pub(super) fn wait_for_close(&mut self, doing: &'static str, socket: usize) -> Outcome {
        self.until(doing, |setup| !setup.server.is_open(socket))
    }

    /// Waits for the result of an attempt.
    pub(super) fn wait_for<T>(&mut self, attempt: &Attempt<T>) -> Result<T, String> {
        self.wait_until(|_| attempt.is_ready())?;
        attempt.take().ok_or_else(|| "its result is gone".into())
    }

    /// Waits until the pool's own task has ended.
    pub(super) fn wait_for_background(&mut self) -> Outcome {
        match self.background.take() {
            Some(task) => self.wait_for(&task),
            None => Ok(()),
        }
    }

    /// Drops the future of a check-out. If it has already returned a connection, checks the
    /// connection in.
    pub(super) fn cancel(&mut self, attempt: &Attempt<CheckedOut<U>>) {
        attempt.abort();
        self.settle();
        if let Some(Ok(connection)) = attempt.take() {
            self.check_in(connection);
        }
    }

    /// Drops the futures of many check-outs, one after the other.
    pub(super) fn drop_check_outs(&mut self, doing: &'static str) {
        self.step(doing);
        for _ in 0..100 {
            let attempt = self.check_out();
            self.cancel(&attempt);
        }
    }

    /// Waits for the result of a command, and checks its connection in.
    pub(super) fn end_command(
        &mut self,
        attempt: &Attempt<Ran<U>>,
    ) -> Result<Result<(), Error>, String> {
        let (connection, outcome) = self.wait_for(attempt)?;
        self.check_in(connection);
        Ok(outcome)
    }

    /// Runs a command on a connection that breaks, and checks the connection in. Returns the
    /// command's result.
    pub(super) fn break_off(
        &mut self,
        connection: U::Connection,
        doing: &'static str,
    ) -> Result<Result<(), Error>, String> {
        self.server.commands(Gate::Broken);
        self.step(doing);
        let command = self.command(connection);
        let outcome = self.end_command(&command);
        self.server.commands(Gate::Open);
        outcome
    }

    /// Checks that the reported errors have the given stages and the current generation.
    pub(super) fn expect_errors(&self, stages: &[Stage]) -> Outcome {
        let generation = self.host.generation_now();
        let expected: Vec<_> = stages.iter().map(|stage| (*stage, generation)).collect();
        let errors = self.host.errors();
        ensure!(errors == expected, "the reports are {errors:?} instead of {expected:?}");
        Ok(())
    }

    /// Sends a command and drops its future before the reply arrives.
    pub(super) fn abandon_command(&self, mut connection: U::Connection) -> U::Connection {
        let command = ping(None);
        let running = self.user.run_command(&mut connection, &command);
        drop(running.now_or_never());
        connection
    }

    /// Makes the topology call the pool within each report.
    pub(super) fn react(&self) {
        let pool = Arc::clone(&self.pool);
        self.host.react(move || pool.ready());
    }

    /// Fails if the pool performed a forbidden action within a call from the topology.
    pub(super) fn ensure_lock_respected(&self, call: &str) -> Outcome {
        let violations = self.lock.take_violations();
        ensure!(violations.is_empty(), "{} within {call}", violations.join(", "));
        Ok(())
    }
}

/// The usual description of a step in which the connection breaks during a command.
pub(super) const BREAKING: &str = "running a command on a connection that breaks";

/// Checks that a check-out or a command has failed with a retryable error from the pool.
pub(super) fn expect_retryable(failure: &Error) -> Outcome {
    ensure!(failure.is_retryable_pool(), "it fails without a retryable pool error: {failure:#}");
    Ok(())
}

/// Runs the tasks of one check on its thread.
#[derive(Debug, Default)]
pub(super) struct Executor {
    running: LocalPool,
    new: NewTasks,
}

/// Tasks that have not started. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct NewTasks(Arc<Mutex<Vec<Task>>>);

/// A future that the executor runs, and its result once it is ready.
pub(super) struct Attempt<T> {
    result: Arc<Mutex<Option<T>>>,
    abort: AbortHandle,
}

impl Executor {
    pub(super) fn spawner(&self) -> Arc<dyn Spawner> {
        Arc::new(self.new.clone())
    }

    /// Starts a future.
    pub(super) fn start<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Attempt<T> {
        let result = Arc::new(Mutex::new(None));
        let own = Arc::clone(&result);
        let (future, abort) = abortable(future);
        self.new.spawn(Task::new("conformance", async move {
            if let Ok(value) = future.await {
                *lock(&own) = Some(value);
            }
        }));
        Attempt { result, abort }
    }

    /// Runs all tasks until none can make progress.
    pub(super) fn settle(&mut self) {
        loop {
            self.running.run_until_stalled();
            let new = mem::take(&mut *lock(&self.new.0));
            if new.is_empty() {
                return;
            }
            for task in new {
                // The executor exists as long as `self`, so spawning cannot fail.
                let _ = self.running.spawner().spawn_local(task);
            }
        }
    }
}

impl Spawner for NewTasks {
    fn spawn(&self, task: Task) {
        lock(&self.0).push(task);
    }
}

impl<T> Attempt<T> {
    /// Returns whether the future has finished.
    pub(super) fn is_ready(&self) -> bool {
        lock(&self.result).is_some()
    }

    /// Takes the result, if there is one.
    pub(super) fn take(&self) -> Option<T> {
        lock(&self.result).take()
    }

    /// Makes the executor drop the future when it runs next.
    pub(super) fn abort(&self) {
        self.abort.abort();
    }
}
