//! The checks of one server, as a part of a deployment: the idle wait, the running check and the
//! open connection.

use alloc::{boxed::Box, sync::Arc};
use core::{mem, time::Duration};

use super::{MonitorConfig, Negotiation, Pace, Trip};
use crate::{
    address::ServerAddress,
    deployment::{ConnId, Outputs, Role},
    error::{Error, ErrorKind, SYSTEM_OVERLOADED_ERROR, Stage},
    event::{ConnectionId, EventKind, Heartbeat},
    hello::Hello,
    ids::{ServerId, TopologyVersion},
    time::Instant,
};

/// The check loop of a server: polling, streaming, retries, cancellation and heartbeat events.
///
/// There is at most one outstanding request, and answers on other connections are ignored. A method
/// that ends a check returns the outcome, unless the outcome is withheld. The argument `known` of
/// the methods is true if the server's type is known at the time of the call, regardless of the
/// source.
///
/// A check that has to follow at once (after a streamed reply, or as a retry after a network error)
/// is due at once, but does not begin in the call that ends the previous check, so that the effects
/// of the outcome come first.
///
/// Cancellation closes the connection even if it is still being opened or is idle, because the
/// fault that broke the pool's connections has most likely broken this one, too. If the server is
/// still known, because a reply was faster than the cancellation, the next check begins as soon as
/// `minHeartbeatFrequencyMS` allows.
///
/// A deadline that is noticed more than a heartbeat late means that the host was suspended, not
/// that the server is silent. The check then continues, once, for another second or for the connect
/// timeout if that is shorter, before it fails. A reply that was accepted only because of this
/// extension, or because it was read before the expired deadline was noticed, is too old to serve
/// as a sample of the round-trip time. If a sample is needed, the check sends another request on
/// the same connection before it ends.
///
/// The rate of streamed replies is limited, although no real server pushes them without a pause.
/// After a few dozen replies that follow each other without a pause, the connection is closed, and
/// the next check begins on a new one after `minHeartbeatFrequencyMS`. This bounds the work per
/// server and the age of its description.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(super) config: Arc<MonitorConfig>,
    pub(super) server: ServerId,
    pub(crate) address: ServerAddress,
    pub(super) state: CheckState,
    /// The open connection, which is kept between checks.
    pub(super) connection: Option<Connection>,
    /// The number of connections requested so far.
    pub(super) connections: u64,
    /// True if the last failed check was not reported, so that a second failure must be reported.
    pub(super) withheld: bool,
    /// True if the checks use awaitable hellos, so that round trips have to be measured on another
    /// connection.
    pub(crate) streaming: bool,
    /// The limit on checks that follow each other without a pause, across all connections.
    pub(super) pace: Pace,
}

/// The reply to a check, or its error.
pub(crate) type CheckOutcome = Result<Box<Hello>, Error>;

impl Check {
    /// Creates the check loop of `server` at `address`. The first check is due at once.
    pub(crate) fn new(
        config: Arc<MonitorConfig>,
        server: ServerId,
        address: ServerAddress,
    ) -> Self {
        Self {
            config,
            server,
            address,
            state: CheckState::Idle(Idle::first(Instant::EPOCH)),
            connection: None,
            connections: 0,
            withheld: false,
            streaming: false,
            pace: Pace::default(),
        }
    }

    /// Postpones the first check until the given time, unless a check is requested earlier.
    pub(crate) fn postpone(&mut self, until: Instant) {
        if let CheckState::Idle(Idle { is_first: true, .. }) = self.state {
            self.state = CheckState::Idle(Idle::first(until));
        }
    }

    /// Returns whether the next check begins after the normal wait.
    pub(crate) fn pauses(&self) -> bool {
        matches!(self.state, CheckState::Idle(idle) if idle == self.config.pause(idle.ended))
    }

    /// Delays the next check, unless a check is requested.
    pub(crate) fn delay(&mut self, delay: Duration) {
        if let CheckState::Idle(idle) = &mut self.state {
            idle.until = idle.until + delay;
        }
    }

    /// Returns the most recently requested connection.
    pub(crate) fn conn(&self) -> ConnId {
        ConnId { server: self.server, role: Role::Check, number: self.connections }
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, CheckState::Running(_))
    }

    /// Returns the kind of answer outstanding on `conn`.
    pub(crate) fn awaits(&self, conn: ConnId) -> Option<Waiting> {
        match &self.state {
            CheckState::Running(check) if conn == self.conn() => Some(check.waiting),
            _ => None,
        }
    }

    /// Handles a failure of the [awaited](Self::awaits) connection at `at`: it could not be opened,
    /// or broke.
    pub(crate) fn failed(
        &mut self,
        now: Instant,
        known: bool,
        at: Instant,
        error: Error,
        out: &mut Outputs,
    ) -> Option<CheckOutcome> {
        let check = self.take_running()?;
        let took = Trip::new(check.since, at, now).duration();
        self.fail(now, known, check, took, error, out)
    }

    /// Begins a check that is due, or ends one whose deadline has passed.
    pub(crate) fn due(
        &mut self,
        now: Instant,
        known: bool,
        out: &mut Outputs,
    ) -> Option<CheckOutcome> {
        if self.is_running() {
            return self.expire(now, known, out);
        }
        self.proceed(now, out);
        None
    }

    /// Begins a check that is due.
    pub(crate) fn proceed(&mut self, now: Instant, out: &mut Outputs) {
        if let CheckState::Idle(idle) = self.state
            && idle.is_due(now)
        {
            self.begin(now, out);
        }
    }

    /// Brings the next check forward. While a check is running, the request is ignored and not
    /// remembered (Server Monitoring: "Requesting an immediate check").
    pub(crate) fn request(&mut self, now: Instant) {
        if let CheckState::Idle(idle) = self.state {
            self.state = CheckState::Idle(self.config.hastened(idle, now));
        }
    }

    /// Ends the running check without an outcome, because the caller has left it unattended for so
    /// long that the outcome would be meaningless. Another check may begin at once.
    pub(crate) fn abandon(&mut self, now: Instant, out: &mut Outputs) {
        if let Some(check) = self.take_running() {
            self.disconnect(out);
            out.emit(check.cancelled(now, "the check was abandoned by its caller"));
            self.state = CheckState::Idle(Idle::at_once(now));
        }
    }

    /// Forgets the connection, which was closed between two checks by an operation that shares it.
    /// This says nothing about the server.
    pub(crate) fn connection_lost(&mut self) {
        if let CheckState::Idle(_) = self.state {
            self.connection = None;
        }
    }

    /// Marks the connection as authenticated by an operation that shares it. It then survives an
    /// overloaded server's refusal to answer a check (SDAM: "SystemOverloadedError").
    pub(crate) fn authenticated(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.authenticated = true;
        }
    }

    /// Ends all checks. `reason` becomes the error of a running check.
    pub(crate) fn stop(&mut self, now: Instant, reason: &str, out: &mut Outputs) {
        self.streaming = false;
        match mem::replace(&mut self.state, CheckState::Done) {
            CheckState::Running(check) => {
                self.disconnect(out);
                out.emit(check.cancelled(now, reason));
            }
            CheckState::Idle(_) if self.connection.is_some() => self.disconnect(out),
            CheckState::Idle(_) | CheckState::Done => {}
        }
    }

    /// Returns the time at which [`due`](Self::due) has something to do, or `None` if there is no
    /// such time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            CheckState::Idle(idle) => Some(idle.until),
            CheckState::Running(check) => check.deadline,
            CheckState::Done => None,
        }
    }

    /// Returns the time from which the outstanding answer counts as late: the time of the request,
    /// or a heartbeat later if the server waits for a change. `None` if no answer is outstanding.
    pub(crate) fn expected(&self) -> Option<Instant> {
        let CheckState::Running(check) = &self.state else {
            return None;
        };
        let awaited = check.heartbeat.awaited.then_some(self.config.heartbeat_frequency);
        Some(check.since + awaited.unwrap_or_default())
    }

    /// Returns the earliest time at which a requested check may begin; `None` if no request would
    /// bring the next check forward.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        match &self.state {
            CheckState::Idle(idle) => {
                let earliest = self.config.earliest(*idle);
                (earliest < idle.until).then_some(earliest)
            }
            CheckState::Running(_) | CheckState::Done => None,
        }
    }

    /// Takes the running check, if there is one. The caller sets the next state.
    pub(super) fn take_running(&mut self) -> Option<Running> {
        match mem::replace(&mut self.state, CheckState::Done) {
            CheckState::Running(check) => Some(check),
            state => {
                self.state = state;
                None
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum CheckState {
    Idle(Idle),
    Running(Running),
    Done,
}

/// The idle wait between two checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Idle {
    /// The time at which the last check ended.
    pub(super) ended: Instant,
    /// The time at which the next check begins.
    pub(super) until: Instant,
    /// True if there has been no check yet.
    pub(super) is_first: bool,
}

impl Idle {
    /// Returns a wait that precedes the first check and ends at `until`.
    pub(super) fn first(until: Instant) -> Self {
        Self { ended: Instant::EPOCH, until, is_first: true }
    }

    /// Returns an empty wait after a check that ended at `now`.
    pub(super) fn at_once(now: Instant) -> Self {
        Self { ended: now, until: now, is_first: false }
    }

    /// Returns whether there is no wait at all.
    pub(super) fn is_at_once(&self) -> bool {
        self.until == self.ended
    }

    /// Returns whether the next check may begin.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.until <= now
    }
}

/// A running check. The start event of its heartbeat has been emitted, so an end event must follow.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) heartbeat: Heartbeat,
    /// The outstanding request.
    pub(super) waiting: Waiting,
    /// The time of the request.
    pub(super) since: Instant,
    /// The time at which the request fails; `None` for no limit.
    pub(super) deadline: Option<Instant>,
    /// True if the deadline was extended because the host was suspended.
    pub(super) extended: bool,
    /// True if a second request was sent because the first reply was late.
    pub(super) repeated: bool,
}

/// The answer that a check waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Waiting {
    Connection,
    Reply,
}

impl Running {
    /// Creates a check that waits from `now` on, for at most `limit`.
    pub(super) fn new(
        heartbeat: Heartbeat,
        waiting: Waiting,
        now: Instant,
        limit: Option<Duration>,
    ) -> Self {
        Self {
            heartbeat,
            waiting,
            since: now,
            deadline: limit.map(|limit| now + limit),
            extended: false,
            repeated: false,
        }
    }

    /// Returns whether a late reply was accepted only because the host was suspended or stalled, so
    /// that a second request is needed to measure the round trip. Returns false for the reply to
    /// that second request.
    pub(super) fn has_to_be_repeated(&self, trip: Trip) -> bool {
        let late = self.extended || trip.is_late(self.deadline);
        late && !self.heartbeat.awaited && !self.repeated
    }

    /// Returns the event that ends the heartbeat with `error`.
    pub(super) fn failed(self, duration: Duration, error: Error) -> EventKind {
        EventKind::ServerHeartbeatFailed { heartbeat: self.heartbeat, duration, failure: error }
    }

    /// Returns the event that ends the heartbeat as cancelled, without an outcome.
    pub(super) fn cancelled(self, now: Instant, reason: &str) -> EventKind {
        let stage = match self.waiting {
            Waiting::Connection => Stage::Connect,
            Waiting::Reply => Stage::Hello,
        };
        let error = Error::new(ErrorKind::Cancelled, stage, reason);
        let duration = now.since(self.since);
        self.failed(duration, error)
    }
}

/// An open connection and the state negotiated on it.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) negotiation: Negotiation,
    /// The topology version in the last reply, if streaming is enabled and the server supports it.
    ///
    /// It is specific to this connection; the topology may know a newer version.
    pub(super) topology_version: Option<TopologyVersion>,
    /// True if the server will send another reply without a request.
    pub(super) more_to_come: bool,
    /// True if operations share the connection and have authenticated on it.
    pub(super) authenticated: bool,
}

/// The kind of the next check.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// Open a connection first.
    Connect,
    /// Send a hello that is answered at once.
    Poll(Negotiation),
    /// Send an awaitable hello with this topology version.
    Await(Negotiation, TopologyVersion),
    /// Read the next streamed reply.
    Read,
}

impl Connection {
    /// Creates the state of a new connection, on which nothing has been sent.
    pub(super) fn new(id: ConnectionId) -> Self {
        Self {
            id,
            negotiation: Negotiation::Handshake,
            topology_version: None,
            more_to_come: false,
            authenticated: false,
        }
    }

    /// Returns whether the connection is kept after a check on it has failed with `error`.
    pub(super) fn outlives(&self, error: &Error) -> bool {
        self.authenticated
            && error.kind() == ErrorKind::Command
            && error.has_label(SYSTEM_OVERLOADED_ERROR)
    }

    /// Updates the negotiation and the streaming state from a reply.
    pub(super) fn learn(&mut self, hello: &Hello, more_to_come: bool, config: &MonitorConfig) {
        self.id.server = self.id.server.or(hello.connection_id);
        self.negotiation = Negotiation::after(hello, config);
        self.topology_version = hello.topology_version.filter(|_| config.streaming);
        self.more_to_come = more_to_come;
    }

    /// Returns the kind of the next check on this connection.
    pub(super) fn next(&self) -> Next {
        match self.topology_version {
            _ if self.more_to_come => Next::Read,
            Some(version) => Next::Await(self.negotiation, version),
            None => Next::Poll(self.negotiation),
        }
    }
}

/// Writes keys that identify the states of a server's checks, for state-space searches.
#[cfg(feature = "model")]
mod key {
    use core::hash::{Hash, Hasher};

    use super::{Check, CheckState, Idle, Running};
    use crate::time::Instant;

    impl Check {
        /// Writes all state that determines the behavior of the checks from `now` on.
        pub(crate) fn write_key(&self, now: Instant, hasher: &mut impl Hasher) {
            match &self.state {
                CheckState::Idle(idle) => {
                    1_u8.hash(hasher);
                    self.write_idle(now, idle, hasher);
                }
                CheckState::Running(check) => {
                    2_u8.hash(hasher);
                    self.write_running(now, check, hasher);
                }
                CheckState::Done => 3_u8.hash(hasher),
            }
            let connection = self.connection.as_ref();
            connection
                .map(|own| {
                    (own.negotiation, own.topology_version, own.more_to_come, own.authenticated)
                })
                .hash(hasher);
            let exhausted = !{ self.pace }.admits(now);
            (self.withheld, self.streaming, exhausted).hash(hasher);
        }

        fn write_idle(&self, now: Instant, idle: &Idle, hasher: &mut impl Hasher) {
            idle.until.since(now).hash(hasher);
            self.config.earliest(*idle).since(now).hash(hasher);
            // If the next check is due at once, a cancellation begins a wait, whose length is
            // counted from the end of the previous check.
            let ended =
                (idle.is_at_once() && self.connection.is_some()).then(|| now.since(idle.ended));
            ended.hash(hasher);
        }

        fn write_running(&self, now: Instant, check: &Running, hasher: &mut impl Hasher) {
            let wait = self.config.heartbeat_frequency;
            let late = |deadline: Instant| {
                // A deadline that was missed by more than a heartbeat is extended.
                let late = now.since(deadline).min(2 * wait);
                (deadline.since(now), late)
            };
            check.waiting.hash(hasher);
            check.deadline.map(late).hash(hasher);
            (check.heartbeat.awaited, check.extended, check.repeated).hash(hasher);
        }
    }
}
