//! Doubles of a server's pool, connections and checks, which judge the outputs for them.

use std::time::Duration;

use sdam_core::{
    deployment::{ConnId, Output, Role},
    error::ErrorKind,
    event::EventKind,
    ids::ServerId,
    time::Instant,
    topology::TopologyDescription,
};

use crate::{
    oracle::{self, Pool, ensure},
    world::{Call, Start, World},
};

/// The number of checks that may follow each other without a pause.
const BURST: u32 = 50;

/// The time after which a whole burst may follow again.
const REST: Duration = Duration::from_millis(2_500);

/// The state of a server according to the outputs so far.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) id: ServerId,
    pub(crate) pool: Pool,
    pub(crate) check: Connection,
    pub(crate) ping: Connection,
    /// True if a heartbeat has started that has not ended.
    pub(crate) checking: bool,
    /// True if the last check waited for a change, so that round trips are measured.
    pub(crate) streamed: bool,
    /// True if the server is not checked any more.
    pub(crate) deserted: bool,
    /// When the next check may begin.
    pub(crate) earliest: Instant,
    pub(crate) rush: Rush,
}

/// The connection of a server's checks or measurements.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnId,
    pub(crate) phase: Phase,
    /// When the outstanding request was made.
    pub(crate) since: Instant,
    /// When the outstanding request fails.
    pub(crate) deadline: Option<Instant>,
    /// True if the server waits for a change before it answers.
    pub(crate) awaited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Closed,
    Connecting,
    /// Open, and no answer is outstanding.
    Open,
    Asked,
}

/// Checks that follow each other without a pause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rush {
    /// True if the next check has to begin in this call.
    pub(crate) is_due: bool,
    last: Instant,
    /// The number at the instant of the last one.
    here: u32,
    /// The number since the last rest.
    count: u32,
}

impl Watch {
    fn new(id: ServerId) -> Self {
        Self {
            id,
            pool: Pool::default(),
            check: Connection::new(id, Role::Check),
            ping: Connection::new(id, Role::Ping),
            checking: false,
            streamed: false,
            deserted: false,
            earliest: Instant::EPOCH,
            rush: Rush::default(),
        }
    }

    pub(crate) fn connections(&self) -> [&Connection; 2] {
        [&self.check, &self.ping]
    }

    pub(crate) fn connection(&mut self, role: Role) -> &mut Connection {
        match role {
            Role::Check => &mut self.check,
            Role::Ping => &mut self.ping,
        }
    }

    fn begins(&mut self, call: Call, now: Instant, awaited: bool) -> Result<(), String> {
        ensure(!self.checking, || {
            format!("F-40: a second check of server {} is in flight", self.id)
        })?;
        ensure(call.own && call.about == Some(self.id), || {
            format!("a check of server {} begins in another call", self.id)
        })?;
        ensure(self.earliest <= now, || {
            format!(
                "F-41: a check of server {} begins at {now:?}, before {:?}",
                self.id, self.earliest
            )
        })?;
        ensure(!self.deserted, || {
            format!("server {} is deserted and is checked", self.id)
        })?;
        (self.checking, self.rush.is_due) = (true, false);
        self.streamed |= awaited;
        Ok(())
    }

    /// Notes the end of a check, after which the next one begins at once or after a pause.
    fn ends(&mut self, now: Instant, at_once: bool) -> Result<(), String> {
        ensure(self.checking, || {
            format!("I10: a heartbeat of server {} ends twice", self.id)
        })?;
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

    fn sends(
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
        ensure(checking || conn.role == Role::Ping, || {
            format!("{conn:?} is {phase:?} without a check")
        })?;
        *own = Connection {
            id: conn,
            phase,
            since: now,
            deadline,
            awaited,
        };
        Ok(())
    }
}

impl Connection {
    fn new(server: ServerId, role: Role) -> Self {
        Self {
            id: ConnId {
                server,
                role,
                number: 0,
            },
            phase: Phase::Closed,
            since: Instant::EPOCH,
            deadline: None,
            awaited: false,
        }
    }

    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::Asked)
    }

    /// Returns the answers that nobody has asked for: that it is open, a reply, an error.
    pub(crate) fn unasked(&self) -> (ConnId, [bool; 3]) {
        let answers = match self.phase {
            Phase::Closed | Phase::Open => [true; 3],
            Phase::Connecting => [false, true, false],
            Phase::Asked => [true, false, false],
        };
        (self.id, answers)
    }
}

impl World {
    /// Performs an output. Adds connections that are closed to `gone`.
    pub(crate) fn follow(
        &mut self,
        call: Call,
        known: bool,
        before: &TopologyDescription,
        output: &Output,
        gone: &mut Vec<ConnId>,
    ) -> Result<(), String> {
        let (now, start) = (self.now, self.start);
        let limit = |awaited: bool| {
            let wait = if awaited {
                start.heartbeat()
            } else {
                Duration::ZERO
            };
            start.limit().map(|limit| now + limit + wait)
        };
        match output {
            Output::OpenServer { server, .. } => {
                let is_new = self.watches.last().is_none_or(|last| last.id < *server);
                ensure(is_new, || format!("the id {server} is used twice"))?;
                self.watches.push(Watch::new(*server));
            }
            Output::CloseServer { server } => {
                let own = self.own(*server)?;
                let ended =
                    !own.checking && own.connections().map(|own| own.phase) == [Phase::Closed; 2];
                ensure(ended, || {
                    format!("server {server} is closed before its checks: {own:?}")
                })?;
                gone.extend(own.connections().map(|own| own.id));
                self.watches.retain(|own| own.id != *server);
            }
            Output::Connect { conn, deadline } => {
                ensure(*deadline == limit(false), || {
                    format!("F-10: {conn:?} has until {deadline:?} to connect")
                })?;
                let own = self.own(conn.server)?;
                own.sends(*conn, now, (Phase::Connecting, false), *deadline)?;
            }
            Output::Send {
                conn,
                request,
                deadline,
            } => {
                let awaited = request.awaiting.is_some();
                ensure(*deadline == limit(awaited), || {
                    format!("F-10, F-11: {conn:?} has until {deadline:?} for a reply")
                })?;
                ensure(!awaited || conn.role == Role::Check, || {
                    format!("G-7: {conn:?} waits for a change")
                })?;
                let own = self.own(conn.server)?;
                own.sends(*conn, now, (Phase::Asked, awaited), *deadline)?;
            }
            Output::Read { conn, deadline } => {
                ensure(*deadline == limit(true), || {
                    format!("F-11: {conn:?} has until {deadline:?} for the next reply")
                })?;
                let own = self.own(conn.server)?;
                own.sends(*conn, now, (Phase::Asked, true), *deadline)?;
            }
            Output::Disconnect { conn } => {
                let own = self.own(conn.server)?.connection(conn.role);
                ensure(own.id == *conn && own.phase != Phase::Closed, || {
                    format!("{conn:?} is closed while the connection is {own:?}")
                })?;
                own.phase = Phase::Closed;
                gone.push(*conn);
            }
            Output::Wake { server } => {
                self.own(*server)?;
            }
            Output::PoolReady { server } => {
                let (after, about) = (std::sync::Arc::clone(&self.published), call.about);
                oracle::ready(&after, about, *server, &mut self.own(*server)?.pool)?;
            }
            Output::PoolClear { server, clear } => {
                let after = std::sync::Arc::clone(&self.published);
                oracle::clear(&after, *server, clear, &mut self.own(*server)?.pool)?;
            }
            Output::Emit(event) => self.note(call, known, before, event)?,
            Output::Publish(_) | Output::LookUp { .. } => {}
        }
        Ok(())
    }

    fn note(
        &mut self,
        call: Call,
        known: bool,
        before: &TopologyDescription,
        event: &EventKind,
    ) -> Result<(), String> {
        let now = self.now;
        match event {
            EventKind::ServerHeartbeatStarted(heartbeat) => {
                let own = self.own(heartbeat.server)?;
                own.begins(call, now, heartbeat.awaited)
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => {
                let own = self.own(heartbeat.server)?;
                own.streamed &= call.streams;
                own.ends(now, call.streams)
            }
            EventKind::ServerHeartbeatFailed {
                heartbeat, failure, ..
            } => {
                let lost = matches!(failure.kind, ErrorKind::Network | ErrorKind::Timeout);
                let own = self.own(heartbeat.server)?;
                own.streamed &= failure.kind != ErrorKind::Internal;
                own.ends(now, lost && known)
            }
            event => {
                // The last events of a server come before it is closed.
                let server = event.address().and_then(|address| before.server(address));
                let own = server.filter(|server| self.published.server_by_id(server.id).is_some());
                own.map_or(Ok(()), |server| self.own(server.id).map(drop))
            }
        }
    }

    /// Returns the server, for which there are no outputs before it is opened or after it is closed.
    fn own(&mut self, server: ServerId) -> Result<&mut Watch, String> {
        let own = self.watches.iter_mut().find(|own| own.id == server);
        own.ok_or_else(|| format!("there is an output for server {server}, which is not open"))
    }
}
