//! One server process and what it believes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sdam_core::{address::ServerAddress, ids::ObjectId, rng::Rng, time::Instant};

use crate::{
    MemberId,
    config::{MemberConfig, SetConfig},
    fail_command::FailCommand,
    oplog::Oplog,
    timers::Timer,
    version::ServerVersion,
};

/// A server process, or the place where one ran.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) address: ServerAddress,
    pub(crate) version: ServerVersion,
    pub(crate) kind: Kind,
    pub(crate) life: Life,
    /// The process neither reads nor writes nor counts time.
    pub(crate) frozen: bool,
    /// Clients do not reach the process.
    pub(crate) cut_off: bool,
    /// What became due while the process was frozen.
    pub(crate) stalled: Vec<Timer>,
    pub(crate) process: Process,
    /// Whether it streams to clients that allow it.
    pub(crate) exhaust: bool,
    /// How often it tells of a change, though nothing has changed.
    pub(crate) flood: Option<Duration>,
    pub(crate) fail_command: Option<FailCommand>,
    /// How often a fail point has struck this process.
    pub(crate) strikes: i32,
}

/// What kind of server a member is.
#[derive(Debug)]
pub(crate) enum Kind {
    Standalone,
    Mongos,
    Replica(Box<Replica>),
}

/// Whether the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Up,
    /// It announces its shutdown until then.
    Quiescing(Instant),
    Down,
}

/// What a process forgets when it ends.
#[derive(Debug)]
pub(crate) struct Process {
    /// `topologyVersion.processId`.
    pub(crate) id: ObjectId,
    /// `topologyVersion.counter`.
    pub(crate) counter: i64,
    pub(crate) service_id: ObjectId,
    request_ids: i32,
    connections: i32,
    /// What clients were last told, to notice significant changes.
    pub(crate) face: Face,
}

/// A member of a replica set, or a process that could become one.
#[derive(Debug, Default)]
pub(crate) struct Replica {
    // What survives a restart.
    pub(crate) term: i64,
    pub(crate) voted: i64,
    pub(crate) config: Option<Arc<SetConfig>>,
    pub(crate) oplog: Oplog,
    // What does not.
    pub(crate) role: Role,
    pub(crate) primary: Option<MemberId>,
    pub(crate) heard: BTreeMap<MemberId, Heard>,
    /// It does not run for election until then.
    pub(crate) frozen_until: Instant,
    pub(crate) maintenance: bool,
    /// It has won its election and still catches up.
    pub(crate) draining: bool,
    /// It stays primary although it sees no majority.
    pub(crate) deluded: bool,
    /// How far it is behind beyond its configured delay.
    pub(crate) lag: Duration,
}

/// What a member knows of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub(crate) at: Instant,
    pub(crate) up: bool,
}

/// The state of a replica set member, as the set sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Just started, or without a configuration that names it: clients see a ghost.
    #[default]
    Startup,
    /// Accepts writes.
    Primary,
    /// Follows the primary.
    Secondary,
    /// Cannot be read, for maintenance.
    Recovering,
    /// Votes only.
    Arbiter,
    /// Was removed from the set: clients see a ghost.
    Removed,
}

/// Everything in a hello reply whose change is a significant topology change (M-1).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Face {
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
        Self {
            id: ObjectId::random(rng),
            counter: 0,
            service_id: ObjectId::random(rng),
            request_ids: 0,
            connections: 0,
            face: Face::default(),
        }
    }

    pub(crate) fn next_request_id(&mut self) -> i32 {
        self.request_ids = self.request_ids.wrapping_add(1);
        self.request_ids
    }

    pub(crate) fn next_connection(&mut self) -> i32 {
        self.connections = self.connections.wrapping_add(1);
        self.connections
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
            life: Life::Up,
            frozen: false,
            cut_off: false,
            stalled: Vec::new(),
            process: Process::start(rng),
            exhaust: true,
            flood: None,
            fail_command: None,
            strikes: 0,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.life != Life::Down
    }

    /// Whether clients get answers.
    pub(crate) fn answers(&self) -> bool {
        self.is_running() && !self.frozen && !self.cut_off
    }

    /// Whether other members get answers.
    pub(crate) fn gossips(&self) -> bool {
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

    /// The member's own entry in the configuration it knows.
    pub(crate) fn config(&self) -> Option<&MemberConfig> {
        self.replica()?.config.as_ref()?.member(&self.address)
    }

    pub(crate) fn role(&self) -> Option<Role> {
        self.replica().map(|replica| replica.role)
    }

    /// What clients are to be told now.
    pub(crate) fn face(&self, horizon: u64) -> Face {
        let quiescing = matches!(self.life, Life::Quiescing(_));
        let Some(replica) = self.replica() else {
            return Face {
                quiescing,
                ..Face::default()
            };
        };
        Face {
            role: replica.role,
            draining: replica.draining,
            config: replica
                .config
                .as_ref()
                .map(|config| (config.term, config.version)),
            primary: replica.primary,
            term: if replica.role == Role::Primary {
                replica.term
            } else {
                0
            },
            horizon,
            quiescing,
        }
    }
}

impl Replica {
    /// Whether clients may write to it.
    pub(crate) fn is_writable(&self) -> bool {
        self.role == Role::Primary && !self.draining
    }

    /// The role of a member that is not primary.
    pub(crate) fn resting_role(&self, address: &ServerAddress) -> Role {
        match self.config.as_ref().map(|config| config.member(address)) {
            None => Role::Startup,
            Some(None) => Role::Removed,
            Some(Some(member)) if member.arbiter => Role::Arbiter,
            Some(Some(_)) if self.maintenance => Role::Recovering,
            Some(Some(_)) => Role::Secondary,
        }
    }

    /// What a process remembers when it starts again.
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

impl Face {
    /// Whether the member was primary and is not any more.
    pub(crate) fn stepped_down(&self, next: &Self) -> bool {
        self.role == Role::Primary && next.role != Role::Primary
    }
}
