//! The state of one server process, and the optimes of its writes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use sdam_core::{address::ServerAddress, ids::ObjectId, rng::Rng, time::Instant};

use crate::{
    MemberId,
    action::Impostor,
    config::{MemberConfig, SetConfig},
    deployment::Timer,
    fail_command::FailCommand,
    version::ServerVersion,
};

/// A server process, which may or may not be running.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) address: ServerAddress,
    pub(crate) version: ServerVersion,
    pub(crate) kind: Kind,
    pub(crate) state: ProcessState,
    /// True if the process is frozen: it does not read, write or handle deadlines.
    pub(crate) frozen: bool,
    /// True if clients cannot reach the process.
    pub(crate) cut_off: bool,
    /// The timers that expired while the process was frozen.
    pub(crate) stalled: Vec<Timer>,
    pub(crate) process: Process,
    /// True if the process streams replies to clients that allow it.
    pub(crate) exhaust: bool,
    /// The server that answers clients in the member's place.
    pub(crate) impostor: Option<Impostor>,
}

/// The kind of server.
#[derive(Debug)]
pub(crate) enum Kind {
    Standalone,
    Mongos,
    Replica(Box<Replica>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    Up,
    /// The process announces its shutdown until this time.
    Quiescing(Instant),
    Down,
}

/// State that is lost when the process ends.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// `topologyVersion.processId`.
    pub(crate) id: ObjectId,
    /// `topologyVersion.counter`.
    pub(crate) counter: i64,
    pub(crate) service_id: ObjectId,
    /// The number of messages that were sent.
    pub(crate) request_ids: i32,
    /// The number of connections that were accepted.
    pub(crate) connections: i32,
    /// The interval between spontaneous changes of the topology version.
    pub(crate) flood: Option<Duration>,
    pub(crate) fail_command: Option<FailCommand>,
    /// The fail point `onPrimaryTransactionalWrite`. It closes the connection on which a statement
    /// with a transaction number arrives: before the statement is run if an error code is set, and
    /// afterwards if not.
    pub(crate) fail_write: Option<FailCommand>,
    /// The number of times that fail points were triggered in this process.
    pub(crate) fail_point_hits: i32,
    /// `externalClientBaseBackoffMS`.
    pub(crate) base_backoff: Option<i64>,
    /// The state that clients saw last. Significant changes are detected by comparing the new state
    /// with this one.
    pub(crate) advertised: AdvertisedState,
}

/// A member of a replica set, or a process that could become one.
#[derive(Debug, Default)]
pub(crate) struct Replica {
    // The following fields survive a restart of the process.
    pub(crate) term: i64,
    pub(crate) voted: i64,
    pub(crate) config: Option<Arc<SetConfig>>,
    pub(crate) oplog: Oplog,
    // The following fields, except `lag`, are lost in a restart.
    pub(crate) role: Role,
    pub(crate) primary: Option<MemberId>,
    pub(crate) peers: BTreeMap<MemberId, PeerState>,
    /// The member does not run for election until this time.
    pub(crate) frozen_until: Instant,
    pub(crate) maintenance: bool,
    /// True if the member has been elected but is still catching up.
    pub(crate) draining: bool,
    /// True if the member stays primary without a majority.
    pub(crate) ignores_majority: bool,
    /// The replication lag that is added to the configured delay.
    pub(crate) lag: Duration,
}

/// The last known state of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerState {
    pub(crate) at: Instant,
    pub(crate) up: bool,
}

/// The role of a replica set member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The process has just started, or knows no configuration that includes it. Clients see an
    /// RSGhost.
    #[default]
    Startup,
    /// The member accepts writes.
    Primary,
    /// The member follows the primary.
    Secondary,
    /// The member is not readable because of maintenance.
    Recovering,
    /// The member votes but holds no data.
    Arbiter,
    /// The member was removed from the set. Clients see an RSGhost.
    Removed,
}

/// The fields of a hello reply that matter for topology changes: if one of them changes, the change
/// is significant (M-1).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AdvertisedState {
    role: Role,
    draining: bool,
    config: Option<(i64, i64)>,
    primary: Option<MemberId>,
    term: i64,
    horizon: u64,
    quiescing: bool,
}

impl Process {
    pub(crate) fn start(rng: &mut Rng) -> Self {
        Self { id: ObjectId::random(rng), service_id: ObjectId::random(rng), ..Self::default() }
    }
}

impl Member {
    pub(crate) fn new(
        address: ServerAddress,
        version: ServerVersion,
        kind: Kind,
        rng: &mut Rng,
    ) -> Self {
        Self {
            address,
            version,
            kind,
            state: ProcessState::Up,
            frozen: false,
            cut_off: false,
            stalled: Vec::new(),
            process: Process::start(rng),
            exhaust: true,
            impostor: None,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state != ProcessState::Down
    }

    /// Returns whether the member answers clients.
    pub(crate) fn answers(&self) -> bool {
        self.is_running() && !self.frozen && !self.cut_off
    }

    /// Returns whether the member answers other members.
    pub(crate) fn answers_members(&self) -> bool {
        self.is_running() && !self.frozen
    }

    pub(crate) fn replica(&self) -> Option<&Replica> {
        match &self.kind {
            Kind::Replica(replica) => Some(replica),
            Kind::Standalone | Kind::Mongos => None,
        }
    }

    pub(crate) fn replica_mut(&mut self) -> Option<&mut Replica> {
        match &mut self.kind {
            Kind::Replica(replica) => Some(replica),
            Kind::Standalone | Kind::Mongos => None,
        }
    }

    /// Returns the member's own entry in its configuration.
    pub(crate) fn config(&self) -> Option<&MemberConfig> {
        self.replica()?.config.as_ref()?.member(&self.address)
    }

    pub(crate) fn is_electable(&self) -> bool {
        self.config().is_some_and(MemberConfig::is_electable)
    }

    pub(crate) fn role(&self) -> Option<Role> {
        self.replica().map(|replica| replica.role)
    }

    /// Sets the role of a member that is not primary.
    pub(crate) fn assign_role(&mut self) {
        if let Kind::Replica(replica) = &mut self.kind {
            replica.role = replica.non_primary_role(&self.address);
        }
    }

    /// Returns the state that hello replies report now.
    pub(crate) fn advertised(&self, horizon: u64) -> AdvertisedState {
        let quiescing = matches!(self.state, ProcessState::Quiescing(_));
        let Some(replica) = self.replica() else {
            return AdvertisedState { quiescing, ..AdvertisedState::default() };
        };
        AdvertisedState {
            role: replica.role,
            draining: replica.draining,
            config: replica.config.as_ref().map(|config| (config.term, config.version)),
            primary: replica.primary,
            term: if replica.role == Role::Primary { replica.term } else { 0 },
            horizon,
            quiescing,
        }
    }
}

impl Replica {
    /// Returns whether clients may write to the member.
    pub(crate) fn is_writable(&self) -> bool {
        self.role == Role::Primary && !self.draining
    }

    /// Returns the role of a member that is not primary.
    fn non_primary_role(&self, address: &ServerAddress) -> Role {
        match self.config.as_ref().map(|config| config.member(address)) {
            None => Role::Startup,
            Some(None) => Role::Removed,
            Some(Some(member)) if member.arbiter => Role::Arbiter,
            Some(Some(_)) if self.maintenance => Role::Recovering,
            Some(Some(_)) => Role::Secondary,
        }
    }

    /// Returns the state of the member after a restart of its process.
    pub(crate) fn restarted(&mut self) -> Self {
        Self {
            term: self.term,
            voted: self.voted,
            config: self.config.take(),
            oplog: std::mem::take(&mut self.oplog),
            lag: self.lag,
            ..Self::default()
        }
    }
}

impl AdvertisedState {
    /// Returns whether the member was primary in this state but is not primary in `next`.
    pub(crate) fn stepped_down(&self, next: &Self) -> bool {
        self.role == Role::Primary && next.role != Role::Primary
    }
}

/// The position of a write in the history of a set. Positions are ordered by term, and then by
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpTime {
    pub(crate) term: i64,
    /// Seconds since the Unix epoch.
    pub(crate) seconds: u32,
    /// The number of the write within its second, starting at 1.
    pub(crate) increment: u32,
}

/// One write, and its date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) time: OpTime,
    pub(crate) at: Instant,
    /// Milliseconds since the Unix epoch (`lastWriteDate`).
    pub(crate) date: i64,
}

/// The optimes of a member's latest writes. The documents are in the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oplog {
    entries: VecDeque<Entry>,
}

impl Oplog {
    /// Returns the last write.
    pub(crate) fn last(&self) -> Entry {
        self.entries.back().copied().unwrap_or_default()
    }

    /// Adds an entry at `at`, with the wall clock time `date`. Drops entries that are so old that
    /// even a member with a lag of `retain` has replicated them.
    pub(crate) fn write(&mut self, term: i64, at: Instant, date: i64, retain: Duration) {
        let last = self.last().time;
        let seconds = u32::try_from(date.div_euclid(1000)).unwrap_or(0);
        let increment = if seconds <= last.seconds { last.increment + 1 } else { 1 };
        let time = OpTime { term, seconds: seconds.max(last.seconds), increment };
        self.entries.push_back(Entry { time, at, date });
        while self.entries.get(1).is_some_and(|second| second.at + retain < at) {
            self.entries.pop_front();
        }
    }

    /// Copies the entries that `source` had at `until`, and drops entries that `source` does not
    /// have (rollback).
    pub(crate) fn follow(&mut self, source: &Self, until: Instant) {
        let seen = source.entries.iter().filter(|entry| entry.at <= until);
        let (newest, last) = (seen.clone().next_back(), self.last().time);
        if newest.is_some_and(|newest| newest.time > last) || last > source.last().time {
            self.entries = seen.copied().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(seconds: impl IntoIterator<Item = u64>) -> Oplog {
        let mut oplog = Oplog::default();
        for second in seconds {
            let at = Instant::from_millis(second * 1000);
            oplog.write(1, at, second as i64 * 1000, Duration::from_secs(5));
        }
        oplog
    }

    #[test]
    fn entries_missing_from_the_source_are_rolled_back() {
        let source = written(0..3);
        let mut follower = written(0..9);
        follower.follow(&source, Instant::from_millis(9000));
        assert_eq!(follower.last(), source.last());
    }

    #[test]
    fn the_oplog_keeps_only_what_a_delayed_member_needs() {
        let oplog = written(0..1000);
        assert_eq!(oplog.entries.len(), 7);
    }

    #[test]
    fn writes_within_one_second_get_increments() {
        let mut oplog = written([4]);
        oplog.write(1, Instant::from_millis(4500), 4500, Duration::ZERO);
        assert_eq!(oplog.last().time.increment, 2);
        assert_eq!(oplog.last().date, 4500);
    }
}
