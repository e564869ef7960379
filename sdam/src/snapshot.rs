//! Immutable snapshots of a topology.

use std::{fmt, ops::Deref, sync::Arc};

use sdam_core::topology::TopologyDescription;

use crate::{failures::Failures, server::Server, sync::Guard};

/// The consistent, immutable state of a topology at one moment.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) version: u64,
    pub(crate) description: Arc<TopologyDescription>,
    /// Parallel to the description's servers.
    pub(crate) servers: Arc<[Arc<Server>]>,
    pub(crate) closed: bool,
}

impl Snapshot {
    /// Returns the version: publications are counted from 1; a greater version is newer.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the topology description.
    pub fn description(&self) -> &Arc<TopologyDescription> {
        &self.description
    }

    /// Returns whether the topology was closed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether every server has lost its monitor although the topology was not closed: the
    /// runtime has dropped the tasks, and no server will ever be known again. A monitor that
    /// restarts after a panic is not lost, and a load balancer has none to lose.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.servers.is_empty() && self.servers.iter().all(|server| server.is_abandoned())
    }

    /// Returns the number of operations now in progress on the server at this index.
    pub fn operation_count(&self, index: usize) -> u32 {
        self.servers
            .get(index)
            .map_or(0, |server| server.operation_count())
    }

    /// Returns the errors so far of the server at this index of the description.
    pub fn failures(&self, index: usize) -> Failures {
        self.servers
            .get(index)
            .map(|server| server.failures().clone())
            .unwrap_or_default()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("version", &self.version)
            .field("description", &self.description)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

/// A borrowed [`Snapshot`], loaded without lock and allocation.
///
/// Do not hold it across an await: each thread has only a few guards without cost. Clone the
/// snapshot's [`description`](Snapshot::description) to keep it.
#[derive(Debug)]
pub struct SnapshotGuard(pub(crate) Guard<Arc<Snapshot>>);

impl Deref for SnapshotGuard {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0
    }
}
