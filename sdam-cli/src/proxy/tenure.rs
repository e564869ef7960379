//! Watches whether a selected member still has the role for which it was selected.

use futures::StreamExt;
use sdam::{ObjectId, SelectedServer, ServerDescription, ServerId, ServerType, Snapshot, Topology};

use super::dial::Way;

/// The role of a member at the time of a selection. The tenure ends when the role changes or an
/// error occurs. For a primary, it also ends at the next election, even if the same member wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tenure {
    server: ServerId,
    role: Role,
}

pub(super) type Role = (ServerType, Option<ObjectId>);

/// Returns the role of a member. For a primary, this includes the election that it won.
pub(super) fn role(server: &ServerDescription) -> Role {
    let is_primary = server.server_type == ServerType::RsPrimary;
    let election = server.election_id().filter(|_| is_primary);
    (server.server_type, election)
}

impl Tenure {
    /// Returns the tenure of a member that was just selected, or `None` if the tenure has already
    /// ended.
    pub(super) fn begin(selected: &SelectedServer<Way>, snapshot: &Snapshot) -> Option<Self> {
        let server = selected.id();
        let role = role(snapshot.description().server_by_id(server)?);
        (role.0 == selected.server_type()).then_some(Self { server, role })
    }

    /// Returns whether the member, as described in `snapshot`, still has the same role.
    pub(super) fn holds(&self, snapshot: &Snapshot) -> bool {
        let server = snapshot.description().server_by_id(self.server);
        !snapshot.is_closed() && server.is_some_and(|server| role(server) == self.role)
    }

    /// Returns whether the member's hello replies contain the names of other members.
    pub(super) fn names_members(&self) -> bool {
        matches!(self.role.0, ServerType::RsPrimary | ServerType::RsSecondary)
    }

    /// Waits until the tenure ends.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    pub(super) async fn end(&self, topology: &Topology<Way>) {
        let mut snapshots = topology.watch();
        while let Some(snapshot) = snapshots.next().await {
            if !self.holds(&snapshot) {
                return;
            }
        }
    }
}
