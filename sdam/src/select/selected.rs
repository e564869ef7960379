//! The result of a server selection.

use std::{any::Any, marker::PhantomData, sync::Arc};

use sdam_core::{
    address::ServerAddress,
    error::Error,
    ids::{Generation, ServerId},
    server::{Rtt, ServerDescription, ServerType, WireVersions},
    topology::{TopologyDescription, TopologyType},
};
use sdam_select::{criteria::Criteria, settings::Settings};
use sdam_transport::pool::{NoPools, PoolHandle};

use crate::engine::server::{Lane, Server};

/// A selected server, with its pool. It is counted as one operation in progress until it is
/// dropped.
///
/// Keep it as long as the operation runs, because later selections prefer the server with fewer
/// operations (Server Selection: "operationCount"). Dropping it does not wake waiting selections.
pub struct SelectedServer<P = NoPools> {
    selected: Selected,
    pool: PhantomData<fn() -> P>,
}

/// A [`SelectedServer`] without its pool type.
pub(crate) struct Selected {
    lane: Arc<Lane>,
    server_type: ServerType,
    topology_type: TopologyType,
    wire_versions: WireVersions,
    generation: Generation,
    rtt: Option<Rtt>,
    overrides_read_preference: bool,
    retargets_overload: bool,
}

impl Selected {
    /// Counts an operation on `server`. Returns `None` if the server has no pool, because the pool
    /// factory panicked.
    #[inline]
    pub(crate) fn new(
        server: &Arc<Server>,
        description: &ServerDescription,
        topology: &TopologyDescription,
        settings: &Settings,
        criteria: &Criteria,
        lane: usize,
    ) -> Option<Self> {
        server.core.pool()?;
        Some(Self {
            lane: server.start_operation(lane),
            server_type: description.server_type,
            topology_type: topology.topology_type(),
            wire_versions: description.wire_versions,
            generation: server.generation(),
            rtt: description.rtt,
            overrides_read_preference: criteria.is_overridden_on(topology),
            retargets_overload: settings.retargets_overload,
        })
    }

    pub(crate) fn id(&self) -> ServerId {
        self.lane.server.id
    }

    pub(crate) fn address(&self) -> &ServerAddress {
        &self.lane.server.address
    }
}

impl<P> SelectedServer<P> {
    pub(crate) fn new(selected: Selected) -> Self {
        Self { selected, pool: PhantomData }
    }

    /// Returns the server id, for use in error reports.
    pub fn id(&self) -> ServerId {
        self.selected.id()
    }

    /// Returns the server's address.
    pub fn address(&self) -> &ServerAddress {
        self.selected.address()
    }

    /// Returns the server type at the time of the selection.
    pub fn server_type(&self) -> ServerType {
        self.selected.server_type
    }

    /// Returns the topology type at the time of the selection. Together with the server type, it
    /// determines how a read preference is sent.
    pub fn topology_type(&self) -> TopologyType {
        self.selected.topology_type
    }

    /// Returns whether the server was selected with mode primary instead of the criteria's read
    /// preference, which then must not be sent either; see [`Criteria::with_write_stage`].
    pub fn overrides_read_preference(&self) -> bool {
        self.selected.overrides_read_preference
    }

    /// Returns the criteria for the next attempt of an operation, after its attempt on this server
    /// failed with `error`: in a sharded cluster, they avoid this server; see [`Criteria::after`].
    #[must_use]
    pub fn criteria_after(&self, criteria: Criteria, error: &Error) -> Criteria {
        let Selected { topology_type, retargets_overload, .. } = self.selected;
        criteria.after((self.address(), topology_type), retargets_overload, error)
    }

    /// Returns the wire versions from the server's description. Those from a connection's own
    /// handshake take precedence.
    pub fn wire_versions(&self) -> WireVersions {
        self.selected.wire_versions
    }

    /// Returns the measured round-trip times at the time of the selection: the average, and the
    /// minimum, with which `timeoutMS` is compared before a command is sent. `None` behind a load
    /// balancer, which is not monitored.
    pub fn rtt(&self) -> Option<Rtt> {
        self.selected.rtt
    }

    /// Returns the pool's generation at the time of the selection, for use in error reports about
    /// connections opened later. Behind a load balancer, each service has its own generation.
    pub fn generation(&self) -> Generation {
        self.selected.generation
    }
}

impl<P: PoolHandle> SelectedServer<P> {
    /// Returns the server's pool, as created by the pool factory.
    pub fn pool(&self) -> &P {
        typed(self.selected.lane.server.pool())
    }
}

sdam_core::opaque!(SelectedServer<P>, |this|
    id: this.id(),
    address: this.address(),
    server_type: this.server_type(),
    topology_type: this.topology_type()
);

/// Returns the pool of a selected server, created by a factory with `Pool = P`.
///
/// # Panics
///
/// If there is no pool, or the pool has another type. Neither can happen: a server without a pool
/// is never selected, and the type of a topology includes the type of its pools.
fn typed<P: PoolHandle>(pool: Option<&dyn PoolHandle>) -> &P {
    match pool.and_then(|pool| (pool as &dyn Any).downcast_ref()) {
        Some(pool) => pool,
        #[expect(clippy::unreachable, reason = "the topology's type names the pool")]
        None => unreachable!("the selected server has no such pool"),
    }
}
