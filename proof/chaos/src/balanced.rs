//! A model of the pool of a load balancer.

use std::collections::BTreeMap;

use sdam::pool::ServiceConnection;
use sdam_core::{
    ids::{Generation, ObjectId},
    rng::Rng,
};

/// The number of closed connections to remember, so that errors on them can still be reported late.
const REMEMBERED: usize = 8;

/// The state of a load balancer's pool (CMAP: "Load Balancer Mode").
#[derive(Debug, Default)]
pub(crate) struct BalancedPool {
    pub(crate) open: Vec<ServiceConnection>,
    /// The generation and the number of connections of each service that has any connections.
    services: BTreeMap<ObjectId, (Generation, usize)>,
    /// The service IDs and generations of recently closed connections.
    pub(crate) closed: Vec<(ObjectId, Generation)>,
}

impl BalancedPool {
    /// Records a new connection. Fails if the connection has the wrong generation.
    pub(crate) fn open(&mut self, connection: ServiceConnection) -> Result<(), String> {
        let (service, own) = (connection.service_id(), connection.generation());
        let fresh = !self.services.contains_key(&service);
        let (generation, count) = self.services.entry(service).or_insert((own, 0));
        *count += 1;
        let generation = *generation;
        self.open.push(connection);
        if own != generation {
            return Err(format!(
                "a connection to {service} is opened with generation {own}, but the pool has \
                 generation {generation}"
            ));
        }
        let mut closed = self.closed.iter();
        if fresh && closed.any(|(of, earlier)| *of == service && *earlier >= own) {
            return Err(format!(
                "{service} is known again with generation {own}, which closed connections had, too"
            ));
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, rng: &mut Rng) -> Option<ServiceConnection> {
        let index = self.draw(rng)?;
        let connection = self.open.swap_remove(index);
        let (service, generation) = (connection.service_id(), connection.generation());
        if let Some((_, count)) = self.services.get_mut(&service) {
            *count -= 1;
            if *count == 0 {
                self.services.remove(&service);
            }
        }
        self.closed.push((service, generation));
        if self.closed.len() > REMEMBERED {
            self.closed.remove(0);
        }
        Some(connection)
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> Option<usize> {
        let index = rng.below(self.open.len() as u64) as usize;
        (index < self.open.len()).then_some(index)
    }

    /// Returns the generation of a service that has connections.
    pub(crate) fn generation(&self, service: ObjectId) -> Option<Generation> {
        self.services.get(&service).map(|known| known.0)
    }

    /// Records that the pool was cleared for `service`. Fails if `next` is not the next generation.
    pub(crate) fn clear(&mut self, service: ObjectId, next: Generation) -> Result<(), String> {
        let Some((generation, _)) = self.services.get_mut(&service) else {
            return Err(format!("the pool of {service} is cleared, but it has no connection"));
        };
        let last = std::mem::replace(generation, next);
        if next == last.next() {
            Ok(())
        } else {
            Err(format!("{service} is cleared from generation {last} to {next}"))
        }
    }
}
