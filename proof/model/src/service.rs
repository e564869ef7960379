//! Test doubles for the services behind a load balancer.

use sdam_core::ids::{Generation, ObjectId};

use crate::{start::Start, step::Which};

/// The number of services.
const SERVICES: u8 = 2;

/// The state of the connections to a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Service {
    pub(crate) open: Vec<Tunnel>,
    /// The connection that was closed most recently.
    pub(crate) closed: Option<Tunnel>,
}

/// A connection to a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tunnel {
    pub(crate) generation: Generation,
    /// True if, since this connection was opened, the service was cleared or lost all connections.
    pub(crate) stale: bool,
    /// True if, since this connection was opened, the service lost all connections.
    pub(crate) gone: bool,
}

impl Service {
    pub(crate) fn tunnel(&self, which: Which) -> Option<Tunnel> {
        let tunnel = match which {
            Which::Newest => self.open.last(),
            Which::Oldest => self.open.first().filter(|_| self.open.len() > 1),
            Which::Closed => self.closed.as_ref(),
        };
        tunnel.copied()
    }

    pub(crate) fn tunnels(&mut self) -> impl Iterator<Item = &mut Tunnel> {
        self.open.iter_mut().chain(&mut self.closed)
    }
}

/// Returns the initial services.
pub(crate) fn services(start: Start) -> Vec<Service> {
    let count = if start.balanced { SERVICES } else { 0 };
    vec![Service::default(); count.into()]
}

/// Returns the position of the service in the list of services.
pub(crate) fn place(service: u8) -> usize {
    usize::from(service % SERVICES)
}

pub(crate) fn id(service: u8) -> ObjectId {
    ObjectId::from_bytes([service % SERVICES + 1; 12])
}
