//! Gives access to the servers of a topology, and to their pools, without a selection.

use std::{marker::PhantomData, sync::Arc};

use sdam_core::{address::ServerAddress, ids::ServerId, server::ServerDescription};
use sdam_transport::pool::{NoPools, PoolHandle};

use super::Topology;
use crate::engine::{pools, server::ServerCore, snapshot::Snapshot};

/// A server of a topology, with its pool. Unlike a [`SelectedServer`](crate::SelectedServer), it is
/// not counted as an operation in progress, and may have any server type.
///
/// Use it for work on all pools, such as filling them before the first operation, or ending cursors
/// before the topology is closed. It may be kept across an await; its pool is closed when the
/// server leaves the topology.
pub struct KnownServer<P = NoPools> {
    description: Arc<ServerDescription>,
    server: Arc<ServerCore>,
    pool: PhantomData<fn() -> P>,
}

impl<P: PoolHandle> Topology<P> {
    /// Returns all servers of the current snapshot, sorted by address; none after the topology was
    /// closed. Takes no lock.
    ///
    /// ```no_run
    /// use sdam::{PoolHandle, Topology};
    ///
    /// fn pools<P: PoolHandle + Clone>(topology: &Topology<P>) -> Vec<P> {
    ///     let servers = topology.servers();
    ///     servers.iter().filter_map(|server| server.pool().cloned()).collect()
    /// }
    /// ```
    pub fn servers(&self) -> Vec<KnownServer<P>> {
        let snapshot = self.shared().published.load();
        let indexes = 0..snapshot.servers.len();
        indexes.filter_map(|index| KnownServer::new(&snapshot, index)).collect()
    }

    /// Returns the server at `address`, if it is in the topology now. Takes no lock and allocates
    /// nothing.
    pub fn server(&self, address: &ServerAddress) -> Option<KnownServer<P>> {
        let snapshot = self.shared().published.load();
        let servers = snapshot.description.servers();
        let index = servers.binary_search_by(|server| server.address.cmp(address)).ok()?;
        KnownServer::new(&snapshot, index)
    }
}

impl<P> KnownServer<P> {
    fn new(snapshot: &Snapshot, index: usize) -> Option<Self> {
        let description = snapshot.description.servers().get(index)?;
        Some(Self {
            description: Arc::clone(description),
            server: Arc::clone(&snapshot.servers.get(index)?.core),
            pool: PhantomData,
        })
    }

    /// Returns the server id, for use in error reports.
    pub fn id(&self) -> ServerId {
        self.server.id
    }

    /// Returns the server's address.
    pub fn address(&self) -> &ServerAddress {
        &self.server.address
    }

    /// Returns the description, as of the call that returned this server.
    pub fn description(&self) -> &Arc<ServerDescription> {
        &self.description
    }
}

impl<P: PoolHandle> KnownServer<P> {
    /// Returns the server's pool, as created by the pool factory; `None` if the factory panicked.
    pub fn pool(&self) -> Option<&P> {
        let pool = self.server.pool()?;
        Some(pools::typed(Some(pool)))
    }
}

sdam_core::opaque!(KnownServer<P>, |this| description: this.description);
