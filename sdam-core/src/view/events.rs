//! The events of a view. They form a complete sequence even if the view was opened later than the
//! deployment.

use alloc::sync::Arc;

use super::View;
use crate::{
    event::EventKind,
    ids::ServerId,
    output::Outputs,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};

impl View {
    /// Emits an event of the deployment, unless the event ends something whose beginning this view
    /// has not emitted. Events that begin the suspicion of a server in `lost` are not emitted
    /// either.
    pub(super) fn emit(
        &mut self,
        now: Instant,
        event: &EventKind,
        lost: &[ServerId],
        out: &mut Outputs,
    ) {
        let is_whole = match event {
            EventKind::ServerSuspected { server, .. } => {
                let begins = !lost.contains(server);
                if begins {
                    let others = self.suspected.iter().copied();
                    self.suspected = others.chain([(*server, now)]).collect();
                }
                begins
            }
            EventKind::ServerSuspicionEnded { server, .. } => {
                self.clear_suspicion(*server).is_some()
            }
            _ => !self.began_earlier(event),
        };
        if is_whole {
            self.is_closed |= matches!(event, EventKind::TopologyClosed);
            out.emit(event.clone());
        }
    }

    /// Ends the suspicion of a server that this view has lost.
    pub(super) fn end_suspicion(
        &mut self,
        now: Instant,
        lost: &ServerDescription,
        out: &mut Outputs,
    ) {
        if let Some(since) = self.clear_suspicion(lost.id) {
            out.emit(EventKind::ServerSuspicionEnded {
                server: lost.id,
                address: lost.address.clone(),
                duration: now.since(since),
                answered: false,
            });
        }
    }

    /// Ends the suspicion of a server, and returns the time at which it began; `None` if the server
    /// was not suspected.
    fn clear_suspicion(&mut self, server: ServerId) -> Option<Instant> {
        let (_, since) = *self.suspected.iter().find(|(own, _)| *own == server)?;
        self.suspected = self.suspected.iter().copied().filter(|(own, _)| *own != server).collect();
        Some(since)
    }

    /// Returns whether the event ends a heartbeat that began before the view was opened.
    fn began_earlier(&mut self, event: &EventKind) -> bool {
        match event {
            _ if self.unseen.is_empty() => false,
            EventKind::ServerHeartbeatStarted(heartbeat) => {
                let others = |server: &&ServerId| **server != heartbeat.server;
                self.unseen = self.unseen.iter().filter(others).copied().collect();
                false
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. }
            | EventKind::ServerHeartbeatFailed { heartbeat, .. } => {
                self.unseen.contains(&heartbeat.server)
            }
            _ => false,
        }
    }
}

/// Emits an event if the server's description has changed.
pub(super) fn emit_server_change(
    previous: &Arc<ServerDescription>,
    new: &Arc<ServerDescription>,
    out: &mut Outputs,
) {
    // Only the change of the topology shows a possible primary (J-19).
    if previous != new && new.server_type != ServerType::PossiblePrimary {
        let (previous, new) = (Arc::clone(previous), Arc::clone(new));
        out.emit(EventKind::ServerDescriptionChanged { previous, new });
    }
}

/// Emits an event if the topology's description has changed.
pub(super) fn emit_topology_change(
    previous: &Arc<TopologyDescription>,
    new: &Arc<TopologyDescription>,
    out: &mut Outputs,
) {
    if previous != new {
        let (previous, new) = (Arc::clone(previous), Arc::clone(new));
        out.emit(EventKind::TopologyDescriptionChanged { previous, new });
    }
}
