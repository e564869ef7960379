//! The server processes of a deployment, without I/O.

mod apply;
mod blueprint;
mod election;
mod gossip;
mod server;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use sdam_core::{
    address::ServerAddress,
    ids::{ObjectId, TopologyVersion},
    rng::Rng,
    time::Instant,
};

pub use self::blueprint::Blueprint;
pub(crate) use self::blueprint::election_id;
use self::server::{Connection, Cursors, Numbered};
pub use crate::member::Role;
use crate::{
    action::HorizonPolicy,
    config::SetConfig,
    member::{Kind, Member, Process, ProcessState, Replica},
    store::Store,
    timing::Timing,
    version::ServerVersion,
};

/// The number of a server process in its deployment, starting at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u16);

impl MemberId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A connection between a client and one server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    number: u64,
    /// The server process.
    pub(crate) member: MemberId,
}

/// An operation that the caller must perform on behalf of the deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Send these bytes to the client.
    Send {
        /// The connection to send on.
        connection: ConnectionId,
        /// One complete message.
        bytes: Vec<u8>,
    },
    /// Close the connection, which the deployment no longer tracks.
    Close {
        /// The connection to close.
        connection: ConnectionId,
    },
    /// The process ended: refuse new connections to it.
    Down {
        /// The process that ended.
        member: MemberId,
    },
    /// The process started: accept connections to it.
    Up {
        /// The process that started.
        member: MemberId,
    },
}

/// The [`Output`]s of one call, in order.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "dropping it loses replies that clients wait for"]
pub struct Outputs(Vec<Output>);

impl Outputs {
    /// Returns the outputs, in order.
    pub fn as_slice(&self) -> &[Output] {
        &self.0
    }
}

impl IntoIterator for Outputs {
    type Item = Output;
    type IntoIter = std::vec::IntoIter<Output>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// All server processes of a deployment: a replica set, a sharded cluster or a standalone server.
///
/// For each event, call the corresponding method with the current time, which must never go back,
/// and perform the returned [`Outputs`]. Also call [`advance`](Self::advance) at
/// [`next_deadline`](Self::next_deadline).
#[derive(Debug)]
pub struct Cluster {
    pub(crate) members: Vec<Member>,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    opened: u64,
    pub(crate) timers: Timers,
    /// The time of the current call, or of the timer that is firing.
    pub(crate) now: Instant,
    pub(crate) timing: Timing,
    rng: Rng,
    /// The wall clock time at [`Instant::EPOCH`], in milliseconds since the Unix epoch.
    epoch_millis: i64,
    /// Pairs of disconnected members. The smaller id comes first.
    partitions: BTreeSet<(MemberId, MemberId)>,
    pub(crate) store: Store,
    cursors: Cursors,
    pub(crate) numbered: Numbered,
    /// The number of times the split horizon has changed.
    horizon: u64,
    horizon_policy: HorizonPolicy,
    /// True if the mongoses are behind a load balancer.
    balanced: bool,
    #[cfg(feature = "auth")]
    pub(crate) users: crate::users::Users,
    pub(crate) outputs: Vec<Output>,
    /// True if the `AdvertisedState` of any member may have changed.
    dirty: bool,
}

impl Cluster {
    /// Starts the deployment that `blueprint` describes. A replica set has a primary immediately.
    pub fn start(now: Instant, blueprint: &Blueprint, mut rng: Rng) -> Self {
        let members = blueprint.members(&mut rng);
        let mut deployment = Self {
            members,
            connections: BTreeMap::new(),
            opened: 0,
            timers: Timers::default(),
            now,
            timing: blueprint.timing.unwrap_or_default(),
            rng,
            epoch_millis: blueprint.epoch(),
            partitions: BTreeSet::new(),
            store: Store::default(),
            cursors: Cursors::default(),
            numbered: Numbered::default(),
            horizon: 0,
            horizon_policy: HorizonPolicy::default(),
            balanced: blueprint.balanced,
            #[cfg(feature = "auth")]
            users: blueprint.users.clone(),
            outputs: Vec::new(),
            dirty: false,
        };
        for member in deployment.ids() {
            deployment.join(member);
        }
        deployment.elect_first();
        deployment.settle();
        deployment
    }

    /// Opens a client connection to `member`. Returns `None` if the member is not listening.
    pub fn open(&mut self, member: MemberId) -> Option<ConnectionId> {
        let process = self.members.get_mut(member.index())?;
        if !process.is_running() {
            return None;
        }
        process.process.connections += 1;
        self.opened += 1;
        let id = ConnectionId { number: self.opened, member };
        self.connections.insert(id, Connection::new(process.process.connections));
        Some(id)
    }

    /// Handles bytes that arrive from a client. Messages may be split at any position.
    pub fn receive(&mut self, now: Instant, connection: ConnectionId, bytes: &[u8]) -> Outputs {
        self.now = now;
        self.take_bytes(connection, bytes);
        self.finish()
    }

    /// Removes a connection that its client closed.
    pub fn closed(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
        self.timers.cancel(Timer::Connection(connection));
    }

    /// Returns the next deadline. Call [`advance`](Self::advance) at that time, unless another
    /// event comes first.
    pub fn next_deadline(&self) -> Option<Instant> {
        Some(self.timers.next()?.0)
    }

    /// Handles all deadlines up to `now`.
    pub fn advance(&mut self, now: Instant) -> Outputs {
        while let Some((at, timer)) = self.timers.next().filter(|(at, _)| *at <= now) {
            self.timers.cancel(timer);
            self.now = at;
            self.fire(timer);
            self.settle();
        }
        self.now = now;
        self.finish()
    }

    /// Returns the process that clients reach at `address`.
    pub fn member_at(&self, address: &ServerAddress) -> Option<MemberId> {
        self.ids().find(|member| self.member(*member).address == *address)
    }

    /// Returns the processes at `address`. Behind a load balancer, these are all mongoses with that
    /// address.
    pub(crate) fn members_at(&self, address: &ServerAddress) -> Vec<MemberId> {
        let members = self.ids();
        members.filter(|member| self.member(*member).address == *address).collect()
    }

    /// Returns the connection string of the deployment.
    pub fn uri(&self) -> String {
        let hosts: Vec<&str> = self.seeds().into_iter().map(ServerAddress::as_str).collect();
        let options = self.options().map(|options| format!("?{options}"));
        format!("mongodb://{}/{}", hosts.join(","), options.unwrap_or_default())
    }

    /// Returns the hosts of the connection string.
    pub(crate) fn seeds(&self) -> Vec<&ServerAddress> {
        let in_set = self.set_config().is_some();
        // Hidden members are not visible to clients.
        let is_visible = |own: &&Member| !in_set || own.config().is_some_and(|own| !own.hidden);
        let visible = self.members.iter().filter(is_visible);
        let mut hosts: Vec<_> = visible.map(|member| &member.address).collect();
        // Behind a load balancer, all mongoses have the balancer's address.
        hosts.dedup();
        hosts
    }

    /// Returns the options of the connection string.
    pub(crate) fn options(&self) -> Option<String> {
        if let Some(config) = self.set_config() {
            return Some(format!("replicaSet={}", config.name));
        }
        if self.balanced {
            return Some("loadBalanced=true".to_owned());
        }
        let is_direct = match self.members.as_slice() {
            [Member { kind: Kind::Standalone, .. }] => true,
            [first, ..] => first.replica().is_some(),
            [] => false,
        };
        is_direct.then(|| "directConnection=true".to_owned())
    }

    /// Returns the configuration of the first member that has one.
    fn set_config(&self) -> Option<&SetConfig> {
        self.members.first()?.replica()?.config.as_deref()
    }

    pub(crate) fn ids(&self) -> impl DoubleEndedIterator<Item = MemberId> + use<> {
        (0..self.members.len()).map(|index| MemberId(index as u16))
    }

    pub(crate) fn member(&self, member: MemberId) -> &Member {
        &self.members[member.index()]
    }

    pub(crate) fn member_mut(&mut self, member: MemberId) -> &mut Member {
        &mut self.members[member.index()]
    }

    pub(crate) fn replica(&self, member: MemberId) -> Option<&Replica> {
        self.member(member).replica()
    }

    pub(crate) fn replica_mut(&mut self, member: MemberId) -> Option<&mut Replica> {
        self.dirty = true;
        self.member_mut(member).replica_mut()
    }

    /// Returns the wall clock time, in milliseconds since the Unix epoch.
    pub(crate) fn date(&self) -> i64 {
        self.epoch_millis.saturating_add_unsigned(self.now.as_nanos() / 1_000_000)
    }

    fn fire(&mut self, timer: Timer) {
        let own = self.member_mut(timer.owner());
        if own.frozen {
            return own.stalled.push(timer);
        }
        match timer {
            Timer::Startup(member) => self.join(member),
            Timer::Heartbeat(member) => self.heartbeat(member),
            Timer::Election(member) | Timer::Takeover(member) => self.campaign(member),
            Timer::CatchUp(member) => self.accept_writes(member),
            Timer::NoOp(member) => self.record_write(member),
            Timer::Quiesce(member) => self.finish_shutdown(member),
            Timer::Flood(member) => {
                self.member_mut(member).process.counter += 1;
                self.topology_changed(member, false);
                self.schedule_flood(member);
            }
            Timer::Connection(connection) => self.connection_due(connection),
        }
    }

    fn start_process(&mut self, member: MemberId) {
        let process = Process::start(&mut self.rng);
        let startup = self.timing.startup;
        let horizon = self.horizon;
        let own = self.member_mut(member);
        own.state = ProcessState::Up;
        own.process = process;
        if let Some(replica) = own.replica_mut() {
            *replica = replica.restarted();
        }
        own.process.advertised = own.advertised(horizon);
        if own.replica().is_some() {
            self.timers.set(Timer::Startup(member), self.now + startup);
        }
        self.outputs.push(Output::Up { member });
    }

    /// Ends the process of `member` and closes its connections.
    fn end_process(&mut self, member: MemberId) {
        self.dirty = true;
        let own = self.member_mut(member);
        own.state = ProcessState::Down;
        own.frozen = false;
        own.stalled.clear();
        self.timers.retain(|timer| timer.owner() != member);
        self.close_connections(member);
        self.outputs.push(Output::Down { member });
    }

    /// Schedules the next spontaneous topology change of `member` (`Action::Flood`), or cancels it
    /// if such changes have been turned off.
    fn schedule_flood(&mut self, member: MemberId) {
        match self.member(member).process.flood {
            Some(every) => self.timers.set(Timer::Flood(member), self.now + every),
            None => self.timers.cancel(Timer::Flood(member)),
        }
    }

    /// Fails the pending requests of `member` and ends its process.
    fn finish_shutdown(&mut self, member: MemberId) {
        self.interrupt_all(member);
        self.end_process(member);
    }

    fn finish(&mut self) -> Outputs {
        self.settle();
        Outputs(std::mem::take(&mut self.outputs))
    }

    /// Counts significant topology changes, and answers the hellos that have been waiting for such
    /// a change (M-1, M-6).
    fn settle(&mut self) {
        while std::mem::take(&mut self.dirty) {
            for member in self.ids() {
                let horizon = self.horizon;
                let own = self.member_mut(member);
                if !own.answers_members()
                    || own.replica().is_none() && own.state == ProcessState::Up
                {
                    // Standalone servers and mongoses increment their topology version only when
                    // they shut down (M-9).
                    continue;
                }
                let advertised = own.advertised(horizon);
                if advertised == own.process.advertised {
                    continue;
                }
                let previous = std::mem::replace(&mut own.process.advertised, advertised);
                own.process.counter += 1;
                let stepped_down = previous.stepped_down(&own.process.advertised);
                // Since 4.2, connections survive a step-down (M-32).
                if stepped_down && own.version < ServerVersion::V4_2.patch(0) {
                    self.close_connections(member);
                    continue;
                }
                self.topology_changed(member, stepped_down);
            }
        }
    }
}

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

impl Cluster {
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

/// The event that is due at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The member joins its set after its start.
    Startup(MemberId),
    /// The member sends heartbeats to its peers.
    Heartbeat(MemberId),
    /// The member has not seen a primary for the duration of the election timeout.
    Election(MemberId),
    /// The member has a higher priority than the primary.
    Takeover(MemberId),
    /// The new primary has caught up.
    CatchUp(MemberId),
    /// The primary writes a no-op.
    NoOp(MemberId),
    /// The quiesce period of the member's shutdown ends.
    Quiesce(MemberId),
    /// The member changes its topology version again ([`Action::Flood`](crate::Action::Flood)).
    Flood(MemberId),
    /// The connection's current request reaches its deadline.
    Connection(ConnectionId),
}

impl Timer {
    /// Returns the member to which this timer belongs.
    fn owner(self) -> MemberId {
        match self {
            Self::Startup(member)
            | Self::Heartbeat(member)
            | Self::Election(member)
            | Self::Takeover(member)
            | Self::CatchUp(member)
            | Self::NoOp(member)
            | Self::Quiesce(member)
            | Self::Flood(member) => member,
            Self::Connection(connection) => connection.member,
        }
    }
}

/// The deadlines, at most one for each [`Timer`].
#[derive(Debug, Default)]
pub(crate) struct Timers {
    deadlines: BTreeMap<Timer, Instant>,
    queue: BTreeSet<(Instant, Timer)>,
}

impl Timers {
    /// Sets or replaces the deadline of `timer`.
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        if let Some(before) = self.deadlines.insert(timer, at) {
            self.queue.remove(&(before, timer));
        }
        self.queue.insert((at, timer));
    }

    /// Sets the deadline of `timer` if it has none.
    fn set_if_unset(&mut self, timer: Timer, at: Instant) {
        if !self.deadlines.contains_key(&timer) {
            self.set(timer, at);
        }
    }

    fn cancel(&mut self, timer: Timer) {
        if let Some(at) = self.deadlines.remove(&timer) {
            self.queue.remove(&(at, timer));
        }
    }

    /// Cancels every timer for which `stays` returns false.
    pub(crate) fn retain(&mut self, stays: impl Fn(Timer) -> bool) {
        self.deadlines.retain(|timer, _| stays(*timer));
        self.queue.retain(|(_, timer)| stays(*timer));
    }

    /// Returns the next deadline and its timer.
    pub(crate) fn next(&self) -> Option<(Instant, Timer)> {
        self.queue.first().copied()
    }
}
