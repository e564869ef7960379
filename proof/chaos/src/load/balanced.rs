//! Applications behind a load balancer, with a model of a pool that counts generations as CMAP
//! requires.

use std::collections::BTreeMap;

use bson::{doc, oid};
use sdam::pool::ServiceConnection;
use sdam_core::{
    error::ErrorOutcome,
    ids::{Generation, ObjectId, ServerId},
    rng::Rng,
    server::ServerDescription,
};
use sdam_sim::oracle::Oracle;

use super::{Application, report::draw};
use crate::{plan::pick, record::lock};

/// The number of services behind the load balancer.
const SERVICES: u64 = 3;

impl Application {
    /// Opens, closes or uses a connection to one of the services. If the run has real pools, these
    /// open the connections, and this method only reports an error that concerns no connection.
    pub(super) fn use_balancer(&mut self, server: &ServerDescription) {
        if !lock(&self.record.connecting).is_empty() {
            return self.report_of(server, None, true);
        }
        match self.rng.below(8) {
            0..3 => self.open_connection(server.id),
            3 => self.close_connection(),
            4 => self.report_of(server, None, true),
            5 => self.report_late(server),
            _ => self.report_on_connection(server),
        }
    }

    fn open_connection(&mut self, server: ServerId) {
        let number = 1 + self.rng.below(SERVICES) as u8;
        let service = oid::ObjectId::from_bytes([number; 12]);
        let reply = doc! { "ok": 1, "msg": "isdbgrid", "maxWireVersion": 21, "serviceId": service };
        let reply = reply.to_vec().unwrap_or_default();
        lock(&self.record.counts).handshakes += 1;
        let handshake = self.topology.reporter(server).handle_handshake(Generation::FIRST, &*reply);
        let complaint = match handshake {
            Ok(Some(connection)) => {
                self.record.note(format!("opens {connection:?}"));
                lock(&self.record.balanced).open(connection).err()
            }
            Ok(None) => (!self.topology.snapshot().is_closed()).then(|| {
                "the handshake with a load balancer returned no service connection".into()
            }),
            Err(error) => Some(error.to_string()),
        };
        if let Some(complaint) = complaint {
            self.record.violated(Oracle::Pools, complaint);
        }
    }

    fn close_connection(&mut self) {
        let closed = lock(&self.record.balanced).close(&mut self.rng);
        if let Some(connection) = closed {
            self.record.note(format!("closes {connection:?}"));
            self.topology
                .reporter(connection.server())
                .handle_service_connection_closed(connection);
        }
    }

    /// Reports an error on an open connection. The error is not stale if the connection's
    /// generation is current.
    fn report_on_connection(&mut self, server: &ServerDescription) {
        let (service, generation, current) = {
            let pool = lock(&self.record.balanced);
            let Some(index) = pool.draw(&mut self.rng) else {
                return;
            };
            let connection = &pool.open[index];
            let (service, generation) = (connection.service_id(), connection.generation());
            (service, generation, pool.generation(service))
        };
        let current = current == Some(generation);
        self.report_of(server, Some((service, generation)), current);
    }

    /// Reports an error on a closed connection. The error is stale even if there are new
    /// connections to the same service.
    fn report_late(&mut self, server: &ServerDescription) {
        let late = {
            let pool = lock(&self.record.balanced);
            let gone = |(service, generation): &&(ObjectId, Generation)| {
                pool.generation(*service) != Some(*generation)
            };
            let late: Vec<_> = pool.closed.iter().filter(gone).copied().collect();
            (!late.is_empty()).then(|| pick(&mut self.rng, &late))
        };
        if late.is_some() {
            lock(&self.record.counts).late += 1;
            self.report_of(server, late, false);
        }
    }

    fn report_of(
        &mut self,
        server: &ServerDescription,
        connection: Option<(ObjectId, Generation)>,
        current: bool,
    ) {
        let topology = self.topology.snapshot();
        let drawn = draw(&mut self.rng, topology.description(), server);
        drop(topology);
        let (service, generation) = connection.unzip();
        let error = drawn.on(server, generation.unwrap_or_default(), service);
        let outcome = self.topology.reporter(server.id).handle_error(&error);
        self.record.note(format!("{} of {connection:?}: {outcome:?}", drawn.error));
        let expected = if current { drawn.expected(service) } else { Some(ErrorOutcome::Stale) };
        drawn.reported(&self.record, server, outcome, expected);
        self.record.ensure(!current || outcome != ErrorOutcome::Stale, Oracle::Errors, || {
            format!("{error:?} of a current connection is stale")
        });
    }
}

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
