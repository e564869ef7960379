//! Opens and closes a topology, applies changes of its SRV record, and holds the table of topology
//! types and server types, with its actions (SDAM: "Updating the TopologyDescription").

use alloc::{format, string::ToString, sync::Arc, vec::Vec};
use core::mem;

use smallvec::SmallVec;

use super::{Consequences, LifePhase, Pool, Topology, update::Verdict};
use crate::{
    address::ServerAddress,
    deployment::{Output, Outputs},
    error::{Error, ErrorKind, Stage},
    event::EventKind,
    ids::ElectionTuple,
    options::Options,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{Departure, DepartureReason, TopologyDescription, TopologyType},
};

/// The first wire version (MongoDB 6.0) for which election ids are compared before set versions.
const ELECTION_ID_FIRST: i32 = 17;

impl Topology {
    /// Opens the topology (SDAM Logging and Monitoring: "Publishing Semantics", J-16, J-21).
    pub(in crate::deployment) fn open(&mut self, out: &mut Outputs) -> Consequences {
        let mut consequences = Consequences::default();
        if self.phase != LifePhase::New {
            return consequences;
        }
        self.phase = LifePhase::Open;
        let load_balanced = self.options.topology_type() == TopologyType::LoadBalanced;
        let previous = Arc::clone(&self.description);
        let mut initial = TopologyDescription {
            topology_type: self.options.topology_type(),
            set_name: self.options.replica_set.clone().filter(|_| !load_balanced),
            ..TopologyDescription::default()
        };
        let seeds = self.options.distinct_seeds();
        // Emitted first, so that it precedes the event of a load balancer's pool.
        out.emit(EventKind::TopologyOpening);
        let mut openings = Vec::with_capacity(seeds.len());
        self.pools.reserve_exact(seeds.len());
        for address in seeds {
            let server = Self::next_id(&mut self.last_id);
            self.pools.push(Pool::new(server, address.clone()));
            initial.put(Arc::new(ServerDescription::unknown(server, address.clone())));
            let monitored = !load_balanced;
            out.push(Output::OpenServer { server, address: address.clone(), monitored });
            if monitored {
                consequences.opened.push((server, address.clone()));
            }
            openings.push(EventKind::ServerOpening { server, address });
        }
        let initial = Arc::new(initial);
        let mut events = Vec::with_capacity(openings.len() + 4);
        events.push(EventKind::TopologyDescriptionChanged { previous, new: Arc::clone(&initial) });
        events.extend(openings);
        self.description = initial;
        if load_balanced {
            self.open_load_balancer(&mut events, out);
        }
        out.push(Output::Publish(Arc::clone(&self.description)));
        out.emit_all(events);
        consequences
    }

    /// Marks the only server as known without a check, and its pool as ready at once (Load
    /// Balancers: "Server Discovery Logging and Monitoring"). The pool's event comes after
    /// `TopologyOpening` (J-13).
    fn open_load_balancer(&mut self, events: &mut Vec<EventKind>, out: &mut Outputs) {
        let previous = Arc::clone(&self.description);
        let mut next = (*previous).clone();
        out.emit_all(events.drain(..));
        for server in &previous.servers {
            let balancer = Arc::new(ServerDescription {
                server_type: ServerType::LoadBalancer,
                ..ServerDescription::clone(server)
            });
            events.push(EventKind::ServerDescriptionChanged {
                previous: Arc::clone(server),
                new: Arc::clone(&balancer),
            });
            if let Some(pool) = self.pool_mut(server.id) {
                pool.ready = true;
                out.push(Output::PoolReady { server: server.id });
            }
            next.put(balancer);
        }
        self.description = Arc::new(next);
        events.push(EventKind::TopologyDescriptionChanged {
            previous,
            new: Arc::clone(&self.description),
        });
    }

    /// Closes the topology (J-20). `TopologyClosed` must be the last event (J-13), and closing a
    /// pool also publishes an event. The caller therefore emits `TopologyClosed` after the
    /// consequences. Returns `None` if the topology is not open.
    pub(in crate::deployment) fn close(&mut self, out: &mut Outputs) -> Option<Consequences> {
        if mem::replace(&mut self.phase, LifePhase::Closed) != LifePhase::Open {
            return None;
        }
        let previous = mem::take(&mut self.description);
        self.pools.clear();
        out.push(Output::Publish(Arc::clone(&self.description)));
        for server in &previous.servers {
            let (server, address) = (server.id, server.address.clone());
            out.emit(EventKind::ServerClosed { server, address, reason: DepartureReason::Closed });
        }
        let closed = previous.servers.iter().map(|server| server.id).collect();
        // The description of a topology without servers may already equal that of a closed one
        // (J-18).
        if previous != self.description {
            let new = Arc::clone(&self.description);
            out.emit(EventKind::TopologyDescriptionChanged { previous, new });
        }
        Some(Consequences { closed, ..Consequences::default() })
    }

    /// Applies new hosts (Polling SRV Records for mongos Discovery): removes servers that are no
    /// longer listed, adds new ones and leaves the others unchanged (N-24).
    pub(in crate::deployment) fn hosts(
        &mut self,
        now: Instant,
        hosts: &[ServerAddress],
        out: &mut Outputs,
    ) -> Consequences {
        let polls = self.description.topology_type().polls_srv();
        if self.phase != LifePhase::Open || !polls || hosts.is_empty() {
            return Consequences::default();
        }
        let mut transition = self.transition(now);
        let reason = DepartureReason::HostsChanged;
        transition.keep_only(|address| hosts.contains(address), &reason);
        for address in hosts {
            transition.add(address);
        }
        self.commit(transition, None, Verdict::default(), out)
    }
}

/// The next description of a topology, under construction.
pub(super) struct Transition {
    pub(super) next: TopologyDescription,
    options: Arc<Options>,
    pub(super) last_id: u64,
    now: Instant,
    /// The previous descriptions of former primaries that are now Unknown.
    pub(super) displaced: SmallVec<[Arc<ServerDescription>; 1]>,
    /// The servers that have left, sorted by address.
    pub(super) departed: Vec<Departure>,
    /// The number of members ignored because of `max_servers`.
    pub(super) ignored: usize,
}

impl Topology {
    pub(super) fn transition(&self, now: Instant) -> Transition {
        Transition {
            next: (*self.description).clone(),
            options: Arc::clone(&self.options),
            last_id: self.last_id,
            now,
            displaced: SmallVec::new(),
            departed: Vec::new(),
            ignored: 0,
        }
    }
}

impl Transition {
    /// Installs the new description of a server and updates the topology from it.
    pub(super) fn run(&mut self, server: &Arc<ServerDescription>) {
        self.next.put(Arc::clone(server));
        self.act(server);
    }

    /// Applies SDAM: "TopologyType table".
    #[rustfmt::skip]
    #[expect(clippy::match_same_arms, reason = "one arm for each cell of the specification's table")]
    fn act(&mut self, server: &Arc<ServerDescription>) {
        use ServerType as S;
        use TopologyType as T;
        match (self.next.topology_type, server.server_type) {
            (T::Single, _) => self.enforce_set_name(server),
            (T::LoadBalanced, _) => {}

            (T::Unknown, S::Unknown) => {}
            (T::Unknown, S::Standalone) => self.update_unknown_with_standalone(server),
            (T::Unknown, S::Mongos) => self.next.topology_type = T::Sharded,
            (T::Unknown, S::RsPrimary) => {
                self.next.topology_type = T::ReplicaSetWithPrimary;
                self.update_rs_from_primary(server);
            }
            (T::Unknown, S::RsSecondary | S::RsArbiter | S::RsOther) => {
                self.next.topology_type = T::ReplicaSetNoPrimary;
                self.update_rs_without_primary(server);
            }
            (T::Unknown, S::RsGhost) => {}

            (T::Sharded, S::Unknown | S::Mongos) => {}
            (T::Sharded, S::Standalone) => self.remove_wrong_type(server),
            (T::Sharded, S::RsPrimary | S::RsSecondary | S::RsArbiter | S::RsOther) => {
                self.remove_wrong_type(server);
            }
            (T::Sharded, S::RsGhost) => self.remove_wrong_type(server),

            (T::ReplicaSetNoPrimary, S::Unknown | S::RsGhost) => {}
            (T::ReplicaSetNoPrimary, S::Standalone | S::Mongos) => self.remove_wrong_type(server),
            (T::ReplicaSetNoPrimary, S::RsPrimary) => {
                self.next.topology_type = T::ReplicaSetWithPrimary;
                self.update_rs_from_primary(server);
            }
            (T::ReplicaSetNoPrimary, S::RsSecondary | S::RsArbiter | S::RsOther) => {
                self.update_rs_without_primary(server);
            }

            (T::ReplicaSetWithPrimary, S::Unknown | S::RsGhost) => self.check_if_has_primary(),
            (T::ReplicaSetWithPrimary, S::Standalone | S::Mongos) => {
                self.remove_wrong_type(server);
                self.check_if_has_primary();
            }
            (T::ReplicaSetWithPrimary, S::RsPrimary) => self.update_rs_from_primary(server),
            (T::ReplicaSetWithPrimary, S::RsSecondary | S::RsArbiter | S::RsOther) => {
                self.update_rs_with_primary_from_member(server);
            }

            // A check never has this outcome (C-8, C-9).
            (_, S::PossiblePrimary | S::LoadBalancer) => {}
        }
    }

    /// Marks a server Unknown if it has another set name (SDAM: "TopologyType Single", D-70).
    fn enforce_set_name(&mut self, server: &Arc<ServerDescription>) {
        let Some(wanted) = &self.options.replica_set else {
            return;
        };
        if !server.server_type.is_available() || server.set_name.as_deref() == Some(&**wanted) {
            return;
        }
        let message = wrong_set_name(server, wanted).to_string();
        self.invalidate(server, ErrorKind::SetName, message, Some(self.now));
    }

    /// Applies SDAM: "updateUnknownWithStandalone". A topology with one seed may have several
    /// servers after a change of its SRV record, but TopologyType Single has exactly one.
    fn update_unknown_with_standalone(&mut self, server: &ServerDescription) {
        if self.options.distinct_seeds().len() == 1 && self.next.servers.len() == 1 {
            self.next.topology_type = TopologyType::Single;
        } else {
            self.remove(server, DepartureReason::OneOfSeveralSeeds);
        }
    }

    /// Applies SDAM: "updateRSWithoutPrimary".
    fn update_rs_without_primary(&mut self, server: &ServerDescription) {
        if self.removed_for_its_set_name(server) {
            return;
        }
        server.members().for_each(|address| self.add(address));
        self.hint_primary(server);
        self.removed_for_its_name(server);
    }

    /// Applies SDAM: "updateRSWithPrimaryFromMember".
    fn update_rs_with_primary_from_member(&mut self, server: &ServerDescription) {
        let removed = self.removed_for_its_set_name(server) || self.removed_for_its_name(server);
        self.check_if_has_primary();
        if removed {
            return;
        }
        if self.next.topology_type == TopologyType::ReplicaSetNoPrimary {
            self.hint_primary(server);
        }
    }

    /// Applies SDAM: "updateRSFromPrimary".
    fn update_rs_from_primary(&mut self, server: &Arc<ServerDescription>) {
        if self.removed_for_its_set_name(server) {
            self.check_if_has_primary();
            return;
        }
        if let Err(maxima) = self.admit_election(server) {
            let message = format!(
                "primary marked stale due to electionId/setVersion mismatch, {} is stale compared \
                 to {maxima}",
                server.election,
            );
            self.invalidate(server, ErrorKind::StalePrimary, message, Some(self.now));
            self.check_if_has_primary();
            return;
        }
        self.displace_other_primaries(server);
        self.follow_members(server);
        self.check_if_has_primary();
    }

    /// Adopts the server's set name if none is known; otherwise removes a server with another set
    /// name.
    fn removed_for_its_set_name(&mut self, server: &ServerDescription) -> bool {
        match &self.next.set_name {
            None => {
                self.next.set_name = server.set_name.as_deref().map(Into::into);
                false
            }
            Some(name) if server.set_name.as_deref() == Some(&**name) => false,
            Some(name) => {
                let reason = wrong_set_name(server, name);
                self.remove(server, reason);
                true
            }
        }
    }

    /// Removes a server whose `me` differs from its address. A server without `me` stays (D-25).
    fn removed_for_its_name(&mut self, server: &ServerDescription) -> bool {
        let Some(me) = server.me.as_ref().filter(|me| **me != server.address) else {
            return false;
        };
        self.remove(server, DepartureReason::Misnamed { me: me.clone() });
        true
    }

    /// Raises the maximum election to that of a primary. If the primary's election is older,
    /// returns the maximum as `Err`.
    fn admit_election(&mut self, server: &ServerDescription) -> Result<(), ElectionTuple> {
        let own = server.election;
        let maxima = self.next.max_election;
        if server.wire_versions.max >= ELECTION_ID_FIRST {
            if own.compare(maxima).is_lt() {
                return Err(maxima);
            }
            self.next.max_election = own;
            return Ok(());
        }
        if let (Some(election_id), Some(set_version)) = (own.election_id, own.set_version) {
            if let (Some(max_id), Some(max_version)) = (maxima.election_id, maxima.set_version)
                && (max_version, max_id) > (set_version, election_id)
            {
                return Err(maxima);
            }
            self.next.max_election.election_id = Some(election_id);
        }
        self.next.max_election.set_version = maxima.set_version.max(own.set_version);
        Ok(())
    }

    fn displace_other_primaries(&mut self, server: &ServerDescription) {
        let others: SmallVec<[Arc<ServerDescription>; 1]> = self
            .next
            .servers
            .iter()
            .filter(|other| other.server_type == ServerType::RsPrimary && other.id != server.id)
            .cloned()
            .collect();
        for other in others {
            let message = "primary marked stale due to discovery of newer primary";
            self.invalidate(&other, ErrorKind::StalePrimary, message, None);
            self.displaced.push(other);
        }
    }

    /// Adds and removes servers to match the members that the primary lists.
    fn follow_members(&mut self, server: &ServerDescription) {
        let mut members: SmallVec<[&ServerAddress; 64]> = server.members().collect();
        members.sort_unstable();
        members.dedup();
        let unchanged = members.len() == self.next.servers.len()
            && members.iter().zip(&self.next.servers).all(|(own, other)| **own == other.address);
        if unchanged {
            return;
        }
        if members.binary_search(&&server.address).is_err() {
            self.removed_for_its_name(server);
        }
        let reason = DepartureReason::NotListed { primary: server.address.clone() };
        self.keep_only(|address| members.binary_search(&address).is_ok(), &reason);
        self.departed.sort_by(|a, b| a.address.cmp(&b.address));
        for address in members {
            self.add(address);
        }
    }

    /// Applies SDAM: "checkIfHasPrimary".
    fn check_if_has_primary(&mut self) {
        self.next.topology_type = if self.next.primary().is_some() {
            TopologyType::ReplicaSetWithPrimary
        } else {
            TopologyType::ReplicaSetNoPrimary
        };
    }

    /// Gives the type PossiblePrimary to the server that a member reports as primary (C-9, D-24).
    fn hint_primary(&mut self, server: &ServerDescription) {
        let Some(hinted) = server.primary.as_ref().and_then(|address| self.next.server(address))
        else {
            return;
        };
        if hinted.server_type == ServerType::Unknown {
            let hinted = ServerDescription {
                server_type: ServerType::PossiblePrimary,
                ..ServerDescription::clone(hinted)
            };
            self.next.put(Arc::new(hinted));
        }
    }

    /// Replaces a server's description with a default one that contains an error created by the
    /// client.
    fn invalidate(
        &mut self,
        server: &ServerDescription,
        kind: ErrorKind,
        message: impl Into<alloc::boxed::Box<str>>,
        checked_at: Option<Instant>,
    ) {
        let error = Error::new(kind, Stage::Hello, message);
        self.next.put(Arc::new(ServerDescription {
            error: Some(error),
            last_update_time: checked_at,
            ..ServerDescription::unknown(server.id, server.address.clone())
        }));
    }

    /// Adds a server that has not been checked yet, unless its address is present already.
    pub(super) fn add(&mut self, address: &ServerAddress) {
        let Err(index) = self.next.position(address) else {
            return;
        };
        if self.next.servers.len() >= self.options.max_servers {
            self.ignored += 1;
            return;
        }
        let server = Topology::next_id(&mut self.last_id);
        let description = ServerDescription::unknown(server, address.clone());
        self.next.servers.insert(index, Arc::new(description));
    }

    /// Removes every server whose address `keep` rejects, and records `reason` for each departure.
    fn keep_only(&mut self, keep: impl Fn(&ServerAddress) -> bool, reason: &DepartureReason) {
        let departed = &mut self.departed;
        self.next.servers.retain(|server| {
            let stays = keep(&server.address);
            if !stays {
                let address = server.address.clone();
                departed.push(Departure::new(server.id, address, reason.clone()));
            }
            stays
        });
    }

    fn remove_wrong_type(&mut self, server: &ServerDescription) {
        let reason = DepartureReason::WrongType {
            server: server.server_type,
            topology: self.next.topology_type,
        };
        self.remove(server, reason);
    }

    fn remove(&mut self, server: &ServerDescription, reason: DepartureReason) {
        if let Ok(index) = self.next.position(&server.address) {
            self.next.servers.remove(index);
            let address = server.address.clone();
            self.departed.push(Departure::new(server.id, address, reason));
        }
    }
}

fn wrong_set_name(server: &ServerDescription, wanted: &Arc<str>) -> DepartureReason {
    DepartureReason::WrongSetName { found: server.set_name.clone(), wanted: Arc::clone(wanted) }
}
