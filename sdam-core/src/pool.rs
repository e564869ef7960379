//! The commands a topology gives to connection pools, and the errors of those (CMAP).

mod error;

use alloc::sync::Arc;
use core::fmt::Debug;

pub use self::error::PoolError;
use crate::{
    address::ServerAddress,
    error::ServerError,
    ids::{Generation, ObjectId, ServerId},
};

/// Makes the pool of each server that joins the topology.
///
/// # Contract
///
/// `create` is called while the topology is locked.
/// It must return quickly, must not block, and must not call back into the topology.
/// The pool starts paused with [`Generation::FIRST`] and opens no connection before
/// [`PoolHandle::ready`].
///
/// A panic goes on to whoever brought it about, once everything else is done.
/// A server whose pool could not be made has [`NoPools`].
pub trait PoolFactory: Send + Sync + Debug + 'static {
    /// The paused pool of the server `id` at `address`.
    fn create(&self, id: ServerId, address: &ServerAddress) -> Arc<dyn PoolHandle>;
}

/// A connection pool, as far as the topology commands it.
///
/// # Contract
///
/// All methods are called while the topology is locked, so that no selection sees a server whose
/// pool is not in the state that the server's description promises.
/// They must take constant time, must not block, and must not call back into the topology; sockets
/// are closed later, by the pool's own task.
/// A pool must not hold any lock that these methods take while it reports an error.
///
/// A panic goes on to whoever brought it about, once everything else is done.
pub trait PoolHandle: Send + Sync + Debug + 'static {
    /// Connections may be opened from now on; nothing happens if that is so already.
    fn ready(&self);
    /// All connections of earlier generations are stale, see [`PoolClear`].
    fn clear(&self, clear: &PoolClear);
    /// The server has left the topology: no check-out succeeds any more, see [`PoolError::Closed`].
    fn close(&self);
}

/// Why and how a pool is cleared (CMAP: "Clearing a Connection Pool").
///
/// Without a [`service_id`](Self::service_id) the pool also becomes paused and evicts its wait queue,
/// with [`PoolError::cleared`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolClear {
    /// The generation of connections opened from now on.
    pub generation: Generation,
    /// Behind a load balancer, the only service whose connections are stale.
    pub service_id: Option<ObjectId>,
    /// Whether connections that are in use or being established are interrupted, too.
    pub interrupt_in_use: bool,
    /// Whether the pool was paused before: then its generation grows, and a pool publishes no event
    /// of it (CMAP: "Clearing a Connection Pool").
    pub was_paused: bool,
    /// The error that gave the reason.
    pub cause: Arc<ServerError>,
}

impl PoolClear {
    /// A clear of the whole pool that leaves connections in use alone.
    pub fn new(generation: Generation, cause: Arc<ServerError>) -> Self {
        Self {
            generation,
            service_id: None,
            interrupt_in_use: false,
            was_paused: false,
            cause,
        }
    }
}

/// Pools for programs that only watch: they do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPools;

impl PoolFactory for NoPools {
    fn create(&self, _: ServerId, _: &ServerAddress) -> Arc<dyn PoolHandle> {
        Arc::new(Self)
    }
}

impl PoolHandle for NoPools {
    fn ready(&self) {}
    fn clear(&self, _: &PoolClear) {}
    fn close(&self) {}
}
