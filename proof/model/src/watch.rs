//! Test doubles for a server's pool, connections and checks. The doubles also verify the outputs
//! that concern them.

use std::time::Duration;

use sdam_core::{
    deployment::{ConnId, Role},
    ids::ServerId,
    time::Instant,
};

use crate::{
    oracle::{Pool, ensure},
    start::{Call, Purpose, Start},
};

/// The number of checks that may follow one another without a pause.
const BURST: u32 = 50;

/// The minimum time after which an answer is overdue.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time after which a full burst is allowed again: 50 ms per check, including the check that
/// exceeded the limit.
const REST: Duration = Duration::from_millis(2_550);

/// The two deadlines of each server: the first applies if no selection is waiting, the second if a
/// selection is waiting.
pub(crate) type Timers = Vec<(ServerId, [Option<Instant>; 2])>;

/// The state of a server that results from the outputs so far.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) id: ServerId,
    pub(crate) pool: Pool,
    pub(crate) check: Connection,
    pub(crate) ping: Connection,
    pub(crate) probe: Connection,
    /// True if a heartbeat is in progress.
    pub(crate) checking: bool,
    /// True if the last check used an awaitable hello. Round-trip times are then measured
    /// separately.
    pub(crate) streamed: bool,
    /// True if the task that checks the server was dropped.
    pub(crate) deserted: bool,
    /// The time of the server's last answer.
    pub(crate) answered: Option<Instant>,
    /// The time at which the server was reported as silent (`ServerSuspected`).
    pub(crate) suspected: Option<Instant>,
    /// The time since which an operation has been waiting for an answer.
    pub(crate) late: Option<Instant>,
    /// The time at which the detector began to probe the server.
    pub(crate) asked: Option<Instant>,
    /// The longest round trip.
    pub(crate) slowest: Duration,
    /// The earliest time for the next check.
    pub(crate) earliest: Instant,
    pub(crate) rush: Rush,
}

/// A connection for a server's checks or round-trip measurements.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnId,
    pub(crate) phase: Phase,
    /// The time of the outstanding request.
    pub(crate) since: Instant,
    /// The time at which the outstanding request fails.
    pub(crate) deadline: Option<Instant>,
    /// True if the server answers the request only after a change.
    pub(crate) awaited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Closed,
    Connecting,
    /// The connection is open, and no answer is outstanding.
    Open,
    Asked,
}

/// The state of the rate limit for checks that follow one another without a pause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rush {
    /// True if the next check must begin in this call.
    pub(crate) is_due: bool,
    last: Instant,
    /// The number of checks that were made at the instant of the most recent check.
    here: u32,
    /// The number of checks since the last pause of at least `REST`.
    count: u32,
}

impl Watch {
    pub(crate) fn new(id: ServerId, monitored: bool) -> Self {
        Self {
            id,
            pool: Pool::default(),
            check: Connection::new(id, Role::Check),
            ping: Connection::new(id, Role::Ping),
            probe: Connection::new(id, Role::Probe),
            checking: false,
            streamed: false,
            deserted: !monitored,
            answered: None,
            suspected: None,
            late: None,
            asked: None,
            slowest: Duration::ZERO,
            earliest: Instant::EPOCH,
            rush: Rush::default(),
        }
    }

    pub(crate) fn connections(&self) -> [&Connection; 3] {
        [&self.check, &self.ping, &self.probe]
    }

    pub(crate) fn connection(&mut self, role: Role) -> &mut Connection {
        match role {
            Role::Check => &mut self.check,
            Role::Ping => &mut self.ping,
            Role::Probe => &mut self.probe,
        }
    }

    pub(crate) fn begins(&mut self, call: Call, now: Instant, awaited: bool) -> Result<(), String> {
        ensure(!self.checking, || {
            format!("F-40: a second check of server {} is in flight", self.id)
        })?;
        let own = match call.purpose {
            Purpose::Other | Purpose::Service => false,
            Purpose::Server => call.about == Some(self.id),
            Purpose::Request => true,
        };
        ensure(own, || format!("a check of server {} begins in another call", self.id))?;
        ensure(self.earliest <= now, || {
            format!(
                "F-41: a check of server {} begins at {now:?}, before {:?}",
                self.id, self.earliest
            )
        })?;
        ensure(!self.deserted, || format!("server {} is deserted and is checked", self.id))?;
        (self.checking, self.rush.is_due) = (true, false);
        self.streamed |= awaited;
        Ok(())
    }

    /// Checks that the server has been silent for long enough. `witness` is the time at which
    /// another server last answered; `stalled` is the end of this host's last stall.
    pub(crate) fn has_been_silent(
        &self,
        now: Instant,
        heartbeat: Duration,
        (witness, stalled): (Option<Instant>, Option<Instant>),
    ) -> Result<(), String> {
        let asked = self.connections().into_iter().filter(|own| own.is_asked());
        let due = asked.map(|own| own.due(heartbeat));
        let expected = due.min().max(self.answered).max(stalled);
        let late = self.answered.and(expected);
        ensure(late.is_some_and(|late| late + PATIENCE <= now && witness > Some(late)), || {
            format!("server {} is suspected: {self:?}, {witness:?}, {stalled:?}", self.id)
        })
    }

    /// Records that the server is reported as silent.
    pub(crate) fn suspect(&mut self, now: Instant) -> Result<(), String> {
        let before = self.suspected.replace(now);
        ensure(before.is_none(), || format!("server {} is suspected twice", self.id))
    }

    /// Records that a check has ended. The next check begins immediately if `at_once` is true, and
    /// after a pause otherwise.
    pub(crate) fn ends(&mut self, now: Instant, at_once: bool) -> Result<(), String> {
        ensure(self.checking, || format!("I10: a heartbeat of server {} ends twice", self.id))?;
        self.checking = false;
        self.earliest = now + Start::MINIMUM;
        if at_once {
            let rush = &mut self.rush;
            if now.since(rush.last) >= REST {
                rush.count = 0;
            }
            if now != rush.last {
                rush.here = 0;
            }
            rush.last = now;
            rush.here += 1;
            rush.count += 1;
            if rush.here <= BURST {
                self.earliest = now;
            }
            rush.is_due = rush.count <= BURST;
        }
        Ok(())
    }

    pub(crate) fn sends(
        &mut self,
        conn: ConnId,
        now: Instant,
        asked: (Phase, bool),
        deadline: Option<Instant>,
    ) -> Result<(), String> {
        let checking = self.checking;
        let own = self.connection(conn.role);
        let (phase, awaited) = asked;
        ensure(
            match phase {
                Phase::Connecting => own.phase == Phase::Closed && own.id.number < conn.number,
                _ => own.phase == Phase::Open && own.id == conn,
            },
            || format!("{conn:?} is {phase:?} while the connection is {own:?}"),
        )?;
        ensure(checking || conn.role != Role::Check, || {
            format!("{conn:?} is {phase:?} without a check")
        })?;
        *own = Connection { id: conn, phase, since: now, deadline, awaited };
        Ok(())
    }
}

impl Connection {
    fn new(server: ServerId, role: Role) -> Self {
        Self {
            id: ConnId { server, role, number: 0 },
            phase: Phase::Closed,
            since: Instant::EPOCH,
            deadline: None,
            awaited: false,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::Asked)
    }

    /// Returns the id of the connection. Also returns, for each kind of answer (connected, reply,
    /// error), whether an answer of this kind would be unrequested.
    pub(crate) fn unasked(&self) -> (ConnId, [bool; 3]) {
        let answers = match self.phase {
            Phase::Closed | Phase::Open => [true; 3],
            Phase::Connecting => [false, true, false],
            Phase::Asked => [true, false, false],
        };
        (self.id, answers)
    }
}
