//! The state machine of a topology: outcomes in, effects out.

mod application;
mod effects;
mod open_close;
mod services;
mod transition;
mod update;

#[cfg(test)]
mod tests;

use alloc::{sync::Arc, vec::Vec};

pub use self::effects::{Effect, Effects};
use self::services::Services;
use crate::{
    address::ServerAddress,
    error::{ErrorKind, ServerError, Stage},
    hello::Hello,
    ids::{Generation, ObjectId, ServerId},
    monitor::ServerStatus,
    options::Options,
    server::{Rtt, ServerDescription, WireVersions},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

/// What the topology is told.
#[derive(Debug)]
pub enum Input<'a> {
    /// Begin: publish the opening events and open the seeds. Counts once.
    Open,
    /// A check has ended.
    Checked {
        /// The incarnation that was checked.
        server: ServerId,
        /// What came of it.
        outcome: Result<Hello, ServerError>,
        /// The server's round-trip times after the check; there are some if it has succeeded.
        rtt: Option<Rtt>,
    },
    /// A pooled connection has been opened and its handshake was answered.
    ///
    /// Behind a load balancer the connection counts for the service that the reply names, and its
    /// generation is from now on that of the [service](TopologyMachine::generation).
    Handshake {
        /// The incarnation it belongs to.
        server: ServerId,
        /// The generation the connection was opened under; of no interest behind a load balancer.
        generation: Generation,
        /// The reply.
        hello: Hello,
        /// The server's round-trip times, as its monitor has measured them.
        rtt: Option<Rtt>,
    },
    /// A connection to a service behind a load balancer is closed, whose handshake was told before.
    /// With its last connection the service is forgotten (CMAP: "Load Balancer Mode").
    ServiceConnectionClosed {
        /// The load balancer.
        server: ServerId,
        /// The service.
        service: ObjectId,
        /// The generation of the connection.
        generation: Generation,
    },
    /// A look-up of the SRV record has yielded these hosts, already validated and sampled.
    Hosts(&'a [ServerAddress]),
    /// The monitor of a server has ended without being told to. Whoever says so starts over, with a
    /// first check no sooner than `minHeartbeatFrequencyMS` from now; see
    /// [`MonitorMachine::successor`](crate::monitor::MonitorMachine::successor).
    MonitorDied {
        /// The incarnation it watched.
        server: ServerId,
    },
    /// End: remove every server, publish the closing events, ignore everything from now on.
    Close,
}

/// The state of one topology, and every rule of how it changes (SDAM: "TopologyDescription").
///
/// The machine performs nothing itself: what has to happen is returned as [`Effects`], whose order
/// is the specification's. It cannot fail; whatever is out of place is ignored.
#[derive(Clone, Debug)]
pub struct TopologyMachine {
    config: Config,
    topology: ObjectId,
    phase: LifePhase,
    description: Arc<TopologyDescription>,
    /// What is remembered of each server's pool, sorted by incarnation.
    pools: Vec<Pool>,
    /// How many members were last found to be too many.
    ignored: usize,
    last_id: u64,
}

/// The options that matter to the machine.
#[derive(Clone, Debug)]
struct Config {
    initial_type: TopologyType,
    /// Each once.
    seeds: Vec<ServerAddress>,
    set_name: Option<Arc<str>>,
    wire_versions: WireVersions,
    driver_name: Arc<str>,
    max_servers: usize,
    handshake_errors_mark_unknown: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LifePhase {
    New,
    Open,
    Closed,
}

/// The state of a server's pool, as commanded so far.
#[derive(Clone, Debug)]
struct Pool {
    server: ServerId,
    address: ServerAddress,
    generation: Generation,
    /// Behind a load balancer: the services that connections lead to.
    services: Services,
    ready: bool,
}

impl TopologyMachine {
    /// A topology that has not been opened. `options` should be validated.
    pub fn new(options: &Options, topology: ObjectId) -> Self {
        Self {
            config: Config {
                initial_type: options.topology_type(),
                seeds: options.distinct_seeds(),
                set_name: options.replica_set.clone(),
                wire_versions: options.wire_versions,
                driver_name: options.driver_name.clone(),
                max_servers: options.max_servers,
                handshake_errors_mark_unknown: options.handshake_errors_mark_unknown,
            },
            topology,
            phase: LifePhase::New,
            description: Arc::default(),
            pools: Vec::new(),
            ignored: 0,
            last_id: 0,
        }
    }

    /// Takes in what happened at `now`.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) -> Effects {
        let is_open = self.phase == LifePhase::Open;
        match input {
            Input::Open if self.phase == LifePhase::New => self.open(),
            Input::Close if is_open => self.close(),
            Input::Checked {
                server,
                outcome,
                rtt,
            } if is_open => self.checked(now, server, outcome, rtt),
            Input::Handshake {
                server,
                generation,
                hello,
                rtt,
            } if is_open => self.handshake(now, server, generation, hello, rtt),
            Input::Hosts(hosts) if is_open => self.hosts(now, hosts),
            Input::MonitorDied { server } if is_open => self.monitor_died(now, server),
            Input::Close => {
                self.phase = LifePhase::Closed;
                Effects::default()
            }
            Input::ServiceConnectionClosed {
                server,
                service,
                generation,
            } => {
                if let Some(pool) = self.pool_mut(server) {
                    pool.services.closed(service, generation);
                }
                Effects::default()
            }
            Input::Open
            | Input::Checked { .. }
            | Input::Handshake { .. }
            | Input::Hosts(_)
            | Input::MonitorDied { .. } => Effects::default(),
        }
    }

    /// What is known now.
    pub fn description(&self) -> &Arc<TopologyDescription> {
        &self.description
    }

    /// Whether the topology was closed.
    pub fn is_closed(&self) -> bool {
        self.phase == LifePhase::Closed
    }

    /// The id of the topology.
    pub fn topology(&self) -> ObjectId {
        self.topology
    }

    /// The generation of connections that the server's pool opens now; behind a load balancer,
    /// that of connections to `service`.
    pub fn generation(&self, server: ServerId, service: Option<ObjectId>) -> Option<Generation> {
        let pool = self.pool(server)?;
        Some(match service {
            None => pool.generation,
            Some(service) => pool.services.generation(service),
        })
    }

    /// What the server's monitor is told of it; see
    /// [`MonitorMachine::handle`](crate::monitor::MonitorMachine::handle).
    pub fn status(&self, server: ServerId) -> ServerStatus {
        let current = self.current(server);
        ServerStatus {
            generation: self.generation(server, None).unwrap_or_default(),
            known: current.is_some_and(|current| current.server_type.is_available()),
        }
    }

    fn pool(&self, server: ServerId) -> Option<&Pool> {
        let index = self
            .pools
            .binary_search_by_key(&server, |pool| pool.server)
            .ok()?;
        self.pools.get(index)
    }

    fn pool_mut(&mut self, server: ServerId) -> Option<&mut Pool> {
        let index = self
            .pools
            .binary_search_by_key(&server, |pool| pool.server)
            .ok()?;
        self.pools.get_mut(index)
    }

    /// Server Monitoring: the outcome of a check; a success is judged by its topology version first.
    fn checked(
        &mut self,
        now: Instant,
        server: ServerId,
        outcome: Result<Hello, ServerError>,
        rtt: Option<Rtt>,
    ) -> Effects {
        // Without a pool the server has left the topology, and late results are of no interest.
        let Some(current) = self.current(server) else {
            return Effects::default();
        };
        // F-50: a check that failed has cost the monitor its connection, whatever version the error
        // carries, so only good news can be too old.
        if let Ok(hello) = &outcome
            && current.is_newer_than_reply(hello.topology_version)
        {
            return Effects::default();
        }
        let address = current.address.clone();
        match outcome {
            Ok(hello) => {
                let new = ServerDescription::from_hello(server, address, hello, rtt, now);
                self.update(
                    now,
                    new,
                    update::Consequences {
                        checked: true,
                        ..Default::default()
                    },
                )
            }
            Err(error) => {
                let interrupt_in_use = error.is_timeout();
                let error = error.shared();
                let mut new = ServerDescription::failed(server, address, error.clone(), now);
                if current.is_newer_than_reply(new.topology_version) {
                    // nothing older replaces what is known.
                    new.topology_version = None;
                }
                let clear = Some(update::Clear {
                    cause: error,
                    interrupt_in_use,
                });
                self.update(
                    now,
                    new,
                    update::Consequences {
                        clear,
                        ..Default::default()
                    },
                )
            }
        }
    }

    /// SDAM: "Network error when reading or writing" has its counterpart in good news: a pooled
    /// connection's handshake tells as much as a check.
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
        if self
            .generation(server, None)
            .is_none_or(|own| generation < own)
            || current.is_newer_than_reply(hello.topology_version)
        {
            return Effects::default();
        }
        // Without a round-trip time the server could not be compared with others, so one that was
        // never measured is left to its monitor, which is told to hurry.
        if rtt.is_none() {
            return Effects::one(Effect::RequestCheck { server });
        }
        let address = current.address.clone();
        // The monitor may have no connection, and a long wait before it, because of what an
        // operation has met.
        let request_check = !current.server_type.is_available();
        let new = ServerDescription::from_hello(server, address, hello, rtt, now);
        self.update(
            now,
            new,
            update::Consequences {
                checked: true,
                request_check,
                ..Default::default()
            },
        )
    }

    fn monitor_died(&mut self, now: Instant, server: ServerId) -> Effects {
        let Some(current) = self.current(server) else {
            return Effects::default();
        };
        let error = ServerError::new(
            ErrorKind::Internal,
            Stage::Hello,
            "the monitor of the server ended unexpectedly",
        );
        let new = ServerDescription::failed(server, current.address.clone(), error.shared(), now);
        self.update(now, new, update::Consequences::default())
    }

    /// The current description of an incarnation; `None` if it has left.
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

    /// Counts a clear and says which generation is the current one from now on.
    fn clear(&mut self) -> Generation {
        self.generation = self.generation.next();
        self.ready = false;
        self.generation
    }
}
