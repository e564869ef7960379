//! The pools of a topology: the factory, and the handle of a server's pool.

use std::{future::Future, sync::Arc};

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
    spawn::Task,
};

use crate::{
    check_out,
    connection::PooledConnection,
    inner::Inner,
    machine::{Machine, PoolStats},
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
/// [`Pools`] creates it, and the topology marks it as ready, clears and closes it.
/// A selection returns it:
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
        check_out::run(&self.0, None)
    }

    /// Checks out a connection for an operation that ends at `deadline`, on the clock of the pool's
    /// runtime. `waitQueueTimeoutMS` is ignored (Client Side Operations Timeout: "Validation and
    /// Overrides").
    ///
    /// If a connection is still being opened for this check-out at the deadline, the next check-out
    /// gets it.
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
        check_out::run(&self.0, Some(deadline))
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
