//! Measures a server's round-trip time, as one part of a deployment (Server Monitoring: "Measuring
//! RTT").

use alloc::sync::Arc;
use core::time::Duration;

use crate::{
    deployment::{ConnId, Output, Outputs, Role},
    hello::Hello,
    ids::ServerId,
    monitor::{MonitorConfig, Negotiation, Trip, Waiting},
    time::Instant,
};

/// Sends a hello on a dedicated connection once per heartbeat, from [`start`](Self::start) to
/// [`stop`](Self::stop), and measures the time to the reply.
///
/// It emits no events, reports no errors and never resets the round-trip times, because the checks
/// detect the same failures themselves. After an error it opens a new connection, one heartbeat
/// later.
///
/// A second instance serves as the [probe](Role::Probe) of a silent server: it has its own
/// connection, and stops after it has received an answer.
#[derive(Clone, Debug)]
pub(crate) struct Ping {
    config: Arc<MonitorConfig>,
    server: ServerId,
    role: Role,
    state: PingState,
    /// The negotiation on the open connection.
    connection: Option<Negotiation>,
    /// The number of connections requested so far.
    connections: u64,
    slack: Duration,
    /// True if the measurement in progress was [hastened](Self::hasten).
    hastened: bool,
}

#[derive(Clone, Copy, Debug)]
enum PingState {
    Stopped,
    Idle {
        /// The earliest time at which a measurement may begin during a call made for another
        /// purpose.
        from: Instant,
        /// The time at which the measurement is due.
        until: Instant,
    },
    /// An answer that was requested at `since` is outstanding.
    Asked {
        answer: Waiting,
        since: Instant,
    },
}

impl Ping {
    /// Creates the measurements of `server` without starting them. They are one heartbeat apart,
    /// plus or minus `slack`, so that most of them can begin when the server is handled for another
    /// reason.
    pub(crate) fn new(
        config: Arc<MonitorConfig>,
        (server, role): (ServerId, Role),
        slack: Duration,
    ) -> Self {
        let (state, connection) = (PingState::Stopped, None);
        Self { config, server, role, state, connection, connections: 0, slack, hastened: false }
    }

    /// Makes the first measurement due at `first`, unless the measurements have already started.
    pub(crate) fn start(&mut self, first: Instant) {
        if let PingState::Stopped = self.state {
            self.state = PingState::Idle { from: first, until: first };
        }
    }

    /// Returns the time from the start to the first measurement.
    pub(crate) fn delay(&self) -> Duration {
        self.config.ping_delay
    }

    /// Ends the measurement in progress and closes the connection. No other measurement begins
    /// until the next [`start`](Self::start).
    pub(crate) fn stop(&mut self, out: &mut Outputs) {
        if self.expected().is_some() || self.connection.is_some() {
            self.disconnect(out);
        }
        self.state = PingState::Stopped;
    }

    /// Returns the most recently requested connection.
    pub(crate) fn conn(&self) -> ConnId {
        ConnId { server: self.server, role: self.role, number: self.connections }
    }

    /// Returns the kind of answer that is outstanding on `conn`, if any.
    pub(crate) fn awaits(&self, conn: ConnId) -> Option<Waiting> {
        match self.state {
            PingState::Asked { answer, .. } if conn == self.conn() => Some(answer),
            _ => None,
        }
    }

    /// Begins a measurement if it is not too early for one. Called whenever the server is handled
    /// for another reason.
    pub(crate) fn proceed(&mut self, now: Instant, out: &mut Outputs) {
        if let PingState::Idle { from, .. } = self.state
            && from <= now
        {
            self.begin(now, out);
        }
    }

    /// Begins a measurement at once, if measurements have started and none is in progress. Returns
    /// whether one is in progress afterwards. The measurement yields no sample, because it is made
    /// when the server seems slow.
    pub(crate) fn hasten(&mut self, now: Instant, out: &mut Outputs) -> bool {
        match self.state {
            PingState::Stopped => false,
            PingState::Idle { .. } => {
                self.hastened = true;
                self.begin(now, out);
                true
            }
            PingState::Asked { .. } => true,
        }
    }

    /// Begins a measurement that is due, or ends one whose deadline has passed.
    pub(crate) fn due(&mut self, now: Instant, out: &mut Outputs) {
        match self.state {
            PingState::Idle { until, .. } if until <= now => self.begin(now, out),
            PingState::Asked { .. } if self.deadline().is_some_and(|own| own <= now) => {
                self.fail(now, out);
            }
            _ => {}
        }
    }

    /// Handles the opening of the [awaited](Self::awaits) connection.
    pub(crate) fn connected(&mut self, now: Instant, out: &mut Outputs) {
        let negotiation = Negotiation::Handshake;
        self.connection = Some(negotiation);
        self.send(now, negotiation, out);
    }

    /// Handles the [awaited](Self::awaits) reply and returns the round-trip time. `hello` is `None`
    /// if the reply is an error.
    pub(crate) fn reply(
        &mut self,
        now: Instant,
        trip: Trip,
        hello: Option<&Hello>,
        out: &mut Outputs,
    ) -> Option<Duration> {
        let PingState::Asked { answer: Waiting::Reply, since } = self.state else {
            return None;
        };
        // Only the negotiation uses the contents of the reply.
        let (Some(hello), Some(negotiation)) = (hello, &mut self.connection) else {
            self.fail(now, out);
            return None;
        };
        *negotiation = Negotiation::after(hello, &self.config);
        // A reply that arrives after the deadline was delayed by this host, which was suspended or
        // stalled.
        let counts = !self.hastened && !trip.is_late(self.limit(since));
        self.pause(now);
        counts.then(|| trip.duration())
    }

    /// Ends the measurement in progress, if there is one, and closes its connection.
    pub(crate) fn failed(&mut self, now: Instant, out: &mut Outputs) {
        if self.expected().is_some() {
            self.fail(now, out);
        }
    }

    /// Returns the time at which [`due`](Self::due) must be called, or `None` if there is no such
    /// time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.state {
            PingState::Stopped => None,
            PingState::Idle { until, .. } => Some(until),
            PingState::Asked { since, .. } => self.limit(since),
        }
    }

    /// Returns the time at which the outstanding answer was requested; `None` if no answer is
    /// outstanding.
    pub(crate) fn expected(&self) -> Option<Instant> {
        match self.state {
            PingState::Stopped | PingState::Idle { .. } => None,
            PingState::Asked { since, .. } => Some(since),
        }
    }

    fn begin(&mut self, now: Instant, out: &mut Outputs) {
        if let Some(negotiation) = self.connection {
            return self.send(now, negotiation, out);
        }
        self.connections = self.connections.saturating_add(1);
        self.state = PingState::Asked { answer: Waiting::Connection, since: now };
        out.push(Output::Connect { conn: self.conn(), deadline: self.limit(now) });
    }

    fn send(&mut self, now: Instant, negotiation: Negotiation, out: &mut Outputs) {
        self.state = PingState::Asked { answer: Waiting::Reply, since: now };
        out.push(Output::Send {
            conn: self.conn(),
            request: negotiation.request(&self.config).into(),
            deadline: self.limit(now),
        });
    }

    fn fail(&mut self, now: Instant, out: &mut Outputs) {
        self.disconnect(out);
        self.pause(now);
    }

    fn disconnect(&mut self, out: &mut Outputs) {
        self.connection = None;
        out.push(Output::Disconnect { conn: self.conn() });
    }

    fn pause(&mut self, now: Instant) {
        self.hastened = false;
        let next = now + self.config.wait();
        self.state = PingState::Idle { from: next - self.slack, until: next + self.slack };
    }

    /// Returns the time at which a request made at `since` fails, or `None` if there is no time
    /// limit.
    fn limit(&self, since: Instant) -> Option<Instant> {
        self.config.limit(false).map(|limit| since + limit)
    }
}

/// Computes keys that identify the state of a server's round-trip measurements, for state-space
/// searches.
#[cfg(feature = "model")]
mod key {
    use core::hash::{Hash, Hasher};

    use super::{Ping, PingState};
    use crate::time::Instant;

    impl Ping {
        /// Writes all state that determines the behavior of the measurements from `now` on.
        pub(crate) fn write_key(&self, now: Instant, hasher: &mut impl Hasher) {
            match self.state {
                PingState::Stopped => 1_u8.hash(hasher),
                PingState::Idle { from, until } => {
                    (2_u8, from.since(now), until.since(now)).hash(hasher);
                }
                PingState::Asked { answer, since } => {
                    (3_u8, answer, left(now, self.limit(since))).hash(hasher);
                }
            }
            self.connection.hash(hasher);
        }
    }

    /// Returns the time until the deadline, and whether the deadline has passed.
    fn left(now: Instant, deadline: Option<Instant>) -> Option<(core::time::Duration, bool)> {
        deadline.map(|deadline| (deadline.since(now), deadline < now))
    }
}
