//! The servers of a single-threaded topology, kept in step with the engine.

use std::{collections::BTreeMap, sync::Arc};

use sdam_core::{ids::ServerId, topology::TopologyDescription};

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

    /// Follows the engine after its state may have changed: adds and removes members, and carries out
    /// the orders for their connections. `checked` is the server whose check caused the change.
    ///
    /// Returns the servers that became Unknown by other means than their own check.
    #[must_use]
    pub(super) fn follow(
        &mut self,
        shared: &Arc<Shared>,
        checked: Option<ServerId>,
    ) -> Vec<ServerId> {
        self.add_new(shared);
        let description = Arc::clone(&shared.published.load().description);
        let mut lost = Vec::new();
        self.0.retain(|id, member| {
            if !member.follow(shared) {
                return false;
            }
            let known = is_known(&description, *id);
            let before = std::mem::replace(&mut member.known, known);
            if before && !known && checked != Some(*id) {
                lost.push(*id);
            }
            true
        });
        lost
    }

    fn add_new(&mut self, shared: &Shared) {
        let snapshot = shared.published.load();
        for server in snapshot.servers.iter() {
            if !self.0.contains_key(&server.id()) && !server.orders.is_ended() {
                let member = Member::new(Arc::clone(server));
                self.0.insert(member.id(), member);
            }
        }
    }
}

fn is_known(description: &TopologyDescription, server: ServerId) -> bool {
    let server = description.server_by_id(server);
    server.is_some_and(|server| server.server_type.is_available())
}
