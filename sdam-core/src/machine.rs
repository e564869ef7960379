//! The state machine of a topology: takes inputs, returns effects.

mod application;
mod effects;
mod input;
#[cfg(feature = "model")]
mod key;
mod open_close;
mod services;
mod transition;
mod update;

#[cfg(test)]
mod tests;

use alloc::{sync::Arc, vec::Vec};

use self::services::Services;
pub use self::{
    effects::{Effect, Effects},
    input::Input,
};
use crate::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    hello::Hello,
    ids::{Generation, ObjectId, ServerId},
    options::Options,
    server::{Rtt, ServerDescription},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

/// The state of one topology, and all rules for changing it (SDAM: "TopologyDescription").
///
/// The machine performs no actions itself: it returns [`Effects`], in the order of the
/// specification. It cannot fail; inputs that do not match its state are ignored.
#[doc(alias(
    "updateUnknownWithStandalone",
    "updateRSWithoutPrimary",
    "updateRSWithPrimaryFromMember",
    "updateRSFromPrimary",
    "checkIfHasPrimary"
))]
#[derive(Clone, Debug)]
pub struct TopologyMachine {
    options: Arc<Options>,
    phase: LifePhase,
    description: Arc<TopologyDescription>,
    /// The state of each server's pool, sorted by server id.
    pools: Vec<Pool>,
    /// The number of members that were ignored most recently because of `max_servers`.
    ignored: usize,
    last_id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LifePhase {
    New,
    Open,
    Closed,
}

/// The state of a server's pool according to the effects returned so far.
#[derive(Clone, Debug)]
struct Pool {
    server: ServerId,
    address: ServerAddress,
    generation: Generation,
    /// Behind a load balancer: the services to which connections are open.
    services: Services,
    ready: bool,
}

impl TopologyMachine {
    /// Creates a topology that is not open yet. `options` should be validated.
    pub fn new(options: &Options) -> Self {
        Self {
            options: Arc::new(options.clone()),
            phase: LifePhase::New,
            description: Arc::default(),
            pools: Vec::new(),
            ignored: 0,
            last_id: 0,
        }
    }

    /// Processes an input at `now` and returns the effects.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) -> Effects {
        let is_open = self.phase == LifePhase::Open;
        // A load balancer never becomes Unknown, so check results are ignored (I-50).
        let is_checked = is_open && self.options.topology_type() != TopologyType::LoadBalanced;
        match input {
            Input::Open if self.phase == LifePhase::New => self.open(),
            Input::Close if is_open => self.close(),
            Input::Checked { server, outcome, rtt } if is_checked => {
                self.checked(now, server, outcome, rtt)
            }
            Input::Handshake { server, generation, hello, rtt } => {
                self.handshake(now, server, generation, hello, rtt)
            }
            Input::Hosts(hosts) if is_open => self.hosts(now, hosts),
            Input::MonitorDied { server } if is_checked => self.monitor_died(now, server),
            Input::Close => {
                self.phase = LifePhase::Closed;
                Effects::default()
            }
            Input::ServiceConnectionClosed { server, service, generation } => {
                if let Some(pool) = self.pool_mut(server) {
                    pool.services.closed(service, generation);
                }
                Effects::default()
            }
            Input::Open | Input::Checked { .. } | Input::Hosts(_) | Input::MonitorDied { .. } => {
                Effects::default()
            }
        }
    }

    /// Returns the current description of the topology.
    pub fn description(&self) -> &Arc<TopologyDescription> {
        &self.description
    }

    /// Returns whether the topology was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase == LifePhase::Closed
    }

    /// Returns the generation for new connections of the server's pool or, behind a load balancer,
    /// for new connections to `service`.
    pub(crate) fn generation(
        &self,
        server: ServerId,
        service: Option<ObjectId>,
    ) -> Option<Generation> {
        let pool = self.pool(server)?;
        Some(match service {
            None => pool.generation,
            Some(service) => pool.services.generation(service),
        })
    }

    /// Returns whether the server's type is known, regardless of the source.
    pub(crate) fn is_known(&self, server: ServerId) -> bool {
        let current = self.current(server);
        current.is_some_and(|current| current.server_type.is_available())
    }

    fn pool(&self, server: ServerId) -> Option<&Pool> {
        let index = self.pools.binary_search_by_key(&server, |pool| pool.server).ok()?;
        self.pools.get(index)
    }

    fn pool_mut(&mut self, server: ServerId) -> Option<&mut Pool> {
        let index = self.pools.binary_search_by_key(&server, |pool| pool.server).ok()?;
        self.pools.get_mut(index)
    }

    /// Processes the outcome of a check (Server Monitoring). A success with an old topology
    /// version is ignored.
    fn checked(
        &mut self,
        now: Instant,
        server: ServerId,
        outcome: Result<Hello, Error>,
        rtt: Option<Rtt>,
    ) -> Effects {
        // A server without a pool has left the topology, so this late result is ignored.
        let Some(current) = self.current(server) else {
            return Effects::default();
        };
        // A failed check closes the monitor's connection, regardless of the error's topology
        // version, so only a success can be stale (F-50).
        if let Ok(hello) = &outcome
            && current.is_newer_than_reply(hello.topology_version)
        {
            return Effects::default();
        }
        let address = current.address.clone();
        match outcome {
            Ok(hello) => {
                let new = ServerDescription::from_hello(server, address, hello, rtt, now);
                self.update(now, new, update::Consequences { checked: true, ..Default::default() })
            }
            Err(error) => {
                let interrupt_in_use = error.kind() == ErrorKind::Timeout;
                let error = error.without_context();
                let mut new = ServerDescription::failed(server, address, error.clone(), now);
                if current.is_newer_than_reply(new.topology_version) {
                    // An older topology version does not replace the known one.
                    new.topology_version = None;
                }
                let clear = Some(update::Clear { cause: error, interrupt_in_use });
                self.update(now, new, update::Consequences { clear, ..Default::default() })
            }
        }
    }

    /// Processes a pooled connection's handshake, which counts like a successful check. This is the
    /// counterpart of SDAM: "Network error when reading or writing".
    fn handshake(
        &mut self,
        now: Instant,
        server: ServerId,
        generation: Generation,
        hello: Hello,
        rtt: Option<Rtt>,
    ) -> Effects {
        if self.description.topology_type() == TopologyType::LoadBalanced {
            if let (Some(pool), Some(service)) = (self.pool_mut(server), hello.service_id) {
                pool.services.opened(service);
            }
            return Effects::default();
        }
        let Some(current) = self.current(server) else {
            return Effects::default();
        };
        if self.generation(server, None).is_none_or(|own| generation < own)
            || current.is_newer_than_reply(hello.topology_version)
        {
            return Effects::default();
        }
        // Selection compares round-trip times. A server without any therefore keeps its description
        // until its monitor has checked it, and that check is requested here.
        if rtt.is_none() {
            return Effects::one(Effect::RequestCheck { server });
        }
        let address = current.address.clone();
        // After an operation's error, the monitor may be disconnected, and its next check may be a
        // long time away.
        let request_check = !current.server_type.is_available();
        let new = ServerDescription::from_hello(server, address, hello, rtt, now);
        self.update(
            now,
            new,
            update::Consequences { checked: true, request_check, ..Default::default() },
        )
    }

    fn monitor_died(&mut self, now: Instant, server: ServerId) -> Effects {
        let Some(current) = self.current(server) else {
            return Effects::default();
        };
        let error = Error::new(
            ErrorKind::Internal,
            Stage::Hello,
            "the runtime dropped the task that checks the server",
        );
        let new = ServerDescription::failed(server, current.address.clone(), error, now);
        self.update(now, new, update::Consequences::default())
    }

    /// Returns the server's current description; `None` if the server has left.
    fn current(&self, server: ServerId) -> Option<&Arc<ServerDescription>> {
        self.description.server(&self.pool(server)?.address)
    }

    fn next_id(last_id: &mut u64) -> ServerId {
        *last_id += 1;
        ServerId::from_u64(*last_id)
    }
}

impl Pool {
    fn new(server: ServerId, address: ServerAddress) -> Self {
        Self {
            server,
            address,
            generation: Generation::FIRST,
            services: Services::default(),
            ready: false,
        }
    }

    /// Advances the generation for a clear and returns it.
    fn clear(&mut self) -> Generation {
        self.generation = self.generation.next();
        self.ready = false;
        self.generation
    }
}
