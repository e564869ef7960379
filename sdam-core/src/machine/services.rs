//! The generations of the services behind a load balancer.

use hashbrown::HashTable;

use crate::{
    ids::{Generation, ObjectId},
    rng::mix,
};

/// The services of one load balancer (CMAP: "Load Balancer Mode").
///
/// A service is known while a connection to it is open. It is forgotten with its last connection,
/// and `fresh` is then raised above its generation. When the service returns, its generation
/// exceeds that of all its earlier connections, so their late errors are stale.
#[derive(Clone, Default)]
pub(super) struct Services {
    pub(super) known: HashTable<Service>,
    /// The generation of unknown services.
    fresh: Generation,
    /// A random hash seed: servers choose the ids of services and must not be able to control their
    /// places in the table.
    seed: u64,
}

#[derive(Clone)]
pub(super) struct Service {
    id: ObjectId,
    /// Connections of earlier generations are not counted in `connections`.
    first: Generation,
    generation: Generation,
    connections: u64,
}

impl Services {
    /// Creates an empty table. `topology` is random, and servers do not know it.
    pub(super) fn new(topology: ObjectId) -> Self {
        Self { seed: spread(0, topology), ..Self::default() }
    }

    /// Returns the generation of new connections to `service`.
    pub(super) fn generation(&self, service: ObjectId) -> Generation {
        let hash = spread(self.seed, service);
        let known = self.known.find(hash, |known| known.id == service);
        known.map_or(self.fresh, |known| known.generation)
    }

    /// Counts a new connection to `service`.
    pub(super) fn opened(&mut self, service: ObjectId) {
        let known = self.entry(service);
        known.connections = known.connections.saturating_add(1);
    }

    /// Counts the end of a connection to `service` with this generation.
    pub(super) fn closed(&mut self, service: ObjectId, generation: Generation) {
        let hash = spread(self.seed, service);
        let found = self.known.find_entry(hash, |known| known.id == service);
        let Ok(mut found) = found else {
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

    /// Counts a clear of `service` and returns the new generation.
    pub(super) fn clear(&mut self, service: ObjectId) -> Generation {
        let known = self.entry(service);
        known.generation = known.generation.next();
        known.generation
    }

    /// Writes the services by their ids. Of generations, only small distances count.
    #[cfg(feature = "model")]
    pub(super) fn write_key(&self, hasher: &mut impl core::hash::Hasher) {
        let known = self.known.iter().map(|own| {
            let since = |first: Generation, now: Generation| {
                now.as_u64().saturating_sub(first.as_u64()).min(2)
            };
            let raised = since(own.generation, self.fresh);
            (own.id, own.connections, since(own.first, own.generation), raised)
        });
        let mut known: alloc::vec::Vec<_> = known.collect();
        known.sort_unstable();
        core::hash::Hash::hash(&known, hasher);
    }

    fn entry(&mut self, service: ObjectId) -> &mut Service {
        let (seed, fresh) = (self.seed, self.fresh);
        self.known
            .entry(
                spread(seed, service),
                |known| known.id == service,
                |known| spread(seed, known.id),
            )
            .or_insert(Service { id: service, first: fresh, generation: fresh, connections: 0 })
            .into_mut()
    }
}

// Omits the services, because their order in memory must not be visible.
crate::opaque!(Services, |this| known: this.known.len(), fresh: this.fresh);

fn spread(seed: u64, id: ObjectId) -> u64 {
    let mut words = [0; 16];
    for (word, byte) in words.iter_mut().zip(id.bytes()) {
        *word = byte;
    }
    let words = u128::from_le_bytes(words);
    mix(mix(seed ^ words as u64) ^ (words >> 64) as u64)
}
