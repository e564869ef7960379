//! The transitions of a monitor: how checks begin, continue and end.

use alloc::format;
use core::{mem, time::Duration};

use crate::{
    document::SharedDocument,
    error::{ErrorKind, ServerError, Stage},
    event::{ConnectionId, EventKind, Heartbeat},
    hello::{Hello, HelloRequest},
    time::Instant,
};

use super::{
    MonitorEffect, MonitorEffects, MonitorMachine, ServerStatus, Trip,
    check::{Check, Connection, Idle, Next, State, Waiting},
};

impl MonitorMachine {
    /// Begins a check on the open connection, or on a new one.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        status: ServerStatus,
        effects: &mut MonitorEffects,
    ) -> State {
        let (id, next, waiting) = if let Some(connection) = &self.connection {
            (connection.id, connection.next(), Waiting::Reply)
        } else {
            self.generation = status.generation;
            let id = self.next_connection_id();
            (id, Next::Connect, Waiting::Connection)
        };
        if matches!(next, Next::Await { .. }) && !self.rtt_started {
            self.rtt_started = true;
            effects.push(MonitorEffect::StartRtt);
        }
        let awaited = matches!(next, Next::Await { .. } | Next::Read);
        let heartbeat = Heartbeat::new(self.server, self.address.clone(), id, awaited);
        // Published before the socket exists (SDAM Monitoring: "ServerHeartbeatStartedEvent").
        effects.push(MonitorEffect::Emit(EventKind::ServerHeartbeatStarted(
            heartbeat.clone(),
        )));
        let check = Check::new(heartbeat, waiting, now, self.config.limit(awaited));
        let deadline = check.deadline;
        effects.push(match next {
            Next::Connect => MonitorEffect::Connect { deadline },
            Next::Poll(negotiation) => MonitorEffect::Send {
                request: negotiation.request(&self.config),
                deadline,
            },
            Next::Await(negotiation, version) => MonitorEffect::Send {
                request: negotiation.awaitable_request(&self.config, version),
                deadline,
            },
            Next::Read => MonitorEffect::ReadNext { deadline },
        });
        State::Checking(check)
    }

    /// Sends the first hello on the new connection; its reply is the outcome of the check.
    pub(super) fn greet(
        &mut self,
        now: Instant,
        check: Check,
        effects: &mut MonitorEffects,
    ) -> State {
        let connection = Connection::new(check.heartbeat.connection);
        let request = connection.negotiation.request(&self.config);
        self.connection = Some(connection);
        let limit = self.config.limit(false);
        let check = Check::new(check.heartbeat, Waiting::Reply, now, limit);
        effects.push(MonitorEffect::Send {
            request,
            deadline: check.deadline,
        });
        State::Checking(check)
    }

    /// Ends the check with the reply, its bytes, and whether more replies are to come.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        mut check: Check,
        trip: Trip,
        (hello, reply, more_to_come): (Hello, SharedDocument, bool),
        effects: &mut MonitorEffects,
    ) -> State {
        // Server Monitoring: "after processing an ok:1 response, the client MUST NOT sleep".
        let mut idle = self.config.pause(now);
        let mut overrun = false;
        if let Some(connection) = &mut self.connection {
            connection.learn(&hello, more_to_come, &self.config);
            check.heartbeat.connection = connection.id;
            if check.has_to_be_repeated(trip) && !more_to_come {
                let request = connection.negotiation.request(&self.config);
                return self.measure_again(now, check, request, effects);
            }
            if matches!(connection.next(), Next::Await { .. } | Next::Read) {
                overrun = !self.pace.admits(now);
                idle = if overrun {
                    self.config.soon(now)
                } else {
                    Idle::at_once(now)
                };
            } else if mem::take(&mut self.rtt_started) {
                // From now on each check measures the round trip.
                effects.push(MonitorEffect::StopRtt);
            }
        }
        if !check.heartbeat.awaited {
            // At most the limit: any excess was caused by the host.
            let sample = trip.within(check.deadline);
            effects.push(MonitorEffect::RttSample(sample));
        }
        effects.push(MonitorEffect::Emit(EventKind::ServerHeartbeatSucceeded {
            heartbeat: check.heartbeat,
            duration: trip.duration(),
            reply,
        }));
        self.withheld = false;
        effects.push(MonitorEffect::Report { outcome: Ok(hello) });
        if overrun {
            // Replies queued in the socket are old; a new connection yields the current state.
            self.disconnect(effects);
        }
        State::Idle(idle)
    }

    /// Sends a second request, because the reply came too late to measure the round trip or to
    /// describe the server's current state.
    fn measure_again(
        &self,
        now: Instant,
        check: Check,
        request: HelloRequest,
        effects: &mut MonitorEffects,
    ) -> State {
        let limit = self.config.limit(false);
        let mut check = Check::new(check.heartbeat, Waiting::Reply, now, limit);
        check.repeated = true;
        effects.push(MonitorEffect::Send {
            request,
            deadline: check.deadline,
        });
        State::Checking(check)
    }

    /// Ends the check with an error (Server Monitoring: "Network or command error during server
    /// check").
    ///
    /// Only a broken or silent connection is followed by an immediate retry, within the limit of
    /// [`Pace`](super::pace::Pace). Bytes that are no reply are not: they would most likely come
    /// again, without a pause between the attempts.
    pub(super) fn fail(
        &mut self,
        now: Instant,
        status: ServerStatus,
        check: Check,
        took: Duration,
        error: ServerError,
        effects: &mut MonitorEffects,
    ) -> State {
        let lost = matches!(error.kind, ErrorKind::Network | ErrorKind::Timeout);
        let is_retry = mem::take(&mut self.withheld);
        let retry = lost && status.known && !is_retry;
        self.withheld = retry && self.config.legacy_retry_before_unknown;
        let kept = |connection: &Connection| connection.outlives(&error);
        if !self.connection.as_ref().is_some_and(kept) {
            self.disconnect(effects);
        }
        if self.withheld {
            effects.push(check.failed(took, error));
        } else {
            effects.push(check.failed(took, error.clone()));
            effects.push(MonitorEffect::Report {
                outcome: Err(error),
            });
        }
        State::Idle(match retry {
            false => self.config.pause(now),
            true if self.pace.admits(now) => Idle::at_once(now),
            true => self.config.soon(now),
        })
    }

    /// Ends the check with a timeout, unless the host seems to have been suspended.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        status: ServerStatus,
        mut check: Check,
        effects: &mut MonitorEffects,
    ) -> State {
        let Some(deadline) = check.deadline.filter(|deadline| *deadline <= now) else {
            return State::Checking(check);
        };
        if !check.extended && now.since(deadline) > self.config.heartbeat_frequency {
            check.extended = true;
            check.deadline = Some(now + self.config.grace());
            return State::Checking(check);
        }
        // The text has the configured limit, not the elapsed time, so that repeated failures leave
        // the description equal.
        let limit = self
            .config
            .limit(check.heartbeat.awaited)
            .unwrap_or_default();
        let (stage, message) = match check.waiting {
            Waiting::Connection => (Stage::Connect, format!("no connection within {limit:?}")),
            Waiting::Reply => (Stage::Hello, format!("no reply within {limit:?}")),
        };
        let error = ServerError::new(ErrorKind::Timeout, stage, message);
        let took = now.since(check.since);
        self.fail(now, status, check, took, error, effects)
    }

    /// Cancels the running check and closes the connection, because operations found the server's
    /// other connections broken (Server Monitoring: "hello or legacy hello Cancellation").
    ///
    /// Between checks only the connection is closed. It is likely to be broken as well. Even if it
    /// is not, an awaitable hello on it would leave the server Unknown until a change or until a
    /// heartbeat has passed.
    pub(super) fn cancel(
        &mut self,
        now: Instant,
        status: ServerStatus,
        state: State,
        effects: &mut MonitorEffects,
    ) -> State {
        let idle = match state {
            State::Checking(check) => {
                self.disconnect(effects);
                effects.push(check.cancelled(now, "an operation met a network error"));
                self.config.pause(now)
            }
            State::Idle(idle) if self.connection.is_some() => {
                self.disconnect(effects);
                if idle.is_at_once() {
                    self.config.pause(idle.ended)
                } else {
                    idle
                }
            }
            state => return state,
        };
        // A reply that came after the clear must not be the latest for a whole heartbeat.
        State::Idle(if status.known {
            self.config.hastened(idle, now)
        } else {
            idle
        })
    }

    /// Ends the check without an outcome; the server's description stays valid.
    pub(super) fn abandon(
        &mut self,
        now: Instant,
        check: Check,
        effects: &mut MonitorEffects,
    ) -> State {
        self.disconnect(effects);
        effects.push(check.cancelled(now, "the check was abandoned by its caller"));
        State::Idle(Idle::at_once(now))
    }

    /// Ends the monitor.
    pub(super) fn stop(
        &mut self,
        now: Instant,
        state: State,
        effects: &mut MonitorEffects,
    ) -> State {
        if let State::Checking(check) = state {
            self.disconnect(effects);
            effects.push(check.cancelled(now, "the server has left the topology"));
        } else if self.connection.is_some() {
            self.disconnect(effects);
        }
        effects.push(MonitorEffect::Exit);
        State::Done
    }

    fn disconnect(&mut self, effects: &mut MonitorEffects) {
        self.connection = None;
        effects.push(MonitorEffect::Disconnect);
    }

    fn next_connection_id(&mut self) -> ConnectionId {
        self.connections = self.connections.saturating_add(1);
        ConnectionId {
            driver: self.connections,
            server: None,
        }
    }
}
