//! The transitions of a server's checks: how they begin, continue and end.

use alloc::{boxed::Box, format};
use core::{mem, time::Duration};

use crate::{
    deployment::{Output, Outputs},
    error::{Error, ErrorKind, Stage},
    event::{ConnectionId, EventKind, Heartbeat},
    hello::HelloReply,
    time::Instant,
};

use super::{
    Negotiation, Trip,
    check::{Check, CheckOutcome, CheckState, Connection, Idle, Next, Running, Waiting},
};

impl Check {
    /// Begins a check on the open connection, or on a new one.
    pub(super) fn begin(&mut self, now: Instant, out: &mut Outputs) {
        let (id, next, waiting) = if let Some(connection) = &self.connection {
            (connection.id, connection.next(), Waiting::Reply)
        } else {
            self.connections = self.connections.saturating_add(1);
            let id = ConnectionId { driver: self.connections, server: None };
            (id, Next::Connect, Waiting::Connection)
        };
        self.streaming |= matches!(next, Next::Await { .. });
        let awaited = matches!(next, Next::Await { .. } | Next::Read);
        let heartbeat = Heartbeat::new(self.server, self.address.clone(), id, awaited);
        // Published before the socket exists (SDAM Monitoring: "ServerHeartbeatStartedEvent").
        out.emit(EventKind::ServerHeartbeatStarted(heartbeat.clone()));
        let check = Running::new(heartbeat, waiting, now, self.config.limit(awaited));
        let (conn, deadline) = (self.conn(), check.deadline);
        out.push(match next {
            Next::Connect => Output::Connect { conn, deadline },
            Next::Poll(negotiation) => {
                Output::Send { conn, request: negotiation.request(&self.config).into(), deadline }
            }
            Next::Await(negotiation, version) => Output::Send {
                conn,
                request: negotiation.awaitable_request(&self.config, version).into(),
                deadline,
            },
            Next::Read => Output::Read { conn, deadline },
        });
        self.state = CheckState::Running(check);
    }

    /// Handles the opening of the [awaited](Self::awaits) connection: sends the first hello, whose
    /// reply is the outcome of the check.
    pub(crate) fn connected(&mut self, now: Instant, out: &mut Outputs) {
        if let Some(Running { heartbeat, .. }) = self.take_running() {
            let connection = Connection::new(heartbeat.connection);
            let negotiation = connection.negotiation;
            self.connection = Some(connection);
            self.send(now, heartbeat, negotiation, false, out);
        }
    }

    /// Handles the [awaited](Self::awaits) reply: ends the check, or sends another request if the
    /// reply was late.
    pub(crate) fn reply(
        &mut self,
        now: Instant,
        known: bool,
        trip: Trip,
        reply: HelloReply,
        more_to_come: bool,
        out: &mut Outputs,
    ) -> Option<CheckOutcome> {
        let mut check = self.take_running()?;
        let hello = match reply.hello {
            Ok(hello) => hello,
            Err(error) => return self.fail(now, known, check, trip.duration(), error, out),
        };
        // Server Monitoring: "after processing an ok:1 response, the client MUST NOT sleep".
        let mut idle = self.config.pause(now);
        let mut overrun = false;
        if let Some(connection) = &mut self.connection {
            connection.learn(&hello, more_to_come, &self.config);
            check.heartbeat.connection = connection.id;
            if check.has_to_be_repeated(trip) && !more_to_come {
                // The reply is too late to measure the round trip or to describe the server's
                // current state.
                let negotiation = connection.negotiation;
                self.send(now, check.heartbeat, negotiation, true, out);
                return None;
            }
            if matches!(connection.next(), Next::Await { .. } | Next::Read) {
                overrun = !self.pace.admits(now);
                idle = if overrun { self.config.soon(now) } else { Idle::at_once(now) };
            } else {
                // From now on each check measures the round trip.
                self.streaming = false;
            }
        }
        out.emit(EventKind::ServerHeartbeatSucceeded {
            heartbeat: check.heartbeat,
            duration: trip.duration(),
            reply: reply.document,
        });
        self.withheld = false;
        if overrun {
            // Replies queued in the socket are old; a new connection yields the current state.
            self.disconnect(out);
        }
        self.state = CheckState::Idle(idle);
        Some(Ok(hello))
    }

    /// Returns the round-trip time that a successful reply to the running check measures, if any.
    pub(crate) fn sample(&self, trip: Trip) -> Option<Duration> {
        match &self.state {
            // The sample is capped at the limit, because any excess was caused by this host.
            CheckState::Running(check) if !check.heartbeat.awaited => {
                Some(trip.within(check.deadline))
            }
            _ => None,
        }
    }

    /// Sends a hello that the server answers at once, as the next step of the check. `repeated` is
    /// true if the reply to an earlier hello was late.
    fn send(
        &mut self,
        now: Instant,
        heartbeat: Heartbeat,
        negotiation: Negotiation,
        repeated: bool,
        out: &mut Outputs,
    ) {
        let request = Box::new(negotiation.request(&self.config));
        let limit = self.config.limit(false);
        let check = Running { repeated, ..Running::new(heartbeat, Waiting::Reply, now, limit) };
        out.push(Output::Send { conn: self.conn(), request, deadline: check.deadline });
        self.state = CheckState::Running(check);
    }

    /// Ends the check with an error (Server Monitoring: "Network or command error during server
    /// check").
    ///
    /// A check is retried at once, within the limit of [`Pace`](super::Pace), only if the server is
    /// known and its connection broke or fell silent. A check that got a malformed reply is not
    /// retried at once, because a retry would most likely fail in the same way, and the attempts
    /// would follow each other without a pause.
    ///
    /// After a panic of the transport, checks start over after `minHeartbeatFrequencyMS`.
    pub(super) fn fail(
        &mut self,
        now: Instant,
        known: bool,
        check: Running,
        took: Duration,
        error: Error,
        out: &mut Outputs,
    ) -> Option<CheckOutcome> {
        let lost = matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout);
        let panicked = error.kind() == ErrorKind::Internal;
        self.streaming &= !panicked;
        let is_retry = mem::take(&mut self.withheld);
        let retry = lost && known && !is_retry;
        self.withheld = retry && self.config.retry_before_unknown;
        let kept = |connection: &Connection| connection.outlives(&error);
        if !self.connection.as_ref().is_some_and(kept) {
            self.disconnect(out);
        }
        out.emit(check.failed(took, error.clone()));
        self.state = CheckState::Idle(match retry {
            false if panicked => self.config.soon(now),
            false => self.config.pause(now),
            true if self.pace.admits(now) => Idle::at_once(now),
            true => self.config.soon(now),
        });
        (!self.withheld).then_some(Err(error))
    }

    /// Ends the check with a timeout, unless the host seems to have been suspended.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        known: bool,
        out: &mut Outputs,
    ) -> Option<CheckOutcome> {
        let CheckState::Running(check) = &mut self.state else {
            return None;
        };
        let deadline = check.deadline.filter(|deadline| *deadline <= now)?;
        if !check.extended && now.since(deadline) > self.config.heartbeat_frequency {
            check.extended = true;
            check.deadline = Some(now + self.config.grace());
            return None;
        }
        let check = self.take_running()?;
        // The message contains the configured limit rather than the elapsed time, so that repeated
        // failures do not change the description.
        let limit = self.config.limit(check.heartbeat.awaited).unwrap_or_default();
        let (stage, message) = match check.waiting {
            Waiting::Connection => (Stage::Connect, format!("no connection within {limit:?}")),
            Waiting::Reply => (Stage::Hello, format!("no reply within {limit:?}")),
        };
        let error = Error::new(ErrorKind::Timeout, stage, message);
        let took = now.since(check.since);
        self.fail(now, known, check, took, error, out)
    }

    /// Ends the running check with `error`, because a [`Detector`](crate::options::Detector) has
    /// found the server silent, and closes the connection. The next check may begin at once.
    pub(crate) fn give_up(&mut self, now: Instant, error: Error, out: &mut Outputs) {
        let state = mem::replace(&mut self.state, CheckState::Idle(Idle::at_once(now)));
        if let CheckState::Running(check) = state {
            let took = now.since(check.since);
            out.emit(check.failed(took, error));
        }
        self.disconnect(out);
        self.withheld = false;
    }

    /// Cancels the running check and closes the connection, because operations found the server's
    /// other connections broken (Server Monitoring: "hello or legacy hello Cancellation").
    ///
    /// Between checks, only the connection is closed, because it is probably broken, too. Even if
    /// the connection still works, an awaitable hello on it would leave the server Unknown until a
    /// change occurs or a heartbeat has passed.
    pub(crate) fn cancel(&mut self, now: Instant, known: bool, out: &mut Outputs) {
        let idle = match mem::replace(&mut self.state, CheckState::Done) {
            CheckState::Running(check) => {
                self.disconnect(out);
                out.emit(check.cancelled(now, "an operation met a network error"));
                self.config.pause(now)
            }
            CheckState::Idle(idle) if self.connection.is_some() => {
                self.disconnect(out);
                if idle.is_at_once() { self.config.pause(idle.ended) } else { idle }
            }
            state => return self.state = state,
        };
        // If the server is still known, because of a reply that arrived after the clear, it must
        // not go unchecked for a whole heartbeat.
        self.state = CheckState::Idle(if known { self.config.hastened(idle, now) } else { idle });
    }

    pub(super) fn disconnect(&mut self, out: &mut Outputs) {
        self.connection = None;
        out.push(Output::Disconnect { conn: self.conn() });
    }
}
