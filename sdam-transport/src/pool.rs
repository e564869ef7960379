//! The interface between a topology and its connection pools: commands to pools and reports from
//! them (CMAP).

mod auth;
mod connection;
mod establish;
mod reporter;

use std::{any::Any, fmt::Debug, sync::Arc};

#[cfg(doc)]
use sdam_core::{error::Error, ids::Generation};
use sdam_core::{
    options::{ConfigError, Options},
    pool::PoolClear,
};

pub use self::{
    auth::{AuthStep, Authenticator, Conversation, authenticate, reauthenticate},
    connection::{CommandReply, Established},
    reporter::{PoolContext, PoolHost, Reporter, ServiceConnection},
};
use crate::spawn::Task;

/// Creates the pool of each server that joins the topology.
///
/// `Arc<F>`, `Box<F>` and `&'static F` are factories if `F` is one.
///
/// # Contract
///
/// `create` is called while the topology is locked.
/// It must return quickly, must not block, and must not call back into the topology.
/// The pool starts paused with [`PoolContext::generation`] and opens no connection before
/// [`PoolHandle::ready`], except for one socket after [`PoolHandle::prepare`].
///
/// A panic in `create` is re-raised in the calling thread after the remaining effects have run. The
/// server is then monitored but never selected until a later `create` succeeds; `create` is called
/// again whenever the pool would become ready.
pub trait PoolFactory: Send + Sync + Debug + 'static {
    /// The pool of one server. A selection returns a reference to it.
    ///
    /// `Arc<T>` and `Box<T>` are pools if `T` is one, including `Arc<dyn PoolHandle>`.
    type Pool: PoolHandle;

    /// Creates the paused pool of a server, which follows [`PoolContext::options`].
    fn create(&self, context: PoolContext) -> Self::Pool;

    /// Checks the options and the authenticator of a topology that is being started. By default,
    /// all are accepted.
    ///
    /// # Errors
    ///
    /// If the pools could not follow the options. The topology then does not start.
    fn check(
        &self,
        options: &Options,
        authenticator: Option<&dyn Authenticator>,
    ) -> Result<(), ConfigError> {
        let _ = (options, authenticator);
        Ok(())
    }
}

/// The part of a connection pool that the topology controls.
///
/// # Contract
///
/// All methods are called while the topology is locked, so that no selection sees a server whose
/// pool does not match the server's description. They must take constant time, must not block, and
/// must not call back into the topology; sockets are closed later, by the pool's own task. A pool
/// must not hold any lock that these methods take while it reports an error, a handshake or the
/// end of a connection.
///
/// Rules of connections and check-outs:
///
/// - It reports each error of a connection once, with the stage and the generation. Errors of the
///   pool itself, such as a time-out in the wait queue, are never reported.
/// - It reports the reply to each hello before the connection is used.
/// - A connection with an unfinished command is not used again.
/// - A message that cannot be the reply fails the command, and its connection is closed, because
///   later messages may answer other requests.
/// - A clear leaves connections in use alone unless it
///   [interrupts](PoolClear::interrupt_in_use) them; they are closed when they are checked in. A
///   clear of one service leaves connections to the others alone and fails no check-out.
/// - A check-out may be dropped at any time, and leaves no connection behind.
///
/// The suite `conformance::pools` of `sdam-testkit` checks all this.
///
/// # Behind a load balancer
///
/// The topology counts the connections to each service and assigns their generations (CMAP:
/// "Load Balancer Mode"):
///
/// - The pool reports the reply to each hello before it authenticates, and stamps the connection
///   with the service and the generation that the report returns. It never chooses a generation
///   itself.
/// - It reports the end of each reported connection once, after any error of that connection. The
///   topology forgets a service with its last connection, and the pool may do the same.
/// - A service that comes back starts with a higher generation than every forgotten one. An error
///   that is reported after the end of its connection is therefore stale, and cannot clear
///   connections that were opened later.
/// - A clear may happen between the report of a handshake and the registration of the connection in
///   the pool. A pool recognizes such a connection as stale if it keeps the generation of each
///   service's last clear until no handshake is in progress. Otherwise it uses the connection once
///   more.
///
/// If a pool reports no handshakes, its services start with [`Generation::FIRST`], and cleared
/// services are kept for as long as the topology exists.
///
/// The pool itself manages its connections and publishes events and log messages about them. A
/// [clear](PoolClear) comes before connections are checked in and closed (F-66). A clear that
/// [interrupts](PoolClear::interrupt_in_use) affects no connection of the new generation (F-65).
///
/// A panic in a method is re-raised in the calling thread after the remaining effects have run.
pub trait PoolHandle: Any + Send + Sync + Debug {
    /// Announces that a selection is waiting for the first check of this server, which in turn is
    /// waiting for the server.
    ///
    /// Called once at most, before the first [`ready`](Self::ready), and only if
    /// [`Options::early_dial`](sdam_core::options::Options::early_dial) is set. The pool may then
    /// open one socket with [`PoolContext::dial`] and use it for its first connection, which saves
    /// the round trips of TCP and TLS. It sends no hello before it is ready, and closes the socket
    /// when it is cleared or closed, or if the socket remains unused.
    fn prepare(&self) {}
    /// Marks the pool ready to open connections; does nothing if it is ready already.
    fn ready(&self);
    /// Makes all connections of earlier generations stale, see [`PoolClear`].
    fn clear(&self, clear: &PoolClear);
    /// Closes the pool of a server that has left the topology: every later check-out fails, see
    /// [`Error::pool_closed`]. Idle connections are closed then, and those in use when they are
    /// checked in.
    fn close(&self);
    /// Returns the task that opens and closes the connections of this pool, if it has one.
    ///
    /// Called once, directly after [`PoolFactory::create`], and not in single-threaded mode. The
    /// topology spawns the task after unlocking. Closing the topology waits for the task, so it
    /// must end soon after [`close`](Self::close).
    fn background(&self) -> Option<Task> {
        None
    }
}

/// Pools that do nothing, for programs that only monitor.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPools;

impl PoolFactory for NoPools {
    type Pool = Self;

    fn create(&self, _: PoolContext) -> Self {
        Self
    }
}

impl PoolHandle for NoPools {
    fn ready(&self) {}
    fn clear(&self, _: &PoolClear) {}
    fn close(&self) {}
}

macro_rules! forward_factory {
    ($($pointer:ty),*) => {$(
        impl<F: PoolFactory + ?Sized> PoolFactory for $pointer {
            type Pool = F::Pool;

            fn create(&self, context: PoolContext) -> F::Pool {
                (**self).create(context)
            }

            fn check(
                &self,
                options: &Options,
                authenticator: Option<&dyn Authenticator>,
            ) -> Result<(), ConfigError> {
                (**self).check(options, authenticator)
            }
        }
    )*};
}

macro_rules! forward_handle {
    ($($pointer:ty),*) => {$(
        impl<H: PoolHandle + ?Sized> PoolHandle for $pointer {
            fn prepare(&self) {
                (**self).prepare();
            }

            fn ready(&self) {
                (**self).ready();
            }

            fn clear(&self, clear: &PoolClear) {
                (**self).clear(clear);
            }

            fn close(&self) {
                (**self).close();
            }

            fn background(&self) -> Option<Task> {
                (**self).background()
            }
        }
    )*};
}

forward_factory!(Arc<F>, Box<F>, &'static F);
forward_handle!(Arc<H>, Box<H>);
