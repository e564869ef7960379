//! Drops events while the sink cannot keep up (load shedding).

use std::{collections::BTreeSet, mem, sync::atomic::Ordering};

use sdam_core::{
    address::ServerAddress,
    deployment::Input,
    event::{EventKind, EventName},
    ids::ServerId,
    server::ServerDescription,
    time::Instant,
};

use super::{EventQueue, QueueState};
use crate::sink::Interest;

/// The approximate size of the parts that every event has: its slot in the queue, its times, its
/// address.
const EVENT: usize = 512;

/// The state of load shedding.
#[derive(Debug, Default)]
pub(super) struct Shedding {
    /// True while new heartbeats are dropped.
    active: bool,
    /// The servers whose current heartbeat was dropped.
    skipped: BTreeSet<ServerId>,
}

impl EventQueue {
    /// The size in bytes at which the queue begins to shed heartbeats, selections, commands and the
    /// events of check-outs. Shedding ends when the size has fallen below half of this.
    pub const SHED_BYTES: usize = 16 << 20;

    /// The size in bytes at which the queue begins to drop all events except those of heartbeats,
    /// selections and commands under way, and `TopologyClosed`.
    pub const FULL_BYTES: usize = 32 << 20;

    /// Returns the approximate size of the undelivered events in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Returns the number of dropped events, including the end events for which
    /// [`close`](Self::close) did not wait; see the documentation of the type.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns whether the events of a selection or command that begins at `at` will be delivered.
    /// If not, the operation counts as dropped, and its events must not be pushed.
    pub fn admits_operation(&self, at: Instant) -> bool {
        if self.bytes() < Self::SHED_BYTES / 2 {
            return true;
        }
        let mut state = self.lock();
        let admitted = !self.is_shedding(&mut state, at);
        if !admitted {
            self.leave_out(1);
        }
        admitted
    }

    /// Decides whether `kind` is appended. The two events of a heartbeat are either both appended
    /// or both dropped.
    pub(super) fn admits(
        &self,
        state: &mut QueueState,
        at: Instant,
        interest: Interest,
        kind: &EventKind,
    ) -> bool {
        let shedding = self.is_shedding(state, at);
        let whole = interest.contains_all(Interest::HEARTBEATS);
        let in_part = Interest::HEARTBEATS.union(Interest::CHECK_OUTS);
        let skipped = &mut state.shedding.skipped;
        let admitted = match kind {
            EventKind::ServerHeartbeatStarted(heartbeat) if whole => {
                if shedding {
                    skipped.insert(heartbeat.server);
                }
                !shedding
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. }
            | EventKind::ServerHeartbeatFailed { heartbeat, .. }
                if whole =>
            {
                !skipped.remove(&heartbeat.server)
            }
            kind if in_part.contains(kind.name()) => !shedding,
            // These events need no further decision: selections and commands that were not admitted
            // push no events.
            kind if Interest::OPERATIONS.contains(kind.name()) => true,
            _ => self.bytes() < Self::FULL_BYTES,
        };
        if !admitted {
            self.leave_out(1);
        }
        admitted
    }

    /// Ends shedding and publishes the number of dropped events, if shedding was active.
    pub(super) fn end_shedding(&self, state: &mut QueueState, at: Instant) {
        if mem::take(&mut state.shedding.active) {
            self.tell_dropped(state, at);
        }
    }

    /// Returns whether events are being shed. Shedding begins at `SHED_BYTES` and ends below half
    /// of that.
    fn is_shedding(&self, state: &mut QueueState, at: Instant) -> bool {
        let bytes = self.bytes();
        if bytes < Self::SHED_BYTES / 2 {
            self.end_shedding(state, at);
        } else if bytes >= Self::SHED_BYTES && !mem::replace(&mut state.shedding.active, true) {
            self.tell_dropped(state, at);
        }
        state.shedding.active
    }

    /// Counts events as dropped.
    pub(super) fn leave_out(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn tell_dropped(&self, state: &mut QueueState, at: Instant) {
        if self.wants(EventName::EventsDropped) {
            let total = self.dropped();
            self.append(state, at, EventKind::EventsDropped { total });
        }
    }
}

/// Returns the approximate size in bytes of an event of this kind. Data shared with other events or
/// with the topology are counted once, in the event where they first appear. Replies are the
/// exception: they count twice if the sink receives inputs, which also contain them.
pub(super) fn weight(kind: &EventKind) -> usize {
    let payload = match kind {
        EventKind::ServerHeartbeatSucceeded { reply, .. }
        | EventKind::CommandSucceeded { reply, .. } => reply.len(),
        EventKind::ServerHeartbeatFailed { failure, .. }
        | EventKind::CommandFailed { failure, .. } => failure.message().len(),
        EventKind::ServerDescriptionChanged { new, .. } => description(new),
        EventKind::TopologyDescriptionChanged { new, .. } => {
            size_of::<usize>() * new.servers().len() + EVENT
        }
        EventKind::PoolCleared { clear, .. } => clear.cause.message().len(),
        EventKind::ConnectionClosed { error: Some(error), .. } => error.message().len(),
        EventKind::ConnectionCheckOutFailed { failure, .. }
        | EventKind::ServerSelectionFailed { failure, .. } => failure.len(),
        EventKind::CommandStarted { document, .. } => document.len(),
        EventKind::Input(recorded) => match &recorded.input {
            Input::Reply { reply, .. } | Input::Handshake { reply, .. } => reply.document.len(),
            Input::Failed { error, .. } => error.message().len(),
            Input::Error { report, .. } => {
                let reply = report.error.reply().map_or(0, <[u8]>::len);
                reply + report.error.message().len()
            }
            Input::Hosts(hosts) => addresses(hosts),
            Input::LookedUp(Ok(records)) => addresses(&records.hosts),
            _ => 0,
        },
        _ => 0,
    };
    EVENT + payload
}

fn addresses(hosts: &[ServerAddress]) -> usize {
    let size = |host: &ServerAddress| EVENT / 4 + host.as_str().len();
    hosts.iter().map(size).sum()
}

fn description(server: &ServerDescription) -> usize {
    let members = server.members().map(|member| EVENT / 8 + member.as_str().len());
    let tags = server.tags.iter().map(|(name, value)| EVENT / 8 + name.len() + value.len());
    let error = server.error.as_ref().map_or(0, |error| error.message().len());
    let name = server.set_name.as_ref().map_or(0, |name| name.len());
    members.chain(tags).sum::<usize>() + error + name + EVENT
}
