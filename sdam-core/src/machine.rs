//! The state machine of a topology: takes inputs, returns effects.

mod application;
#[cfg(test)]
mod tests;
mod transition;
mod update;

use alloc::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    vec::Vec,
};

use crate::{
    actions::Actions,
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    event::EventKind,
    hello::Hello,
    ids::{Generation, ObjectId, ServerId},
    options::Options,
    pool::PoolClear,
    server::{Rtt, ServerDescription},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

/// An input to the topology machine.
#[derive(Debug)]
pub enum Input<'a> {
    /// Opens the topology: publishes the opening events and adds the seeds as servers. Repetitions
    /// are ignored.
    Open,
    /// A check has ended. Ignored for a load balancer.
    Checked {
        /// The id of the checked server.
        server: ServerId,
        /// The reply or the error.
        outcome: Result<Hello, Error>,
        /// The server's round-trip times after the check; present if the check succeeded.
        rtt: Option<Rtt>,
    },
    /// A pooled connection was opened and its handshake was answered.
    ///
    /// Behind a load balancer, the connection is counted for the service in the reply, and takes
    /// the generation of that service.
    Handshake {
        /// The id of the connection's server.
        server: ServerId,
        /// The generation under which the connection was opened; ignored behind a load balancer.
        generation: Generation,
        /// The reply.
        hello: Hello,
        /// The server's round-trip times, as measured by its monitor.
        rtt: Option<Rtt>,
    },
    /// A connection to a service behind a load balancer, reported earlier as `Handshake`, was
    /// closed. The service is forgotten when its last connection is closed (CMAP: "Load Balancer
    /// Mode").
    ServiceConnectionClosed {
        /// The load balancer.
        server: ServerId,
        /// The service.
        service: ObjectId,
        /// The generation of the connection.
        generation: Generation,
    },
    /// The hosts from a look-up of the SRV record, already validated and sampled.
    Hosts(&'a [ServerAddress]),
    /// A server's check ended because of a fault in this program: its transport has panicked, or
    /// its task was dropped. The next check, if there is one, comes no sooner than
    /// `minHeartbeatFrequencyMS` from now. Ignored for a load balancer.
    MonitorDied {
        /// The id of the monitored server.
        server: ServerId,
    },
    /// Closes the topology: removes every server, publishes the closing events and ignores all
    /// later inputs.
    Close,
}

/// An action for the caller to perform.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Create the server's pool. Start its monitor after all other effects have run.
    OpenServer {
        /// The new server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// True if the server must be monitored; a load balancer is not.
        monitored: bool,
    },
    /// Mark the server's pool ready. Not repeated until the pool has been cleared.
    PoolReady {
        /// The server id.
        server: ServerId,
    },
    /// Make this description visible to readers.
    Publish(Arc<TopologyDescription>),
    /// Append the event to the event queue.
    Emit(EventKind),
    /// Clear the server's pool.
    PoolClear {
        /// The server id.
        server: ServerId,
        /// The clear and its cause.
        clear: PoolClear,
    },
    /// Close the server's pool and stop its monitor.
    CloseServer {
        /// The server id.
        server: ServerId,
    },
    /// Reset the server's round-trip times: the server was lost, or its check has failed again.
    ResetRtt {
        /// The server id.
        server: ServerId,
    },
    /// Close the connection of the server's monitor, and cancel its running check.
    CancelCheck {
        /// The server id.
        server: ServerId,
    },
    /// Ask the server's monitor to check soon.
    #[doc(alias = "requestImmediateCheck")]
    RequestCheck {
        /// The server id.
        server: ServerId,
    },
}

/// Effects in the order in which they must run: open, ready, publish, emit, reset round-trip times,
/// clear, close, then all other effects on monitors.
///
/// "Ready before publish" means that no reader sees a selectable server with a paused pool. "Clear
/// after publish" means that no reader of the new description gets a connection of the old
/// generation (SDAM: "Why synchronize clearing a server's pool with updating the topology?"). The
/// opening events of a load-balanced topology come before the "ready" of its single pool, and
/// `TopologyClosed` comes last, because pools publish events while they close.
pub type Effects = Actions<Effect>;

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

/// The services of one load balancer (CMAP: "Load Balancer Mode").
///
/// A service is known while a connection to it is open. When its last connection is closed, it is
/// forgotten, and `fresh` is raised above its generation. When the service returns, its generation
/// exceeds that of all its earlier connections, so their late errors are stale.
#[derive(Clone, Debug, Default)]
struct Services {
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
    fn generation(&self, service: ObjectId) -> Generation {
        self.known.get(&service).map_or(self.fresh, |known| known.generation)
    }

    /// Counts a new connection to `service`.
    fn opened(&mut self, service: ObjectId) {
        let known = self.entry(service);
        known.connections = known.connections.saturating_add(1);
    }

    /// Notes that a connection to `service` with this generation was closed.
    fn closed(&mut self, service: ObjectId, generation: Generation) {
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
    fn clear(&mut self, service: ObjectId) -> Generation {
        let known = self.entry(service);
        known.generation = known.generation.next();
        known.generation
    }

    /// Writes each known service with its id. Differences between generations are capped at 2,
    /// because larger ones have the same effect.
    #[cfg(feature = "model")]
    fn write_key(&self, hasher: &mut impl core::hash::Hasher) {
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

/// Keys that distinguish the states of a topology.
#[cfg(feature = "model")]
mod key {
    use core::hash::{Hash, Hasher};

    use super::TopologyMachine;
    use crate::{ids::Generation, server::ServerDescription};

    impl TopologyMachine {
        /// Writes all state that determines the behavior of the topology. For an error, the key
        /// contains only the kind, the stage and the code.
        pub(crate) fn write_key(&self, hasher: &mut impl Hasher) {
            let topology = &self.description;
            (self.phase as u8, topology.topology_type, &topology.set_name).hash(hasher);
            (topology.max_election, topology.servers.len()).hash(hasher);
            for server in &topology.servers {
                write(server, hasher);
                if let Some(pool) = self.pool(server.id) {
                    // Only the first generation is special: no connection can have an earlier one.
                    (pool.ready, pool.generation > Generation::FIRST).hash(hasher);
                    pool.services.write_key(hasher);
                }
            }
        }
    }

    fn write(server: &ServerDescription, hasher: &mut impl Hasher) {
        (&server.address, server.server_type, server.wire_versions, &server.me).hash(hasher);
        (&server.hosts, &server.passives, &server.arbiters, &server.set_name).hash(hasher);
        (server.election, &server.primary, server.topology_version).hash(hasher);
        let error = server.error.as_ref();
        error.map(|error| (error.kind(), error.stage(), error.code())).hash(hasher);
    }
}
