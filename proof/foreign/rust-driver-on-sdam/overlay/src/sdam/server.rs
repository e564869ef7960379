//! The driver's connection pool as a pool for the framework.

use std::sync::Arc;

use ::sdam::{PoolContext, PoolFactory, PoolHandle, discovery::pool::PoolClear};
use derive_where::derive_where;
use futures_util::FutureExt;

use super::{TopologyUpdater, convert, error, topology::TopologyShutdown};
use crate::{
    cmap::{ConnectionPool, establish::ConnectionEstablisher, options::ConnectionPoolOptions},
    options::{ClientOptions, ServerAddress},
};

/// A server of the topology, with its address and pool.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: ServerAddress,
    pub(crate) pool: ConnectionPool,
    updater: TopologyUpdater,
    #[cfg(test)]
    operation_count: u32,
}

impl Server {
    #[cfg(test)]
    pub(crate) fn new_mocked(address: ServerAddress, operation_count: u32) -> Self {
        Self {
            pool: ConnectionPool::new_mocked(address.clone()),
            address,
            updater: TopologyUpdater::channel().0,
            operation_count,
        }
    }

    /// Returns the receiver of reports about connections to this server.
    pub(crate) fn updater(&self) -> &TopologyUpdater {
        &self.updater
    }

    /// Returns the number of operations on a mocked server; the topology counts real ones.
    pub(crate) fn operation_count(&self) -> u32 {
        #[cfg(test)]
        return self.operation_count;
        #[cfg(not(test))]
        0
    }
}

/// Creates the pool of each server.
#[derive_where(Debug)]
pub(crate) struct Pools {
    #[derive_where(skip)]
    pub(crate) options: Arc<ClientOptions>,
    #[derive_where(skip)]
    pub(crate) establisher: ConnectionEstablisher,
    pub(crate) shutdown: TopologyShutdown,
    #[cfg(feature = "tracing-unstable")]
    pub(crate) id: crate::bson::oid::ObjectId,
}

impl PoolFactory for Pools {
    type Pool = Arc<Server>;

    fn create(&self, context: PoolContext) -> Arc<Server> {
        Arc::new_cyclic(|server| {
            let address = convert::driver_address(&context.address);
            let updater = TopologyUpdater::of_pool(&context, server);
            let pool = ConnectionPool::new(
                address.clone(),
                self.establisher.clone(),
                updater.clone(),
                Some(ConnectionPoolOptions::from_client_options(&self.options)),
                self.shutdown.clone(),
                #[cfg(feature = "tracing-unstable")]
                self.id,
            );
            Server {
                address,
                pool,
                updater,
                #[cfg(test)]
                operation_count: 0,
            }
        })
    }
}

/// The pool is a task with a mailbox: the first poll of a request sends it, and the worker handles
/// such requests before any check-out. Their answers need not be awaited.
impl PoolHandle for Server {
    fn ready(&self) {
        let _ = self.pool.mark_as_ready().now_or_never();
    }

    fn clear(&self, clear: &PoolClear) {
        let service = clear.service_id.map(convert::driver_object_id);
        let cause = error::to_driver(&clear.cause);
        let _ = self.pool.clear(cause, service).now_or_never();
    }

    /// Does nothing: the worker ends with the last handle, which the topology drops afterwards.
    fn close(&self) {}
}
