//! The factory of a topology's pools, the handle of a server's pool, and the check-out of
//! connections: taking an idle one, opening a new one, or waiting.

use std::{
    future::{Future, poll_fn},
    sync::Arc,
    time::Duration,
};

use futures::future::{Either, select};
use sdam_core::{
    address::ServerAddress,
    error::Error,
    ids::ServerId,
    options::{ConfigError, Options},
    pool::{PoolClear, PoolOptions},
    time::Instant,
};
use sdam_transport::{
    pool::{Authenticator, PoolContext, PoolFactory, PoolHandle},
    race,
    spawn::Task,
};

use crate::{
    connection::{Member, PooledConnection},
    inner::Inner,
    machine::{CheckOut, Machine, PoolStats, Step, Ticket},
    worker::Worker,
};

/// Creates a [`Pool`] for each server of a topology, with the options of this topology.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    options: Option<PoolOptions>,
}

impl Pools {
    /// Creates the factory. A topology with a [credential](Options::credential) and without an
    /// [authenticator](PoolContext::authenticator) does not start.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the [pool options](Options::pool) of the topology.
    #[must_use]
    pub fn with_options(mut self, options: PoolOptions) -> Self {
        self.options = Some(options);
        self
    }
}

impl PoolFactory for Pools {
    type Pool = Pool;

    fn create(&self, mut context: PoolContext) -> Pool {
        if let Some(options) = &self.options {
            Arc::make_mut(&mut context.options).pool.clone_from(options);
        }
        Pool::new(context)
    }

    fn check(
        &self,
        options: &Options,
        authenticator: Option<&dyn Authenticator>,
    ) -> Result<(), ConfigError> {
        if let (Some(credential), None) = (&options.credential, authenticator) {
            let user = credential.user.as_deref().unwrap_or_default();
            let reason = "connections are to authenticate, and there is no authenticator";
            let remedy = "call `authenticate` or `authenticator` of the topology's builder";
            return Err(ConfigError::new("user name", user, reason, remedy));
        }
        self.options.as_ref().map_or(Ok(()), PoolOptions::validate)
    }
}

/// The connection pool of one server (CMAP: "Connection Pool").
///
/// [`Pools`] creates the pool, and the topology marks it as ready, clears it and closes it. A
/// selection returns the pool:
///
/// ```no_run
/// # async fn example(pool: &sdam_pool::Pool, ping: &[u8]) -> Result<(), sdam_core::error::Error> {
/// let mut connection = pool.check_out().await?;
/// let reply = connection.run_command(ping, None).await?;
/// // Dropping the connection checks it in.
/// # drop(reply);
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
///
/// - Check-outs are served in the order of their arrival. A connection that is checked in goes to
///   the first waiting check-out, never to a later one.
/// - A check-out of an idle connection and its check-in allocate nothing and take one short lock
///   each. An idle pool never wakes up, except to close connections after `maxIdleTimeMS`.
/// - No connection of an earlier generation is handed out after a clear.
/// - The pool's own task opens connections, so an attempt continues if its check-out is dropped. In
///   single-threaded mode, which has no tasks, the check-out opens its connection itself, and
///   `minPoolSize` has no effect.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

impl Pool {
    pub(crate) fn new(context: PoolContext) -> Self {
        Self(Inner::new(context))
    }

    /// Checks out a connection (CMAP: "Checking Out a Connection"). Dropping the connection checks
    /// it in.
    ///
    /// Waits up to `waitQueueTimeoutMS` for its turn. Once a connection is being opened for this
    /// check-out, `connectTimeoutMS` applies instead.
    ///
    /// # Errors
    ///
    /// An error of the pool itself ([`Error::is_retryable_pool`]) if the pool is paused, was
    /// cleared or is closed, or if no connection became available in time; otherwise the error that
    /// prevented a connection from being established, which the topology has already processed.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time: a connection that was handed over goes to the next
    /// check-out.
    pub fn check_out(&self) -> impl Future<Output = Result<PooledConnection, Error>> + Send {
        check_out(&self.0, None)
    }

    /// Checks out a connection for an operation that ends at `deadline`, on the clock of the pool's
    /// runtime. `waitQueueTimeoutMS` is ignored (Client Side Operations Timeout: "Validation and
    /// Overrides").
    ///
    /// If a connection is still being opened for this check-out at the deadline, the next check-out
    /// gets the connection.
    ///
    /// # Errors
    ///
    /// The errors of [`check_out`](Self::check_out), or a [timeout](Error::is_timeout) at the
    /// deadline.
    ///
    /// # Cancel safety
    ///
    /// The same as for [`check_out`](Self::check_out).
    pub fn check_out_within(
        &self,
        deadline: Instant,
    ) -> impl Future<Output = Result<PooledConnection, Error>> + Send {
        check_out(&self.0, Some(deadline))
    }

    /// Returns the address of the server.
    pub fn address(&self) -> &ServerAddress {
        &self.0.context.address
    }

    /// Returns the id of the server.
    pub fn server(&self) -> ServerId {
        self.0.context.server
    }

    /// Returns the options of the pool.
    pub fn options(&self) -> &PoolOptions {
        &self.0.context.options.pool
    }

    /// Returns the current numbers of connections and check-outs.
    pub fn stats(&self) -> PoolStats {
        self.0.core.with(|machine: &mut Machine<_>| machine.stats())
    }
}

impl PoolHandle for Pool {
    fn prepare(&self) {
        self.0.change(Machine::prepare);
    }

    fn ready(&self) {
        self.0.ready();
    }

    fn clear(&self, clear: &PoolClear) {
        self.0.clear(clear);
    }

    fn close(&self) {
        self.0.close();
    }

    fn background(&self) -> Option<Task> {
        let worker = (!self.0.by_caller).then(|| Worker::new(Arc::downgrade(&self.0)));
        worker.map(|worker| Task::new("sdam-pool", worker.run()))
    }
}

sdam_core::opaque!(Pool, |this| address: this.address(), stats: this.stats());

/// The maximum time for which a check-out waits without polling the pool again, if the pool has no
/// worker. In blocking mode, waiting for the timer blocks the thread, so the thread does not notice
/// a connection from another thread until the wait ends.
const TIMER_SLICE: Duration = Duration::from_millis(1);

/// Checks out a connection before `deadline` or, if there is none, within the time limits of the
/// pool's options.
async fn check_out(
    pool: &Arc<Inner>,
    deadline: Option<Instant>,
) -> Result<PooledConnection, Error> {
    let events = pool.events.check_out_started();
    if pool.by_caller {
        pool.work_by_caller();
    }
    let result = loop {
        let now = pool.clock().now();
        match pool.change(|machine| machine.check_out(now)) {
            Ok(CheckOut::Cold(mut member)) => {
                if member.is_open(now) {
                    member.used = now;
                    break Ok(member);
                }
                pool.change(|machine| machine.check_in(member, None, now));
            }
            Ok(CheckOut::Connection(mut member)) => {
                member.used = now;
                break Ok(member);
            }
            Ok(CheckOut::Wait(ticket)) => {
                let waiting = Waiting { pool, ticket: Some(ticket), deadline };
                break waiting.connection().await;
            }
            Err(error) => break Err(error),
        }
    };
    let result = result.map(|member| PooledConnection::new(Arc::clone(pool), member));
    match &result {
        Ok(connection) => events.succeeded(connection.id()),
        Err(error) => events.failed(error),
    }
    result
}

/// A check-out in the wait queue. It leaves the queue when it is dropped.
struct Waiting<'p> {
    pool: &'p Arc<Inner>,
    /// The place in the queue; `None` once the check-out has its result.
    ticket: Option<Ticket>,
    /// The deadline of the operation; if there is one, it replaces the time limits of the pool's
    /// options.
    deadline: Option<Instant>,
}

impl Waiting<'_> {
    async fn connection(mut self) -> Result<Box<Member>, Error> {
        let Some(ticket) = self.ticket else {
            return Err(Error::pool_shut_down(&self.pool.context.address));
        };
        let pool = self.pool;
        let clock = pool.clock();
        let timeout = pool.context.options.pool.wait_queue_timeout;
        let turn = timeout.map(|timeout| clock.now() + timeout);
        let mut deadline = self.deadline.or(turn);
        loop {
            let slice = pool.by_caller.then(|| clock.now() + TIMER_SLICE);
            let until = deadline.map(|at| slice.map_or(at, |slice| slice.min(at)));
            match race::deadline(clock, until, poll(pool, ticket)).await {
                Ok(Step::Done(result)) => {
                    self.ticket = None;
                    return result;
                }
                Ok(Step::Open(id)) => {
                    let opening = self.open(ticket, id);
                    match race::deadline(clock, self.deadline, opening).await {
                        Ok(Some(result)) => {
                            self.ticket = None;
                            return result;
                        }
                        Ok(None) => {}
                        Err(_) => return self.expire(ticket),
                    }
                }
                Err(_) if until < deadline => {}
                Err(_) if self.deadline.is_some() => return self.expire(ticket),
                Err(_) => {
                    if let Some(result) = pool.change(|machine| machine.time_out(ticket)) {
                        self.ticket = None;
                        return result;
                    }
                    deadline = None;
                }
            }
        }
    }

    /// Fails the check-out because its operation has no time left.
    fn expire(mut self, ticket: Ticket) -> Result<Box<Member>, Error> {
        self.ticket = None;
        self.pool.change(|machine| machine.expire(ticket))
    }

    /// Opens a connection, unless another one is handed over first.
    async fn open(&self, ticket: Ticket, id: u64) -> Option<Result<Box<Member>, Error>> {
        let opening = Box::pin(self.pool.open(id, None));
        match select(opening, Box::pin(poll(self.pool, ticket))).await {
            Either::Right((Step::Done(result), _)) => Some(result),
            Either::Left(_) | Either::Right((Step::Open(_), _)) => None,
        }
    }
}

async fn poll(pool: &Inner, ticket: Ticket) -> Step<Box<Member>> {
    poll_fn(|cx| {
        let (polled, closing) = pool.core.poll(ticket, pool.clock().now(), cx);
        pool.close_all(closing);
        polled
    })
    .await
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let now = self.pool.clock().now();
            self.pool.change(|machine| machine.cancel(ticket, now));
        }
    }
}
