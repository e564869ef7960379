//! The pools of a topology's servers, as far as the outputs so far have changed them.

use alloc::collections::{BTreeMap, btree_map::Entry};

use crate::{
    address::ServerAddress,
    ids::{Generation, ObjectId, ServerId},
};

/// The state of a server's pool according to the outputs so far.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) server: ServerId,
    pub(super) address: ServerAddress,
    pub(super) generation: Generation,
    /// Behind a load balancer: the services to which connections are open.
    pub(super) services: Services,
    pub(super) ready: bool,
}

impl Pool {
    pub(super) fn new(server: ServerId, address: ServerAddress) -> Self {
        Self {
            server,
            address,
            generation: Generation::FIRST,
            services: Services::default(),
            ready: false,
        }
    }

    /// Marks the pool as not ready, and returns its next generation.
    pub(super) fn clear(&mut self) -> Generation {
        self.generation = self.generation.next();
        self.ready = false;
        self.generation
    }
}

/// The services of one load balancer (CMAP: "Load Balancer Mode").
///
/// A service is known while a connection to it is open. When its last connection is closed, it is
/// forgotten, and `fresh` is raised above its generation. When the service returns, its generation
/// exceeds that of all its earlier connections, so their late errors are stale.
#[derive(Clone, Debug, Default)]
pub(super) struct Services {
    known: BTreeMap<ObjectId, Service>,
    /// The generation that a service gets when it becomes known.
    fresh: Generation,
}

#[derive(Clone, Debug)]
struct Service {
    /// The service's generation when it became known. `connections` does not count connections of
    /// earlier generations.
    first: Generation,
    generation: Generation,
    connections: u64,
}

impl Services {
    /// Returns the generation of new connections to `service`.
    pub(super) fn generation(&self, service: ObjectId) -> Generation {
        self.known.get(&service).map_or(self.fresh, |known| known.generation)
    }

    /// Counts a new connection to `service`.
    pub(super) fn opened(&mut self, service: ObjectId) {
        let known = self.entry(service);
        known.connections = known.connections.saturating_add(1);
    }

    /// Notes that a connection to `service` with this generation was closed.
    pub(super) fn closed(&mut self, service: ObjectId, generation: Generation) {
        let Entry::Occupied(mut found) = self.known.entry(service) else {
            return;
        };
        let known = found.get_mut();
        if generation < known.first {
            return;
        }
        known.connections = known.connections.saturating_sub(1);
        if known.connections == 0 {
            self.fresh = self.fresh.max(known.generation.next());
            found.remove();
        }
    }

    /// Advances the generation of `service` for a clear and returns it.
    pub(super) fn clear(&mut self, service: ObjectId) -> Generation {
        let known = self.entry(service);
        known.generation = known.generation.next();
        known.generation
    }

    /// Writes each known service with its id. Differences between generations are capped at 2,
    /// because larger ones have the same effect.
    #[cfg(feature = "model")]
    pub(super) fn write_key(&self, hasher: &mut impl core::hash::Hasher) {
        for (id, own) in &self.known {
            let since = |first: Generation, now: Generation| {
                now.as_u64().saturating_sub(first.as_u64()).min(2)
            };
            let raised = since(own.generation, self.fresh);
            let key = (id, own.connections, since(own.first, own.generation), raised);
            core::hash::Hash::hash(&key, hasher);
        }
        core::hash::Hash::hash(&self.known.len(), hasher);
    }

    fn entry(&mut self, service: ObjectId) -> &mut Service {
        let fresh = self.fresh;
        let new = Service { first: fresh, generation: fresh, connections: 0 };
        self.known.entry(service).or_insert(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(number: u8) -> ObjectId {
        ObjectId::from_bytes([number; 12])
    }

    #[test]
    fn a_service_without_connections_is_forgotten() {
        let mut services = Services::default();
        for number in 0..=255 {
            services.opened(service(number));
            let generation = services.generation(service(number));
            if number % 2 == 0 {
                services.clear(service(number));
            }
            services.closed(service(number), generation);
        }
        assert!(services.known.is_empty(), "{services:?}");
    }

    #[test]
    fn a_service_without_reported_handshakes_has_the_first_generation() {
        let mut services = Services::default();
        for generation in 0..3 {
            assert_eq!(services.generation(service(1)).as_u64(), generation);
            services.clear(service(1));
        }
        assert_eq!(services.generation(service(2)), Generation::FIRST);
    }
}
