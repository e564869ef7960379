//! Applications behind a load balancer, with a model of a pool that counts generations as CMAP
//! requires.

use bson::{doc, oid};
use sdam_core::{
    error::ErrorOutcome,
    ids::{Generation, ObjectId, ServerId},
    server::ServerDescription,
};
use sdam_sim::oracle::Oracle;

use super::{Application, report::draw};
use crate::{plan::pick, record::lock};

/// The number of services behind the load balancer.
const SERVICES: u64 = 3;

impl Application {
    /// Opens, closes or uses a connection to one of the services. If the run has real pools, these
    /// open the connections, so this only reports an error that concerns no connection.
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
        let handshake = self.topology.reporter(server).handle_handshake(Generation::FIRST, &reply);
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
