//! The true state of a deployment, as tests and operators see it.

use sdam_core::{address::ServerAddress, ids::ObjectId, ids::TopologyVersion};

use super::{Deployment, blueprint::election_id};
use crate::{
    MemberId,
    config::SetConfig,
    member::{Member, ProcessState, Role},
};

/// The true state of a deployment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// The members, in the order of their [`MemberId`]s.
    pub members: Vec<MemberStatus>,
}

/// The true state of one member.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemberStatus {
    /// The member's id.
    pub id: MemberId,
    /// The address at which clients reach the member.
    pub address: ServerAddress,
    /// The member's role; `None` for a standalone server or a mongos.
    pub role: Option<Role>,
    /// True if the process is running.
    pub running: bool,
    /// True if the process is running and answers clients.
    pub answers: bool,
    /// True if the process announces its shutdown in its replies (M-31).
    pub quiescing: bool,
    /// The newest term that the member knows; 0 outside a replica set.
    pub term: i64,
    /// The id of the member's election, if it is primary.
    pub election_id: Option<ObjectId>,
    /// The version of the member's configuration.
    pub set_version: Option<i64>,
    /// The topology version that the member would report.
    pub topology_version: TopologyVersion,
    /// The primary that this member follows. A primary follows itself.
    pub primary: Option<MemberId>,
}

impl Status {
    /// Returns the primary. If there are two primaries, returns the one that was elected last.
    pub fn primary(&self) -> Option<&MemberStatus> {
        let running = self.members.iter().filter(|member| member.running);
        let primaries = running.filter(|member| member.role == Some(Role::Primary));
        primaries.max_by_key(|member| member.term)
    }
}

impl Deployment {
    /// Returns the true state of all members.
    pub fn status(&self) -> Status {
        let members = self.ids().map(|id| describe(id, self.member(id))).collect();
        Status { members }
    }

    /// Returns the newest configuration that any running member of the set has.
    pub fn config(&self) -> Option<SetConfig> {
        let known = self.members.iter().filter(|member| member.is_running());
        let newest = known
            .filter_map(|member| member.replica()?.config.as_ref())
            .reduce(|a, b| if b.is_newer_than(a) { b } else { a })?;
        Some(SetConfig::clone(newest))
    }
}

fn describe(id: MemberId, member: &Member) -> MemberStatus {
    let replica = member.replica();
    let running = member.state != ProcessState::Down;
    let term = replica.map_or(0, |replica| replica.term);
    MemberStatus {
        id,
        address: member.address.clone(),
        role: replica.map(|replica| replica.role),
        running,
        answers: member.answers(),
        quiescing: matches!(member.state, ProcessState::Quiescing(_)),
        term,
        election_id: replica
            .filter(|replica| replica.role == Role::Primary)
            .map(|_| election_id(term)),
        set_version: replica.and_then(|own| Some(own.config.as_ref()?.version)),
        topology_version: TopologyVersion {
            process_id: member.process.id,
            counter: member.process.counter,
        },
        primary: replica.and_then(|replica| replica.primary),
    }
}
