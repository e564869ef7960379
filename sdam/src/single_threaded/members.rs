//! The servers of a single-threaded topology, kept in step with the engine.

use std::{
    collections::BTreeMap,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use sdam_core::{
    ids::ServerId,
    monitor::{MonitorInput, ServerStatus},
};

use super::member::Member;
use crate::topology::shared::Shared;

/// The members by server id.
#[derive(Debug, Default)]
pub(super) struct Members(BTreeMap<ServerId, Member>);

impl Members {
    pub(super) fn get(&self, server: ServerId) -> Option<&Member> {
        self.0.get(&server)
    }

    pub(super) fn get_mut(&mut self, server: ServerId) -> Option<&mut Member> {
        self.0.get_mut(&server)
    }

    /// Passes an input to the monitor of `server`, runs all effects, and returns the servers that
    /// became Unknown by other means than that monitor's report.
    #[must_use]
    pub(super) fn tell(
        &mut self,
        shared: &Arc<Shared>,
        server: ServerId,
        input: MonitorInput,
    ) -> Vec<ServerId> {
        if let Some(member) = self.0.get_mut(&server) {
            member.tell(shared, input);
        }
        self.follow(shared, Some(server))
    }

    /// Follows the engine after its state may have changed: adds and removes members, and closes
    /// connections of cleared pools. `checked` is the server whose check caused the change; its
    /// monitor has already decided whether to keep the connection.
    ///
    /// Returns the servers that became Unknown by other means than their own check.
    #[must_use]
    pub(super) fn follow(
        &mut self,
        shared: &Arc<Shared>,
        checked: Option<ServerId>,
    ) -> Vec<ServerId> {
        let mut lost = Vec::new();
        loop {
            self.add_new(shared);
            let mut quiet = true;
            for member in self.0.values_mut() {
                let by_check = checked == Some(member.id());
                quiet &= !follow_one(shared, member, by_check, &mut lost);
            }
            self.0
                .retain(|_, member| !member.server.control.is_stopped());
            if quiet {
                return lost;
            }
        }
    }

    fn add_new(&mut self, shared: &Shared) {
        let snapshot = shared.published.load();
        for server in snapshot.servers.iter() {
            if !self.0.contains_key(&server.id()) && !server.control.is_stopped() {
                let server = Arc::clone(server);
                let balanced = shared.options.load_balanced;
                let member = Member::new(server, &shared.config, balanced);
                self.0.insert(member.id(), member);
            }
        }
    }
}

/// Follows the control signals and the pool's status of one server. Returns whether that may have
/// changed the engine again.
fn follow_one(
    shared: &Arc<Shared>,
    member: &mut Member,
    by_check: bool,
    lost: &mut Vec<ServerId>,
) -> bool {
    let before = std::mem::replace(&mut member.seen, member.server.status());
    let ServerStatus { generation, known } = member.seen;
    // Nothing waits for the signals: the members are followed after each change.
    let signals = match member
        .server
        .control
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(signals) => Some(signals),
        Poll::Pending => None,
    };
    if signals.is_some_and(|signals| signals.stop) {
        // A check in progress ends its heartbeat.
        member.tell(shared, MonitorInput::Stop);
        member.disconnect();
        return true;
    }
    if before.known && !known && !by_check {
        lost.push(member.id());
    }
    let cleared = before.generation != generation && !by_check;
    let cancel = signals.and_then(|signals| signals.cancel);
    if let Some(generation) = cancel.or(cleared.then_some(generation)) {
        member.tell(shared, MonitorInput::Cancel { generation });
        return true;
    }
    if is_service_cleared(shared, member) {
        member.disconnect();
    }
    false
}

/// Returns whether the connection's service behind a load balancer was cleared since it opened.
fn is_service_cleared(shared: &Shared, member: &Member) -> bool {
    let (Some(_), Some(counted)) = (member.service, &member.counted) else {
        return false;
    };
    let current = member.generation(shared);
    current.is_some_and(|current| current > counted.generation())
}
