//! Updates a topology from the new description of one server, and determines what follows.

use alloc::{format, sync::Arc, vec::Vec};
use core::mem::{self, discriminant};

use smallvec::SmallVec;

use super::{Consequences, Pool, Topology, transition::Transition};
use crate::{
    deployment::{Output, Outputs},
    error::Error,
    event::EventKind,
    ids::ServerId,
    pool::PoolClear,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{Departure, TopologyDescription, TopologyType},
};

/// The effects of an update's cause, apart from the new description.
#[derive(Default)]
pub(super) struct Verdict {
    /// True if the description comes from a successful hello, so that the pool may become ready.
    pub(super) checked: bool,
    /// The clear of the server's pool, if any.
    pub(super) clear: Option<Clear>,
    /// True if the server's running check is cancelled.
    pub(super) cancel_check: bool,
    /// True if the server must be checked soon.
    pub(super) request_check: bool,
}

pub(super) struct Clear {
    pub(super) cause: Error,
    pub(super) interrupt_in_use: bool,
}

/// The first wire version (MongoDB 4.2) whose primaries keep connections when they step down.
pub(super) const KEEPS_CONNECTIONS: i32 = 8;

impl Topology {
    /// Installs `new` and updates the topology from it.
    pub(super) fn update(
        &mut self,
        now: Instant,
        new: ServerDescription,
        verdict: Verdict,
        out: &mut Outputs,
    ) -> Consequences {
        let new = Arc::new(new);
        let mut transition = self.transition(now);
        transition.run(&new);
        self.commit(transition, Some(&new), verdict, out)
    }

    /// Makes the outcome of a transition the current description.
    ///
    /// `responder` is the description that caused the transition, before the topology evaluated it.
    pub(super) fn commit(
        &mut self,
        transition: Transition,
        responder: Option<&Arc<ServerDescription>>,
        verdict: Verdict,
        out: &mut Outputs,
    ) -> Consequences {
        let Transition { mut next, displaced, departed, ignored, .. } = transition;
        self.last_id = transition.last_id;
        let previous = Arc::clone(&self.description);
        let diff = Diff::between(&previous, &next);
        let events = diff.server_events(&previous, &next, responder, &departed);
        if !diff.added.is_empty() || !departed.is_empty() || diff.found_any() {
            next.remember(&departed);
        }
        let differs = !diff.is_equal() || previous.topology_type != next.topology_type;
        if diff.concerns_all() {
            next.refresh_session_timeout();
            next.compatibility_error = self.incompatibility(&next);
        }
        let unusable = diff.unusable(&previous, &next);
        let next = Arc::new(next);
        self.description = Arc::clone(&next);
        let mut consequences = Consequences::default();

        for server in &diff.added {
            let (server, address) = (server.id, server.address.clone());
            self.pools.push(Pool::new(server, address.clone()));
            consequences.opened.push((server, address.clone()));
            out.push(Output::OpenServer { server, address, monitored: true });
        }
        if !diff.added.is_empty() {
            // New servers get their ids in the order in which members are listed, not by address.
            self.pools.sort_unstable_by_key(|pool| pool.server);
        }
        if let Some(responder) = responder.filter(|_| verdict.checked) {
            self.make_ready(&next, responder, out);
        }
        if is_visible(&previous, &next, &diff) {
            out.push(Output::Publish(Arc::clone(&next)));
        }
        out.emit_all(events);
        if ignored != mem::replace(&mut self.ignored, ignored) && ignored > 0 {
            out.emit(EventKind::MembersIgnored { ignored, limit: self.options.max_servers });
        }
        let emptied = next.servers.is_empty() && !diff.removed.is_empty();
        if differs
            || previous.max_election != next.max_election
            || previous.set_name != next.set_name
        {
            out.emit(EventKind::TopologyDescriptionChanged { previous, new: next });
        }
        out.emit_all(unusable);
        if emptied {
            out.emit(EventKind::TopologyEmptied);
        }
        let responder = responder.map(|server| server.id);
        consequences.lost = diff.lost(responder);
        consequences.closed.extend(diff.removed.iter().map(|server| server.id));
        self.finish(responder, verdict, &displaced, &mut consequences);
        consequences
    }

    /// Marks the pool ready after a check has shown that the server is usable (CMAP).
    fn make_ready(
        &mut self,
        next: &TopologyDescription,
        responder: &ServerDescription,
        out: &mut Outputs,
    ) {
        let single = next.topology_type == TopologyType::Single;
        let usable = next.server(&responder.address).is_some_and(|server| {
            server.id == responder.id
                && (server.server_type.is_data_bearing()
                    || single && server.server_type.is_available())
        });
        if let Some(pool) = self.pool_mut(responder.id).filter(|pool| usable && !pool.ready) {
            pool.ready = true;
            out.push(Output::PoolReady { server: responder.id });
        }
    }

    /// Clears pools, removes those of servers that have left, and determines which checks are
    /// cancelled or requested.
    fn finish(
        &mut self,
        responder: Option<ServerId>,
        verdict: Verdict,
        displaced: &[Arc<ServerDescription>],
        consequences: &mut Consequences,
    ) {
        if let (Some(server), Some(clear)) = (responder, verdict.clear) {
            self.clear_pool(server, clear, consequences);
        }
        for old in displaced.iter().filter(|old| old.wire_versions.max < KEEPS_CONNECTIONS) {
            if let Some(cause) = self.current(old.id).and_then(|new| new.error.clone()) {
                self.clear_pool(old.id, Clear { cause, interrupt_in_use: false }, consequences);
            }
        }
        if !consequences.closed.is_empty() {
            self.pools.retain(|pool| !consequences.closed.contains(&pool.server));
        }
        let responder = responder.filter(|server| self.pool(*server).is_some());
        consequences.cancel = responder.filter(|_| verdict.cancel_check);
        consequences.check.extend(responder.filter(|_| verdict.request_check));
        let displaced = displaced.iter().map(|old| old.id);
        consequences.check.extend(displaced.filter(|server| self.pool(*server).is_some()));
    }

    fn clear_pool(&mut self, server: ServerId, clear: Clear, consequences: &mut Consequences) {
        if let Some(pool) = self.pool_mut(server) {
            let was_paused = !pool.ready;
            let mut command = PoolClear::new(pool.clear(), clear.cause);
            command.was_paused = was_paused;
            command.interrupt_in_use = clear.interrupt_in_use;
            consequences.cleared.push((server, command));
        }
    }

    /// Returns a message that names the first incompatible server (SDAM: "Checking wire protocol
    /// compatibility").
    fn incompatibility(&self, next: &TopologyDescription) -> Option<Arc<str>> {
        let own = self.options.wire_versions;
        let driver = &self.options.driver_name;
        let incompatible = next.servers.iter().find(|server| {
            server.server_type.is_available()
                && server.server_type != ServerType::LoadBalancer
                && (server.wire_versions.min > own.max || server.wire_versions.max < own.min)
        })?;
        let (address, theirs) = (&incompatible.address, incompatible.wire_versions);
        let message = if theirs.min > own.max {
            format!(
                "Server at {address} requires wire version {}, but this version of {driver} only \
                 supports up to {}.",
                theirs.min, own.max,
            )
        } else {
            format!(
                "Server at {address} reports wire version {}, but this version of {driver} \
                 requires at least {} (MongoDB {}).",
                theirs.max,
                own.min,
                server_release(own.min),
            )
        };
        Some(message.into())
    }
}

/// Returns the first server release with `wire_version`.
fn server_release(wire_version: i32) -> &'static str {
    match wire_version {
        ..=0 => "2.4",
        1..=2 => "2.6",
        3 => "3.0",
        4 => "3.2",
        5 => "3.4",
        6 => "3.6",
        7 => "4.0",
        8 => "4.2",
        9 => "4.4",
        10..=13 => "5.0",
        14 => "5.1",
        15 => "5.2",
        16 => "5.3",
        17 => "6.0",
        18 => "6.1",
        19 => "6.2",
        20 => "6.3",
        21 => "7.0",
        22 => "7.1",
        23 => "7.2",
        24 => "7.3",
        25.. => "8.0",
    }
}

/// Returns whether readers can distinguish the two descriptions. New measurements of a server that
/// remains Unknown are ignored.
fn is_visible(previous: &TopologyDescription, next: &TopologyDescription, diff: &Diff) -> bool {
    !diff.is_equal()
        || diff.refreshed.iter().any(|server| server.server_type.is_available())
        || previous != next
}

/// The differences between the servers of two descriptions.
#[derive(Default)]
struct Diff {
    /// The servers whose descriptions differ, sorted by address, each with its descriptions before
    /// and after.
    changed: SmallVec<[(Arc<ServerDescription>, Arc<ServerDescription>); 2]>,
    /// The servers whose descriptions are equal except for new measurements, sorted by address.
    refreshed: SmallVec<[Arc<ServerDescription>; 1]>,
    added: Vec<Arc<ServerDescription>>,
    removed: Vec<Arc<ServerDescription>>,
}

impl Diff {
    /// Compares the two sorted lists of servers in one pass, and skips descriptions that both lists
    /// share.
    fn between(previous: &TopologyDescription, next: &TopologyDescription) -> Self {
        let mut diff = Self::default();
        let (mut old, mut new) = (&previous.servers[..], &next.servers[..]);
        while let (Some((before, older)), Some((after, newer))) =
            (old.split_first(), new.split_first())
        {
            if Arc::ptr_eq(before, after) {
                (old, new) = (older, newer);
                continue;
            }
            if before.id == after.id {
                (old, new) = (older, newer);
                if before == after {
                    diff.refreshed.push(Arc::clone(after));
                } else {
                    diff.changed.push((Arc::clone(before), Arc::clone(after)));
                }
            } else if before.address <= after.address {
                // A server that was removed and added again counts as removed and as added.
                old = older;
                diff.removed.push(Arc::clone(before));
            } else {
                new = newer;
                diff.added.push(Arc::clone(after));
            }
        }
        diff.removed.extend_from_slice(old);
        diff.added.extend_from_slice(new);
        diff
    }

    /// Returns whether the values that are derived from all servers (the session time-out and the
    /// compatibility) may have changed.
    fn concerns_all(&self) -> bool {
        let derived = |server: &ServerDescription| {
            let timeout = server.logical_session_timeout_minutes;
            (server.server_type, server.wire_versions, timeout)
        };
        let mut changed = self.changed.iter();
        !self.added.is_empty()
            || !self.removed.is_empty()
            || changed.any(|(before, after)| derived(before) != derived(after))
    }

    fn is_equal(&self) -> bool {
        self.changed.is_empty() && self.added.is_empty() && self.removed.is_empty()
    }

    /// Returns whether a server has become available.
    fn found_any(&self) -> bool {
        let mut changed = self.changed.iter();
        changed.any(|(before, after)| {
            !before.server_type.is_available() && after.server_type.is_available()
        })
    }

    /// Returns the events about servers whose obstacle is new or is of a different kind than
    /// before.
    fn unusable(
        &self,
        previous: &TopologyDescription,
        next: &TopologyDescription,
    ) -> SmallVec<[EventKind; 1]> {
        let changed = self.changed.iter();
        let met = changed.filter_map(|(before, after)| {
            let obstacle = next.obstacle(after)?;
            let known = previous.obstacle(before);
            let is_known =
                known.is_some_and(|known| discriminant(&known) == discriminant(&obstacle));
            (!is_known).then(|| EventKind::ServerUnusable {
                server: after.id,
                address: after.address.clone(),
                obstacle,
            })
        });
        met.collect()
    }

    /// Returns the servers that were lost for any reason (C-20, G-3), or whose check has failed
    /// again (F-53).
    fn lost(&self, responder: Option<ServerId>) -> SmallVec<[ServerId; 2]> {
        let changed = self.changed.iter().filter(|(before, after)| {
            before.server_type.is_available() || responder == Some(after.id)
        });
        let refreshed = self.refreshed.iter().filter(|server| responder == Some(server.id));
        let candidates = changed.map(|(_, after)| after).chain(refreshed);
        let lost = candidates.filter(|server| !server.server_type.is_available());
        lost.map(|server| server.id).collect()
    }

    /// Returns the events about servers in this order: the responder, other changed servers,
    /// removed servers, added servers (J-17).
    fn server_events(
        &self,
        previous: &TopologyDescription,
        next: &TopologyDescription,
        responder: Option<&Arc<ServerDescription>>,
        departed: &[Departure],
    ) -> SmallVec<[EventKind; 2]> {
        let mut events = SmallVec::new();
        let mut changed = |previous: &Arc<ServerDescription>, new: &Arc<ServerDescription>| {
            if previous != new {
                events.push(EventKind::ServerDescriptionChanged {
                    previous: Arc::clone(previous),
                    new: Arc::clone(new),
                });
            }
        };
        if let Some(responder) = responder
            && let Some(before) = previous.server(&responder.address)
        {
            let after = next.server(&responder.address).filter(|after| after.id == before.id);
            changed(before, after.unwrap_or(responder));
        }
        for (before, after) in &self.changed {
            let is_responder = responder.is_some_and(|responder| responder.id == after.id);
            // A change to `PossiblePrimary` appears only in the topology's event (J-19).
            if !is_responder && after.server_type != ServerType::PossiblePrimary {
                changed(before, after);
            }
        }
        for departure in departed {
            events.push(EventKind::ServerClosed {
                server: departure.server,
                address: departure.address.clone(),
                reason: departure.reason.clone(),
            });
        }
        for server in &self.added {
            let address = server.address.clone();
            events.push(EventKind::ServerOpening { server: server.id, address });
        }
        events
    }
}
