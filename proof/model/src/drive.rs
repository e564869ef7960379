//! Translates steps into inputs of the deployment, and checks that late inputs are ignored.

use std::time::Duration;

use sdam_core::{
    deployment::{ConnId, Input, Output, Role, Timer},
    error::{Error, ErrorKind, ErrorOutcome, Stage},
    ids::{Generation, ServerId},
    reply,
    report::ErrorReport,
    time::Instant,
};

use crate::{
    oracle::{self, ensure},
    start::{Call, Mode, Purpose, Start},
    step::{Failure, Kind, Link, MemberStep, OperationError, Reply, Step},
    watch::{Connection, Phase, Watch},
    world::World,
};

/// The minimum delay of a timer that counts as a stall of the host.
const STALL: Duration = Duration::from_millis(500);

/// The number of replies that a server sends without a pause: one more than the client reads
/// without a pause.
const BURST: usize = 51;

impl World {
    /// Returns whether the step is possible: its member exists, its connection is in the right
    /// phase, and no other timer is due earlier.
    pub fn can(&self, step: Step) -> bool {
        let Some(on) = step.on() else {
            return self.can_go_on(step);
        };
        let Some(watch) = self.watch(on) else {
            return false;
        };
        match step {
            Step::Connected(link) => connection(watch, link).phase == Phase::Connecting,
            Step::Answer { link, .. } => connection(watch, link).phase == Phase::Asked,
            Step::Break { link, .. } => connection(watch, link).is_asked(),
            Step::Member(_, own) => match own {
                MemberStep::Reply(_) | MemberStep::Failure(_) | MemberStep::Deserted => {
                    !watch.deserted
                }
                MemberStep::Handshake { late, .. } | MemberStep::Error { late, .. } => {
                    self.generation(watch.id, late).is_some()
                }
                MemberStep::Due { wanted } => self.first_due(watch.id, wanted).is_some(),
                MemberStep::Burst(_) => watch.check.phase == Phase::Asked && watch.check.awaited,
                MemberStep::Close => self.start.is_inline() && watch.check.phase == Phase::Open,
                MemberStep::CheckRequested | MemberStep::Late | MemberStep::Answered => true,
            },
            _ => false,
        }
    }

    /// Takes the step if it is possible. Returns whether it was possible.
    ///
    /// # Errors
    ///
    /// Returns the violated invariant.
    pub fn apply(&mut self, step: Step) -> Result<bool, String> {
        if !self.can(step) {
            return Ok(false);
        }
        let Some((on, server)) = step.on().and_then(|on| Some((on, self.watch(on)?.id))) else {
            return self.go_on(step).map(|()| true);
        };
        match step {
            Step::Connected(link) => self.connected(link)?,
            Step::Answer { link, reply, more } => self.answer(link, Ok(reply), more)?,
            Step::Break { link, failure } => self.broken(link, failure)?,
            Step::Member(_, own) => self.take_member_step(on, server, own)?,
            _ => {}
        }
        Ok(true)
    }

    fn take_member_step(
        &mut self,
        on: u8,
        server: ServerId,
        step: MemberStep,
    ) -> Result<(), String> {
        let other = Call { about: Some(server), ..Call::default() };
        match step {
            MemberStep::Reply(reply) => self.check(on, server, Ok(reply)),
            MemberStep::Failure(failure) => self.check(on, server, Err(failure)),
            MemberStep::Handshake { reply, late } => self.handshake(server, on, reply, late),
            MemberStep::Error { error, late } => self.error(server, on, error, late),
            MemberStep::Due { wanted } => self.due(server, wanted),
            MemberStep::Burst(reply) => self.burst(on, reply),
            MemberStep::CheckRequested => self.handle(other, Input::CheckRequested { server }),
            MemberStep::Deserted => {
                self.double(server, |watch| watch.deserted = true);
                self.handle(other, Input::Deserted { server })
            }
            MemberStep::Close => self.close_connection(server),
            MemberStep::Late => self.late(server),
            MemberStep::Answered => {
                self.hears(server);
                self.handle(other, Input::Answered { server })
            }
        }
    }

    /// Returns the time at which the server's timer is due, unless another timer is due earlier.
    fn first_due(&self, server: ServerId, wanted: bool) -> Option<Instant> {
        let own = self.deadline(server, wanted)?;
        let first = self.deployment.deadline(wanted)?.max(self.now);
        (own <= first).then(|| own.max(self.now))
    }

    /// Runs the server's next check to completion. The timers of other servers fire late or not at
    /// all, as in a busy program.
    fn check(
        &mut self,
        on: u8,
        server: ServerId,
        outcome: Result<Reply, Failure>,
    ) -> Result<(), String> {
        let link = Link { on, kind: Kind::Check };
        // A check takes up to three inputs: its timer, the connection, the reply. The fourth is for a
        // check that begins again.
        for _ in 0..4 {
            let Some(watch) = self.watch_of(server) else {
                break;
            };
            match watch.check.phase {
                Phase::Closed | Phase::Open => {
                    let Some(deadline) = self.deadline(server, true) else {
                        break;
                    };
                    self.now = self.now.max(deadline);
                    self.due(server, true)?;
                }
                Phase::Connecting => self.connected(link)?,
                Phase::Asked => {
                    match outcome {
                        Ok(reply) => self.answer(link, Ok(reply), false)?,
                        Err(failure) => self.broken(link, failure)?,
                    }
                    break;
                }
            }
        }
        self.now = self.now + Start::MINIMUM;
        Ok(())
    }

    fn due(&mut self, server: ServerId, wanted: bool) -> Result<(), String> {
        let deadline = self.deadline(server, wanted).unwrap_or(self.now);
        self.now = self.now.max(deadline);
        let due = self.deadline(server, false).filter(|due| *due > Instant::EPOCH);
        let late = due.map_or(Duration::ZERO, |due| self.now.since(due));
        self.was_late |= late > Duration::ZERO;
        if late >= STALL {
            self.stalled = Some(self.now);
        }
        self.extend(server);
        let timer = Timer::Server(server);
        let call = Call { due: Some(timer), wanted, ..self.own_call(server) };
        self.prepare_verdict(server);
        self.handle(call, Input::Due { timer, wanted })?;
        self.judge_verdict()
    }

    /// Extends the deadline of the server's check after the host was suspended, because a reply may
    /// have arrived in the meantime.
    pub(crate) fn extend(&mut self, server: ServerId) {
        let (now, heartbeat) = (self.now, self.start.heartbeat());
        self.double(server, |watch| {
            let missed = |deadline: &&mut Instant| now.since(**deadline) > heartbeat;
            if let Some(deadline) = watch.check.deadline.as_mut().filter(missed) {
                *deadline = now + Duration::from_secs(1);
            }
        });
    }

    fn connected(&mut self, link: Link) -> Result<(), String> {
        let Some(conn) = self.take(link) else {
            return Ok(());
        };
        let call = self.own_call(conn.id.server);
        self.handle(call, Input::Connected { conn: conn.id })
    }

    fn answer(
        &mut self,
        link: Link,
        outcome: Result<Reply, Error>,
        more: bool,
    ) -> Result<(), String> {
        let Some(conn) = self.take(link) else {
            return Ok(());
        };
        let continues =
            |reply: &Reply| more || self.start.mode == Mode::Streaming && reply.version > 0;
        let call = Call {
            streams: link.kind == Kind::Check && outcome.as_ref().is_ok_and(continues),
            ..self.own_call(conn.id.server)
        };
        self.hears(conn.id.server);
        if !conn.awaited {
            let trip = self.now.since(conn.since);
            self.double(conn.id.server, |own| own.slowest = own.slowest.max(trip));
        }
        let input = Input::Reply {
            conn: conn.id,
            sent: conn.since,
            at: self.now,
            reply: outcome.map(|reply| reply.hello(link.on)).into(),
            more_to_come: more,
        };
        self.handle(call, input)
    }

    fn broken(&mut self, link: Link, failure: Failure) -> Result<(), String> {
        let asked = self.watch(link.on).map(|watch| connection(watch, link));
        let is_asked = asked.is_some_and(|own| own.phase == Phase::Asked);
        let error = failure.error(link.on);
        if is_asked && error.kind() == ErrorKind::Command {
            return self.answer(link, Err(error), false);
        }
        let Some(conn) = self.take(link) else {
            return Ok(());
        };
        let input = Input::Failed { conn: conn.id, at: self.now, error };
        self.handle(self.own_call(conn.id.server), input)
    }

    fn burst(&mut self, on: u8, reply: Reply) -> Result<(), String> {
        let link = Link { on, kind: Kind::Check };
        for _ in 0..BURST {
            let asked = self.watch(on).map(|watch| watch.check.phase);
            if asked == Some(Phase::Asked) {
                self.answer(link, Ok(reply), true)?;
            }
        }
        Ok(())
    }

    /// Marks the request on this connection as answered, and returns the connection.
    fn take(&mut self, link: Link) -> Option<Connection> {
        let server = self.watch(link.on)?.id;
        self.double(server, |watch| {
            let own = watch.connection(link.kind.role());
            Connection { phase: std::mem::replace(&mut own.phase, Phase::Open), ..own.clone() }
        })
    }

    /// Applies `change` to the test double of the server.
    pub(crate) fn double<T>(
        &mut self,
        server: ServerId,
        change: impl FnOnce(&mut Watch) -> T,
    ) -> Option<T> {
        self.watches.iter_mut().find(|watch| watch.id == server).map(change)
    }

    /// Records that the server has just answered.
    fn hears(&mut self, server: ServerId) {
        let now = self.now;
        self.double(server, |watch| (watch.answered, watch.late) = (Some(now), None));
    }

    fn own_call(&self, server: ServerId) -> Call {
        Call {
            about: Some(server),
            purpose: if self.start.is_inline() { Purpose::Request } else { Purpose::Server },
            ..Call::default()
        }
    }

    /// Returns the current generation of the server's pool or, if `late`, the previous one. Returns
    /// `None` if there is no such generation.
    fn generation(&self, server: ServerId, late: bool) -> Option<Generation> {
        let current = self.watch_of(server)?.pool.generation.as_u64();
        let own = current.checked_sub(u64::from(late))?;
        Some(Generation::from_u64(own))
    }

    fn handshake(
        &mut self,
        server: ServerId,
        on: u8,
        reply: Reply,
        late: bool,
    ) -> Result<(), String> {
        let Some(generation) = self.generation(server, late) else {
            return Ok(());
        };
        let input = Input::Handshake { server, generation, reply: Ok(reply.hello(on)).into() };
        let timers = self.timers();
        self.hears(server);
        let outputs = self.deployment.handle(self.now, input);
        ensure(!late || outputs.iter().all(oracle::is_about_silence), || {
            format!("F-80: a handshake of an earlier generation has the outputs {outputs:?}")
        })?;
        let call = Call { about: Some(server), ..Call::default() };
        self.judge(call, &timers, &outputs)
    }

    fn error(
        &mut self,
        server: ServerId,
        on: u8,
        error: OperationError,
        late: bool,
    ) -> Result<(), String> {
        let Some(generation) = self.generation(server, late) else {
            return Ok(());
        };
        if error.reply(on).is_some() {
            self.hears(server);
        }
        let description = self.published.server_by_id(server);
        let max_wire_version = description.map_or(0, |server| server.wire_versions.max);
        let report = report(on, error, generation)?.with_max_wire_version(max_wire_version);
        let timers = self.timers();
        let (outcome, outputs) = self.deployment.handle_error(self.now, server, &report);
        let expected = match error {
            _ if late => Some(ErrorOutcome::Stale),
            // Behind a load balancer, an error without a service id has no effect.
            _ if self.start.balanced => Some(ErrorOutcome::Irrelevant),
            OperationError::Broken | OperationError::Untrusted | OperationError::Auth => {
                Some(ErrorOutcome::Cleared)
            }
            _ => None,
        };
        ensure(expected.is_none_or(|expected| outcome == expected), || {
            format!("{error:?}, late: {late}, resulted in {outcome:?}, expected {expected:?}")
        })?;
        let cleared = oracle::clears(&outputs, server);
        let silent = outputs.iter().all(oracle::is_about_silence);
        let call = Call { about: Some(server), ..Call::default() };
        self.judge(call, &timers, &outputs)?;
        let description = self.published.server_by_id(server);
        let unknown = description.is_some_and(|server| !server.server_type.is_available());
        let matches = match outcome {
            ErrorOutcome::Cleared => cleared && unknown,
            ErrorOutcome::MarkedUnknown => !cleared && unknown,
            _ => silent,
        };
        ensure(matches, || format!("the outputs do not match the outcome {outcome:?}"))?;
        let open = self
            .watch_of(server)
            .is_some_and(|watch| watch.checking || watch.check.phase != Phase::Closed);
        let cancels = expected == Some(ErrorOutcome::Cleared);
        ensure(!cancels || !open, || {
            format!("F-71: the check of server {server} outlives {error:?}")
        })?;
        let clear = |output: &Output| matches!(output, Output::PoolClear { .. });
        let close = |output: &Output| matches!(output, Output::Disconnect { conn } if conn.role == Role::Check);
        let (clear, close) = (outputs.iter().position(clear), outputs.iter().position(close));
        ensure(close.is_none() || clear < close, || {
            format!("F-72: the check of server {server} is cancelled before its pool is cleared")
        })
    }
}

/// Returns the report of an error that occurred in an operation on a connection of this generation.
pub(crate) fn report(
    on: u8,
    error: OperationError,
    generation: Generation,
) -> Result<ErrorReport, String> {
    let stage = error.stage();
    let reported = match (error.reply(on), error) {
        (Some(reply), _) => reply::error(&reply, stage).ok_or("the reply has no error")?,
        (None, OperationError::Auth) => Error::auth("authentication failed").at(stage),
        (None, OperationError::Timeout) => Error::timeout(stage, "timed out"),
        (None, OperationError::Untrusted) => Error::protocol(stage, "unknown issuer"),
        (None, _) => Error::network(stage, "broken"),
    };
    Ok(ErrorReport::new(generation, reported))
}

fn connection(watch: &Watch, link: Link) -> &Connection {
    match link.kind {
        Kind::Check => &watch.check,
        Kind::Ping => &watch.ping,
        Kind::Probe => &watch.probe,
    }
}

impl World {
    /// Checks that the deployment ignores unrequested answers, answers on closed connections, and
    /// inputs for removed servers.
    pub(crate) fn check_late_answers(&mut self, call: Call, gone: &[ConnId]) -> Result<(), String> {
        let unasked = call.about.and_then(|server| self.watch_of(server));
        let unasked = unasked.map(|watch| watch.connections().map(Connection::unasked));
        for (conn, answers) in unasked.into_iter().flatten() {
            self.check_ignored(conn, answers)?;
        }
        if gone.is_empty() {
            return Ok(());
        }
        let before = self.key();
        for &conn in gone {
            self.check_ignored(conn, [true; 3])?;
            if self.watch_of(conn.server).is_none() {
                self.check_gone(conn.server)?;
            }
        }
        ensure(self.key() == before, || {
            format!("answers on the closed connections {gone:?} have an effect")
        })
    }

    /// Checks that each kind of answer on a connection (connected, reply, error) is ignored.
    fn check_ignored(
        &mut self,
        conn: ConnId,
        [connected, reply, failed]: [bool; 3],
    ) -> Result<(), String> {
        let at = self.now;
        let error = || Error::new(ErrorKind::Network, Stage::Hello, "late");
        if connected {
            self.ignores(&Input::Connected { conn })?;
        }
        if reply {
            let (sent, reply, more_to_come) = (at, Err(error()).into(), true);
            self.ignores(&Input::Reply { conn, sent, at, reply, more_to_come })?;
        }
        if failed {
            self.ignores(&Input::Failed { conn, at, error: error() })?;
        }
        Ok(())
    }

    fn check_gone(&mut self, server: ServerId) -> Result<(), String> {
        self.check_unwatched(server)?;
        let error = ErrorReport::new(Generation::FIRST, Error::auth("late"));
        let (outcome, outputs) = self.deployment.handle_error(self.now, server, &error);
        ensure(outcome == ErrorOutcome::UnknownServer && outputs.is_empty(), || {
            format!("server {server} has left, and its error is {outcome:?}: {outputs:?}")
        })
    }

    /// Checks that inputs about checks are ignored for a server that is not monitored.
    pub(crate) fn check_unwatched(&mut self, server: ServerId) -> Result<(), String> {
        let timer = Timer::Server(server);
        self.ignores(&Input::Due { timer, wanted: true })?;
        self.ignores(&Input::CheckRequested { server })?;
        self.ignores(&Input::Deserted { server })
    }

    fn ignores(&mut self, input: &Input) -> Result<(), String> {
        let outputs = self.deployment.handle(self.now, input.clone());
        ensure(outputs.is_empty(), || format!("unrequested {input:?} has the outputs {outputs:?}"))
    }
}
