//! The topology: the part of a deployment that judges replies and errors, and holds the descriptions
//! and the generations of pools.

mod transition;
mod update;

use alloc::{
    boxed::Box,
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    vec::Vec,
};

use smallvec::SmallVec;

use self::update::{Clear, KEEPS_CONNECTIONS, Verdict};
use super::{Outputs, server::Consequences};
use crate::{
    address::ServerAddress,
    error::{Error, ErrorKind, ErrorOutcome, Stage, StateChange},
    hello::Hello,
    ids::{Generation, ObjectId, ServerId},
    monitor::CheckOutcome,
    options::Options,
    pool::PoolClear,
    report::ErrorReport,
    server::{Rtt, ServerDescription},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

/// The state of one topology, and all rules for changing it (SDAM: "TopologyDescription").
///
/// Each method for a change writes outputs in the order of the specification, and returns what the
/// other parts of the deployment have to do. Changes that do not match the state are ignored.
#[doc(alias(
    "updateUnknownWithStandalone",
    "updateRSWithoutPrimary",
    "updateRSWithPrimaryFromMember",
    "updateRSFromPrimary",
    "checkIfHasPrimary"
))]
#[derive(Clone, Debug)]
pub(super) struct Topology {
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

impl Topology {
    /// Creates a topology that is not open yet. `options` should be validated.
    pub(super) fn new(options: Arc<Options>) -> Self {
        Self {
            options,
            phase: LifePhase::New,
            description: Arc::default(),
            pools: Vec::new(),
            ignored: 0,
            last_id: 0,
        }
    }

    /// Returns the current description of the topology.
    pub(super) fn description(&self) -> &Arc<TopologyDescription> {
        &self.description
    }

    /// Returns whether the topology was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.phase == LifePhase::Closed
    }

    /// Returns the generation for new connections of the server's pool or, behind a load balancer,
    /// for new connections to `service`.
    pub(super) fn generation(
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

    /// Returns whether the server's type is known from a check or from the handshake of a pooled
    /// connection: it is neither Unknown nor PossiblePrimary.
    pub(super) fn is_known(&self, server: ServerId) -> bool {
        let current = self.current(server);
        current.is_some_and(|current| current.server_type.is_available())
    }

    /// Processes the outcome of a check (Server Monitoring). A success with an old topology version
    /// is ignored. `rtt` is present if the check succeeded.
    pub(super) fn checked(
        &mut self,
        now: Instant,
        server: ServerId,
        outcome: CheckOutcome,
        rtt: Option<Rtt>,
        out: &mut Outputs,
    ) -> Consequences {
        // A server without a pool has left the topology, so this late result is ignored.
        let Some(current) = self.checked_server(server) else {
            return Consequences::default();
        };
        // A failed check closes the monitor's connection, regardless of the error's topology
        // version, so only a success can be stale (F-50).
        if let Ok(hello) = &outcome
            && current.is_newer_than_reply(hello.topology_version)
        {
            return Consequences::default();
        }
        let address = current.address.clone();
        match outcome {
            Ok(hello) => {
                let new = ServerDescription::from_hello(server, address, *hello, rtt, now);
                self.update(now, new, Verdict { checked: true, ..Verdict::default() }, out)
            }
            Err(error) => {
                let interrupt_in_use = error.kind() == ErrorKind::Timeout;
                let error = error.without_context();
                let mut new = ServerDescription::failed(server, address, error.clone(), now);
                if current.is_newer_than_reply(new.topology_version) {
                    // An older topology version does not replace the known one.
                    new.topology_version = None;
                }
                let clear = Some(Clear { cause: error, interrupt_in_use });
                self.update(now, new, Verdict { clear, ..Verdict::default() }, out)
            }
        }
    }

    /// Processes the end of a check because of a fault in this program: its transport has panicked,
    /// or its task was dropped.
    pub(super) fn monitor_died(
        &mut self,
        now: Instant,
        server: ServerId,
        out: &mut Outputs,
    ) -> Consequences {
        let Some(current) = self.checked_server(server) else {
            return Consequences::default();
        };
        let error = Error::new(
            ErrorKind::Internal,
            Stage::Hello,
            "the runtime dropped the task that checks the server",
        );
        let new = ServerDescription::failed(server, current.address.clone(), error, now);
        self.update(now, new, Verdict::default(), out)
    }

    /// Processes a pooled connection's handshake, which counts like a successful check. This is the
    /// counterpart of SDAM: "Network error when reading or writing". `rtt` contains the
    /// measurements of the server's monitor.
    ///
    /// Behind a load balancer, the connection is counted for the service in the reply, and takes the
    /// generation of that service.
    pub(super) fn handshake(
        &mut self,
        now: Instant,
        (server, generation): (ServerId, Generation),
        hello: Box<Hello>,
        rtt: Option<Rtt>,
        out: &mut Outputs,
    ) -> Consequences {
        let ignored = Consequences::default();
        if self.is_load_balanced() {
            if let (Some(pool), Some(service)) = (self.pool_mut(server), hello.service_id) {
                pool.services.opened(service);
            }
            return ignored;
        }
        let Some(current) = self.current(server) else {
            return ignored;
        };
        if self.generation(server, None).is_none_or(|own| generation < own)
            || current.is_newer_than_reply(hello.topology_version)
        {
            return ignored;
        }
        // Selection compares round-trip times. A server without round-trip times therefore keeps
        // its description until its monitor has checked it, and that check is requested here.
        if rtt.is_none() {
            return Consequences { check: SmallVec::from_slice(&[server]), ..ignored };
        }
        let address = current.address.clone();
        // After an operation's error, the monitor may be disconnected, and its next check may be a
        // long time away.
        let request_check = !current.server_type.is_available();
        let new = ServerDescription::from_hello(server, address, *hello, rtt, now);
        self.update(now, new, Verdict { checked: true, request_check, ..Verdict::default() }, out)
    }

    /// Counts down the connections to a service behind a load balancer. The service is forgotten
    /// when its last connection is closed (CMAP: "Load Balancer Mode").
    pub(super) fn service_connection_closed(
        &mut self,
        server: ServerId,
        service: ObjectId,
        generation: Generation,
    ) {
        if let Some(pool) = self.pool_mut(server) {
            pool.services.closed(service, generation);
        }
    }

    /// Processes an error from an operation or a pool (SDAM: "Error handling").
    ///
    /// Any error may be reported. An error that does not concern the server's state, or is outdated,
    /// changes nothing.
    #[doc(alias = "isStateChangeError")]
    pub(super) fn error(
        &mut self,
        now: Instant,
        server: ServerId,
        report: &ErrorReport,
        out: &mut Outputs,
    ) -> (ErrorOutcome, Consequences) {
        let ignored = |outcome| (outcome, Consequences::default());
        let Some(current) = self.current(server).map(Arc::clone) else {
            return ignored(ErrorOutcome::UnknownServer);
        };
        let load_balanced = self.is_load_balanced();
        let service = report.service_id.filter(|_| load_balanced);
        if self.generation(server, service).is_none_or(|own| report.generation < own) {
            return ignored(ErrorOutcome::Stale);
        }
        if current.is_newer_than_error(report.error.topology_version()) {
            return ignored(ErrorOutcome::Stale);
        }
        let Some((error, verdict)) = self.judge(report) else {
            return ignored(ErrorOutcome::Irrelevant);
        };
        let clears = verdict.clear.is_some();
        if load_balanced {
            let counts = clears && !error.stage().is_before_hello_completes();
            return match service.filter(|_| counts) {
                Some(service) => self.clear_service(server, service, error),
                None => ignored(ErrorOutcome::Irrelevant),
            };
        }
        let outcome = if clears { ErrorOutcome::Cleared } else { ErrorOutcome::MarkedUnknown };
        let new = ServerDescription::failed(server, current.address.clone(), error, now);
        (outcome, self.update(now, new, verdict, out))
    }

    /// Returns the error without its context, together with the verdict; `None` if the error does
    /// not concern the server.
    fn judge(&self, report: &ErrorReport) -> Option<(Error, Verdict)> {
        let error = report.error.clone().without_context();
        // Check-out errors and invalid commands say nothing about the server.
        if error.stage() == Stage::CheckOut || error.kind() == ErrorKind::Invalid {
            return None;
        }
        let establishing = error.stage().is_before_handshake_completes();
        if establishing
            && error.is_overload()
            && !self.options.deviations.handshake_errors_mark_unknown
        {
            return None;
        }
        let state_change = error.state_change();
        let verdict = |clears: bool, cancel_check, request_check| Verdict {
            clear: clears.then(|| Clear { cause: error.clone(), interrupt_in_use: false }),
            cancel_check,
            request_check,
            checked: false,
        };
        let verdict = if let (Some(state_change), false) = (state_change, establishing) {
            let clears = state_change == StateChange::ShuttingDown
                || report.max_wire_version.is_some_and(|own| own < KEEPS_CONNECTIONS);
            verdict(clears, false, true)
        } else if establishing || error.kind() == ErrorKind::Network {
            // A server that reports a state change is alive, so its running check is not cancelled;
            // another check is requested instead. A failed authentication always cancels the
            // running check (I-14).
            let cancel_check = state_change.is_none() || error.stage() == Stage::Auth;
            verdict(true, cancel_check, state_change.is_some())
        } else {
            return None;
        };
        Some((error, verdict))
    }

    /// Clears one service (Load Balancers: "Error handling"): only its connections become stale,
    /// and the load balancer's description never changes.
    fn clear_service(
        &mut self,
        server: ServerId,
        service: ObjectId,
        error: Error,
    ) -> (ErrorOutcome, Consequences) {
        let mut consequences = Consequences::default();
        let Some(pool) = self.pool_mut(server) else {
            return (ErrorOutcome::UnknownServer, consequences);
        };
        let mut clear = PoolClear::new(pool.services.clear(service), error);
        clear.service_id = Some(service);
        consequences.cleared.push((server, clear));
        (ErrorOutcome::ServiceCleared, consequences)
    }

    fn is_load_balanced(&self) -> bool {
        self.description.topology_type() == TopologyType::LoadBalanced
    }

    fn pool(&self, server: ServerId) -> Option<&Pool> {
        let index = self.pools.binary_search_by_key(&server, |pool| pool.server).ok()?;
        self.pools.get(index)
    }

    fn pool_mut(&mut self, server: ServerId) -> Option<&mut Pool> {
        let index = self.pools.binary_search_by_key(&server, |pool| pool.server).ok()?;
        self.pools.get_mut(index)
    }

    /// Returns the server's current description; `None` if the server has left.
    fn current(&self, server: ServerId) -> Option<&Arc<ServerDescription>> {
        self.description.server(&self.pool(server)?.address)
    }

    /// Returns the current description of a server that is checked. A load balancer never becomes
    /// Unknown, so it is not checked (I-50).
    fn checked_server(&self, server: ServerId) -> Option<&Arc<ServerDescription>> {
        self.current(server).filter(|_| !self.is_load_balanced())
    }

    fn next_id(last_id: &mut u64) -> ServerId {
        *last_id += 1;
        ServerId::from_u64(*last_id)
    }
}

/// The state of a server's pool according to the outputs so far.
#[derive(Clone, Debug)]
struct Pool {
    server: ServerId,
    address: ServerAddress,
    generation: Generation,
    /// Behind a load balancer: the services to which connections are open.
    services: Services,
    ready: bool,
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

    /// Marks the pool as not ready, and returns its next generation.
    fn clear(&mut self) -> Generation {
        self.generation = self.generation.next();
        self.ready = false;
        self.generation
    }
}

/// The services of one load balancer (CMAP: "Load Balancer Mode").
///
/// A service is known while a connection to it is open. When the last connection is closed, the
/// service is forgotten, and `fresh` is raised above the service's generation. A service that
/// returns therefore has a greater generation than all its earlier connections, so late errors of
/// these connections are stale.
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

    use super::Topology;
    use crate::{ids::Generation, server::ServerDescription};

    impl Topology {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn service(number: u8) -> ObjectId {
        ObjectId::from_bytes([number; 12])
    }

    #[test]
    fn a_service_without_connections_is_forgotten() {
        let mut services = Services::default();
        for number in 0..=255 {
            services.opened(service(number));
            let generation = services.generation(service(number));
            if number % 2 == 0 {
                services.clear(service(number));
            }
            services.closed(service(number), generation);
        }
        assert!(services.known.is_empty(), "{services:?}");
    }

    #[test]
    fn a_service_without_reported_handshakes_has_the_first_generation() {
        let mut services = Services::default();
        for generation in 0..3 {
            assert_eq!(services.generation(service(1)).as_u64(), generation);
            services.clear(service(1));
        }
        assert_eq!(services.generation(service(2)), Generation::FIRST);
    }
}
