//! The services behind a load balancer (CMAP: "Load Balancer Mode").

use std::{collections::BTreeMap, mem};

use sdam_core::ids::{Generation, ObjectId};

/// The current generation of each service, by which stale connections are recognized.
///
/// The topology assigns the generations. A service is kept while it has connections, and while any
/// connection is being established, because that connection may turn out to lead to a service that
/// was cleared in the meantime.
#[derive(Debug, Default)]
pub(super) struct Services {
    pub(super) known: BTreeMap<ObjectId, Service>,
    /// True if a service was cleared since the last call of [`take_cleared`](Self::take_cleared).
    has_cleared: bool,
}

#[derive(Debug, Default)]
pub(super) struct Service {
    connections: usize,
    /// Connections of earlier generations are stale.
    cleared: Option<Generation>,
}

impl Services {
    pub(super) fn clear(&mut self, service: ObjectId, generation: Generation) {
        self.has_cleared = true;
        let service = self.known.entry(service).or_default();
        service.cleared = service.cleared.max(Some(generation));
    }

    pub(super) fn opened(&mut self, service: ObjectId) {
        self.known.entry(service).or_default().connections += 1;
    }

    /// Counts a closed connection. `is_pending` is true if another connection is being established.
    pub(super) fn closed(&mut self, id: ObjectId, is_pending: bool) {
        if let Some(service) = self.known.get_mut(&id) {
            service.connections = service.connections.saturating_sub(1);
            if service.connections == 0 && !is_pending {
                self.known.remove(&id);
            }
        }
    }

    /// Removes all services that have no connections. Called only while no connection is being
    /// established.
    pub(super) fn prune(&mut self) {
        self.known.retain(|_, service| service.connections > 0);
    }

    /// Returns whether a service was cleared since the last call.
    pub(super) fn take_cleared(&mut self) -> bool {
        mem::take(&mut self.has_cleared)
    }

    pub(super) fn is_stale(&self, service: ObjectId, generation: Generation) -> bool {
        let service = self.known.get(&service);
        service.is_some_and(|service| service.cleared.is_some_and(|cleared| generation < cleared))
    }
}
