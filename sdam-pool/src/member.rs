//! A connection of a pool.

use std::sync::Arc;

use sdam_core::{
    event::ConnectionId,
    ids::{Generation, ObjectId},
};
use sdam_transport::pool::Established;

use crate::{interrupt::Interrupt, machine::Pooled};

/// A connection of a pool.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) established: Established,
    pub(crate) id: ConnectionId,
    pub(crate) interrupt: Arc<Interrupt>,
    /// True if the user of the connection has discarded it.
    pub(crate) is_discarded: bool,
}

impl Member {
    pub(crate) fn new(id: u64, established: Established) -> Self {
        let (generation, service) = (established.generation(), established.service_id());
        Self {
            id: ConnectionId { driver: id, server: established.hello().connection_id },
            interrupt: Arc::new(Interrupt::new(generation, service)),
            is_discarded: false,
            established,
        }
    }
}

impl Pooled for Box<Member> {
    fn generation(&self) -> Generation {
        self.established.generation()
    }

    fn service(&self) -> Option<ObjectId> {
        self.established.service_id()
    }

    fn is_usable(&self) -> bool {
        self.established.is_usable() && !self.is_discarded && !self.interrupt.is_set()
    }
}
