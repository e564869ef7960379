//! A server that was selected in single-threaded mode.

use std::{fmt, sync::Arc};

use sdam_core::{
    address::ServerAddress,
    ids::{Generation, ServerId},
    pool::PoolHandle,
    server::ServerDescription,
    topology::{TopologyDescription, TopologyType},
};
use sdam_select::criteria::Criteria;

/// A selected server.
///
/// A plain value without resources: [`ScanTopology::channel`](super::ScanTopology::channel)
/// returns the server's connection.
#[derive(Clone)]
pub struct ScanSelected {
    description: Arc<ServerDescription>,
    topology_type: TopologyType,
    overrides_read_preference: bool,
    generation: Generation,
    pool: Arc<dyn PoolHandle>,
}

impl ScanSelected {
    pub(super) fn new(
        description: &Arc<ServerDescription>,
        topology: &TopologyDescription,
        criteria: &Criteria,
        generation: Generation,
        pool: Arc<dyn PoolHandle>,
    ) -> Self {
        Self {
            description: Arc::clone(description),
            topology_type: topology.topology_type(),
            overrides_read_preference: criteria.is_overridden_on(topology),
            generation,
            pool,
        }
    }

    /// Returns the server id, for its connection and error reports.
    pub fn id(&self) -> ServerId {
        self.description.id
    }

    /// Returns the server's address.
    pub fn address(&self) -> &ServerAddress {
        &self.description.address
    }

    /// Returns the server description at the time of the selection.
    pub fn description(&self) -> &Arc<ServerDescription> {
        &self.description
    }

    /// Returns the topology type at the time of the selection. Together with the server type it
    /// decides how a read preference is sent.
    pub fn topology_type(&self) -> TopologyType {
        self.topology_type
    }

    /// Returns whether the server was selected with mode primary instead of the criteria's read
    /// preference, which then must not be sent either; see [`Criteria::with_write_stage`].
    pub fn overrides_read_preference(&self) -> bool {
        self.overrides_read_preference
    }

    /// Returns the generation of connections at the time of the selection, for error reports.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the server's pool, as the pool factory made it.
    pub fn pool(&self) -> &Arc<dyn PoolHandle> {
        &self.pool
    }
}

impl fmt::Debug for ScanSelected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanSelected")
            .field("id", &self.id())
            .field("address", self.address())
            .field("server_type", &self.description.server_type)
            .field("topology_type", &self.topology_type)
            .finish_non_exhaustive()
    }
}
