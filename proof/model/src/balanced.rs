//! Test doubles for the services behind a load balancer, connections to them, and their invariants.

use std::hash::{Hash, Hasher};

use sdam_core::{
    deployment::{Input, Output, Outputs},
    error::ErrorOutcome,
    hello::Hello,
    ids::{Generation, ObjectId, ServerId},
};

use crate::{
    drive::report,
    oracle::ensure,
    start::{Call, Purpose, Start},
    step::{OperationError, Reply, Role, ServiceStep, Which},
    world::World,
};

/// The maximum number of open connections to a service.
const MAX_OPEN: usize = 2;

/// The maximum distance between generations that the keys of states distinguish. Greater distances
/// count as this maximum.
const FARTHEST: u64 = 2;

/// A `maxWireVersion` that supports load balancers.
const WIRE_VERSION: i32 = 17;

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
    stale: bool,
    /// True if, since this connection was opened, the service lost all connections.
    pub(crate) gone: bool,
}

impl Service {
    fn tunnel(&self, which: Which) -> Option<Tunnel> {
        let tunnel = match which {
            Which::Newest => self.open.last(),
            Which::Oldest => self.open.first().filter(|_| self.open.len() > 1),
            Which::Closed => self.closed.as_ref(),
        };
        tunnel.copied()
    }

    fn tunnels(&mut self) -> impl Iterator<Item = &mut Tunnel> {
        self.open.iter_mut().chain(&mut self.closed)
    }
}

/// Returns the initial services.
pub(crate) fn services(start: Start) -> Vec<Service> {
    let count = if start.balanced { SERVICES } else { 0 };
    vec![Service::default(); count.into()]
}

/// Returns the position of the service in the list of services.
fn place(service: u8) -> usize {
    usize::from(service % SERVICES)
}

pub(crate) fn id(service: u8) -> ObjectId {
    ObjectId::from_bytes([service % SERVICES + 1; 12])
}

impl World {
    /// Returns whether the service can take this step.
    pub(crate) fn can_serve(&self, service: u8, step: ServiceStep) -> bool {
        let Some(own) = self.services.get(place(service)) else {
            return false;
        };
        match step {
            ServiceStep::Opened => own.open.len() < MAX_OPEN,
            // A closed connection may be reported as closed once more, but only if the service has
            // lost all connections since this connection was opened.
            ServiceStep::Closed(which) => {
                own.tunnel(which).is_some_and(|own| which != Which::Closed || own.gone)
            }
            ServiceStep::Error(which, _) => own.tunnel(which).is_some(),
        }
    }

    /// Applies a step of the service.
    pub(crate) fn serve(&mut self, service: u8, step: ServiceStep) -> Result<(), String> {
        let Some(server) = self.watches.first().map(|own| own.id) else {
            return Ok(());
        };
        let call = Call { about: Some(server), ..Call::default() };
        match step {
            ServiceStep::Opened => {
                let generation = self.generation_of(server, service).unwrap_or_default();
                let new = Tunnel { generation, stale: false, gone: false };
                self.services[place(service)].open.push(new);
                let reply = Ok(hello(service)).into();
                let generation = Generation::FIRST;
                self.handle(call, Input::Handshake { server, generation, reply })
            }
            ServiceStep::Closed(which) => {
                let own = &mut self.services[place(service)];
                let Some(ended) = own.tunnel(which) else {
                    return Ok(());
                };
                match which {
                    Which::Newest => own.open.truncate(own.open.len() - 1),
                    Which::Oldest => drop(own.open.remove(0)),
                    Which::Closed => {}
                }
                let last = own.open.is_empty();
                let (stale, gone) = (ended.stale || last, ended.gone || last);
                own.closed = Some(Tunnel { stale, gone, ..ended });
                let (service, generation) = (id(service), ended.generation);
                self.handle(call, Input::ServiceConnectionClosed { server, service, generation })
            }
            ServiceStep::Error(which, error) => self.service_error(server, service, which, error),
        }
    }

    fn service_error(
        &mut self,
        server: ServerId,
        service: u8,
        which: Which,
        error: OperationError,
    ) -> Result<(), String> {
        let own = &mut self.services[place(service)];
        let Some(tunnel) = own.tunnel(which) else {
            return Ok(());
        };
        let counts = matches!(
            error,
            OperationError::Broken | OperationError::Auth | OperationError::ShuttingDown(_)
        );
        let (expected, purpose) = match (tunnel.stale, counts) {
            (true, _) => (ErrorOutcome::Stale, Purpose::Other),
            (false, true) => (ErrorOutcome::ServiceCleared, Purpose::Service),
            (false, false) => (ErrorOutcome::Irrelevant, Purpose::Other),
        };
        let clears = purpose == Purpose::Service;
        if clears {
            own.tunnels().for_each(|own| own.stale = true);
        }
        let report = report(0, error, tunnel.generation)?;
        let report = report.with_service(id(service)).with_max_wire_version(WIRE_VERSION);
        let timers = self.timers();
        let (outcome, outputs) = self.deployment.handle_error(self.now, server, &report);
        let cleared = outputs.iter().all(|output| {
            matches!(output, Output::PoolClear { clear, .. }
                if clear.service_id == Some(id(service))
                    && clear.generation == tunnel.generation.next()
                    && !clear.was_paused
                    && !clear.interrupt_in_use)
        });
        let matches =
            outcome == expected && cleared && outputs.iter().count() == usize::from(clears);
        ensure(matches, || {
            format!(
                "I-52: {error:?} of {tunnel:?} resulted in {outcome:?} and {outputs:?}, expected \
                 {expected:?}"
            )
        })?;
        self.judge(Call { about: Some(server), purpose, ..Call::default() }, &timers, &outputs)
    }

    /// Checks that, while the load balancer is open, only services are cleared. Also checks that
    /// the generations of the services match those of their connections.
    pub(crate) fn judge_services(&mut self, call: Call, outputs: &Outputs) -> Result<(), String> {
        let Some(server) = self.watches.first().map(|own| own.id) else {
            return Ok(());
        };
        let expected = |output: &Output| match output {
            Output::PoolClear { .. } => call.purpose == Purpose::Service,
            Output::Choose | Output::Probe { .. } | Output::Finish(_) => self.start.is_inline(),
            _ => false,
        };
        ensure(outputs.iter().all(expected), || {
            format!("I-50, J-21: a load balancer has the outputs {outputs:?}")
        })?;
        for (number, service) in (0..).zip(&self.services) {
            let current = self.generation_of(server, number);
            let holds = |own: &Tunnel| {
                if own.stale {
                    Some(own.generation) < current
                } else {
                    Some(own.generation) == current
                }
            };
            ensure(service.open.iter().chain(&service.closed).all(holds), || {
                format!("I-3, F-67: service {number} has generation {current:?}, and {service:?}")
            })?;
        }
        let before = self.key();
        self.check_unwatched(server)?;
        let waits = self.deployment.deadline(true).is_some();
        ensure(!waits && self.key() == before, || {
            format!("D-12, H-14: checks concern a load balancer: {:?}", self.deployment)
        })
    }

    /// Hashes the connections, and how far their generations lag behind the current ones.
    pub(crate) fn write_services(&self, hasher: &mut impl Hasher) {
        let server = self.watches.first().map(|own| own.id);
        for (number, service) in (0..).zip(&self.services) {
            let current = server.and_then(|server| self.generation_of(server, number));
            let current = current.map_or(0, Generation::as_u64);
            service.open.len().hash(hasher);
            for own in service.open.iter().chain(&service.closed) {
                let distance = current.saturating_sub(own.generation.as_u64());
                (distance.min(FARTHEST), own.stale, own.gone).hash(hasher);
            }
        }
    }

    fn generation_of(&self, server: ServerId, service: u8) -> Option<Generation> {
        self.deployment.generation(server, Some(id(service)))
    }
}

fn hello(service: u8) -> Hello {
    let mut hello = Reply::member(Role::Mongos).hello(0);
    hello.service_id = Some(id(service));
    hello
}
