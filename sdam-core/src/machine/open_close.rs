//! Opens and closes a topology, and applies changes of its SRV record.

use alloc::{sync::Arc, vec::Vec};

use super::{Effect, Effects, LifePhase, Pool, TopologyMachine, update::Consequences};
use crate::{
    address::ServerAddress,
    event::EventKind,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{DepartureReason, TopologyDescription, TopologyType},
};

impl TopologyMachine {
    /// Opens the topology (SDAM Logging and Monitoring: "Publishing Semantics", J-16, J-21).
    pub(super) fn open(&mut self) -> Effects {
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
        let mut effects = Effects::one(Effect::Emit(EventKind::TopologyOpening));
        let mut openings = Vec::with_capacity(seeds.len());
        for address in seeds {
            let server = Self::next_id(&mut self.last_id);
            self.pools.push(Pool::new(server, address.clone()));
            initial.put(Arc::new(ServerDescription::unknown(server, address.clone())));
            let monitored = !load_balanced;
            effects.push(Effect::OpenServer { server, address: address.clone(), monitored });
            openings.push(EventKind::ServerOpening { server, address });
        }
        let initial = Arc::new(initial);
        let mut events = Vec::with_capacity(openings.len() + 4);
        events.push(EventKind::TopologyDescriptionChanged { previous, new: Arc::clone(&initial) });
        events.extend(openings);
        self.description = initial;
        if load_balanced {
            self.open_load_balancer(&mut effects, &mut events);
        }
        effects.push(Effect::Publish(Arc::clone(&self.description)));
        effects.extend(events.into_iter().map(Effect::Emit));
        effects
    }

    /// Marks the only server as known without a check, and its pool as ready at once (Load
    /// Balancers: "Server Discovery Logging and Monitoring"). The pool's event comes after
    /// `TopologyOpening` (J-13).
    fn open_load_balancer(&mut self, effects: &mut Effects, events: &mut Vec<EventKind>) {
        let previous = Arc::clone(&self.description);
        let mut next = (*previous).clone();
        effects.extend(events.drain(..).map(Effect::Emit));
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
                effects.push(Effect::PoolReady { server: server.id });
            }
            next.put(balancer);
        }
        self.description = Arc::new(next);
        events.push(EventKind::TopologyDescriptionChanged {
            previous,
            new: Arc::clone(&self.description),
        });
    }

    /// Closes the topology (J-20).
    pub(super) fn close(&mut self) -> Effects {
        self.phase = LifePhase::Closed;
        let previous = core::mem::take(&mut self.description);
        self.pools.clear();
        let mut effects = Effects::default();
        effects.push(Effect::Publish(Arc::clone(&self.description)));
        for server in &previous.servers {
            let address = server.address.clone();
            effects.push(Effect::Emit(EventKind::ServerClosed {
                server: server.id,
                address,
                reason: DepartureReason::Closed,
            }));
        }
        // A topology without servers may already be what a closed one is (J-18).
        if previous != self.description {
            let (previous, new) = (Arc::clone(&previous), Arc::clone(&self.description));
            effects.push(Effect::Emit(EventKind::TopologyDescriptionChanged { previous, new }));
        }
        // Closing pools also publish events, and TopologyClosed must be the last event (J-13).
        for server in &previous.servers {
            effects.push(Effect::CloseServer { server: server.id });
        }
        effects.push(Effect::Emit(EventKind::TopologyClosed));
        effects
    }

    /// Applies new hosts (Polling SRV Records for mongos Discovery): removes servers that are no
    /// longer listed, adds new ones and leaves the others unchanged (N-24).
    pub(super) fn hosts(&mut self, now: Instant, hosts: &[ServerAddress]) -> Effects {
        if !self.description.topology_type().polls_srv() || hosts.is_empty() {
            return Effects::default();
        }
        let mut transition = self.transition(now);
        let reason = DepartureReason::HostsChanged;
        transition.keep_only(|address| hosts.contains(address), &reason);
        for address in hosts {
            transition.add(address);
        }
        self.commit(transition, None, Consequences::default())
    }
}
