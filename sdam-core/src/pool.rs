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
/// A pool must not hold any lock that these methods take while it reports an error, a handshake or
/// the end of a connection.
///
/// # Behind a load balancer
///
/// The topology counts the connections to each service, and decides on their generations (CMAP:
/// "Load Balancer Mode"):
///
/// - The pool reports the reply to each hello before it authenticates, and stamps the connection
///   with the service and the generation that it is told. It never makes up a generation itself.
/// - It reports the end of each connection that it has reported so, once, and after the error that
///   the connection has met. With the last connection of a service the topology forgets the
///   service, and so may the pool.
/// - A service that comes back begins above every generation that a forgotten one has had. So an
///   error that is reported after the end of its connection is stale, and cannot clear connections
///   that were opened later.
/// - A clear may come between a handshake's report and the moment when the pool has entered the
///   connection in its books. A pool that keeps the generation of each service of its last clear
///   until no handshake is under way finds such a connection to be stale. One that does not uses it
///   once more.
///
/// A pool that reports no handshake is served all the same: its services begin with
/// [`Generation::FIRST`], and those that were cleared are remembered as long as the topology.
///
/// What a pool does with its connections is its own duty, and so are the events and log messages about
/// that. A [clear](PoolClear) comes first, then connections are checked in and closed (F-66). One that
/// [interrupts](PoolClear::interrupt_in_use) concerns no connection of the new generation (F-65).
///
/// A panic goes on to the caller whose call led here, once everything else is done.
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
    /// Behind a load balancer, the only service whose connections are stale: those of a generation
    /// below [`generation`](Self::generation). There may be none.
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
