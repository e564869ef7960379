//! A server that was selected.

use std::{fmt, sync::Arc};

use sdam_core::{
    address::ServerAddress,
    ids::ServerId,
    pool::PoolHandle,
    server::{ServerDescription, ServerType, WireVersions},
    topology::{TopologyDescription, TopologyType},
};
use sdam_select::criteria::Criteria;

use crate::{
    server::{Lane, Server},
    sync::CountedArc,
};

/// A selected server. It counts as one operation in progress until it is dropped.
///
/// Keep it for as long as the operation takes: the count decides which of two servers the next
/// operation goes to (Server Selection: "operationCount").
/// Dropping it wakes no waiter.
pub struct Selected {
    lane: CountedArc<Lane>,
    server_type: ServerType,
    topology_type: TopologyType,
    wire_versions: WireVersions,
    overrides_read_preference: bool,
}

impl Selected {
    pub(crate) fn new(
        server: &Server,
        description: &ServerDescription,
        topology: &TopologyDescription,
        criteria: &Criteria,
        lane: usize,
    ) -> Self {
        Self {
            lane: server.start_operation(lane),
            server_type: description.server_type,
            topology_type: topology.topology_type(),
            wire_versions: description.wire_versions,
            overrides_read_preference: criteria.is_overridden_on(topology),
        }
    }

    /// Returns the server id, for error reports.
    pub fn id(&self) -> ServerId {
        self.lane.server.id
    }

    /// Returns the server's address.
    pub fn address(&self) -> &ServerAddress {
        &self.lane.server.address
    }

    /// Returns the server's pool, as the pool factory made it.
    pub fn pool(&self) -> &Arc<dyn PoolHandle> {
        &self.lane.server.pool
    }

    /// Returns the server type at the time of the selection.
    pub fn server_type(&self) -> ServerType {
        self.server_type
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

    /// Returns the monitor's wire versions. A connection's own handshake takes precedence.
    pub fn wire_versions(&self) -> WireVersions {
        self.wire_versions
    }
}

impl fmt::Debug for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selected")
            .field("id", &self.id())
            .field("address", self.address())
            .field("server_type", &self.server_type)
            .field("topology_type", &self.topology_type)
            .finish_non_exhaustive()
    }
}
