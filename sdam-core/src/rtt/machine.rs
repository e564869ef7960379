//! The task that measures round-trip times while a monitor streams (Server Monitoring: "Measuring
//! RTT").

#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use core::time::Duration;

use smallvec::SmallVec;

use crate::{
    error::ServerError,
    hello::{Hello, HelloRequest},
    monitor::{MonitorConfig, Negotiation, Trip},
    time::Instant,
};

/// An input of [`RttMachine::handle`].
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an input exists for the length of one call"
)]
pub enum RttInput {
    /// The requested connection is open.
    Connected,
    /// A reply has arrived.
    Reply {
        /// The instant at which the request was written.
        sent: Instant,
        /// The instant at which the reply had arrived.
        at: Instant,
        /// The parsed reply, or what makes it an error.
        hello: Result<Hello, ServerError>,
    },
    /// The connection could not be opened, or broke. The error is not needed.
    Failed,
    /// The instant of [`RttMachine::deadline`] is reached.
    DeadlineReached,
    /// The server has left the topology.
    Stop,
}

/// An effect that the driver executes.
#[derive(Clone, Debug, PartialEq)]
pub enum RttEffect {
    /// Open a connection; answer with `Connected` or `Failed`.
    Connect {
        /// The deadline of the attempt; also [`RttMachine::deadline`].
        deadline: Option<Instant>,
    },
    /// Send the request and read one reply; answer with `Reply` or `Failed`.
    Send {
        /// The request to send.
        request: HelloRequest,
        /// The deadline of the attempt; also [`RttMachine::deadline`].
        deadline: Option<Instant>,
    },
    /// Cancel any operation in progress and close the connection, if there is one.
    Disconnect,
    /// Add this sample to the server's round-trip times.
    Sample(Duration),
    /// End the task.
    Exit,
}

/// Effects in the order in which they have to run.
#[derive(Debug, Default, PartialEq)]
#[must_use = "effects carry commands to the connection"]
pub struct RttEffects(SmallVec<[RttEffect; 2]>);

impl RttEffects {
    fn push(&mut self, effect: RttEffect) {
        self.0.push(effect);
    }
}

impl IntoIterator for RttEffects {
    type Item = RttEffect;
    type IntoIter = smallvec::IntoIter<[RttEffect; 2]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The round-trip time task of one server: sends hello on a dedicated connection, once per
/// heartbeat, and measures the time to the reply.
///
/// It emits no events, reports no errors and never resets the round-trip times, because the monitor
/// detects the same failures itself. After an error it opens a new connection, one heartbeat later.
///
/// # Contract
///
/// That of [`MonitorMachine`](crate::monitor::MonitorMachine): effects are executed in order before
/// the next call, and a request is answered once unless `Disconnect` comes first.
#[derive(Debug)]
pub struct RttMachine {
    config: Arc<MonitorConfig>,
    state: State,
    /// The negotiation on the open connection.
    connection: Option<Negotiation>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle { until: Instant },
    Connecting { deadline: Option<Instant> },
    Measuring { deadline: Option<Instant> },
    Done,
}

impl RttMachine {
    /// Creates a machine that is about to measure for the first time.
    pub fn new(config: Arc<MonitorConfig>) -> Self {
        Self {
            config,
            state: State::Idle {
                until: Instant::EPOCH,
            },
            connection: None,
        }
    }

    /// Returns the first effects.
    pub fn start(&mut self, now: Instant) -> RttEffects {
        self.handle(now, RttInput::DeadlineReached)
    }

    /// Handles an input that occurred at `now`, and returns the effects.
    pub fn handle(&mut self, now: Instant, input: RttInput) -> RttEffects {
        let mut effects = RttEffects::default();
        match (self.state, input) {
            (State::Done, _) => {}
            (_, RttInput::Stop) => {
                effects.push(RttEffect::Disconnect);
                effects.push(RttEffect::Exit);
                self.connection = None;
                self.state = State::Done;
            }
            (State::Idle { until }, RttInput::DeadlineReached) if until <= now => {
                self.begin(now, &mut effects);
            }
            (State::Connecting { .. }, RttInput::Connected) => {
                let negotiation = Negotiation::Handshake;
                self.connection = Some(negotiation);
                self.send(now, negotiation, &mut effects);
            }
            (State::Measuring { deadline }, RttInput::Reply { sent, at, hello }) => {
                let trip = Trip::new(sent, at, now);
                // A reply after the deadline was delayed by this host, which was suspended or
                // stalled.
                let sample = (!trip.is_late(deadline)).then(|| trip.duration());
                self.answered(now, hello, sample, &mut effects);
            }
            (State::Connecting { .. } | State::Measuring { .. }, RttInput::Failed) => {
                self.fail(now, &mut effects);
            }
            (
                State::Connecting { deadline } | State::Measuring { deadline },
                RttInput::DeadlineReached,
            ) if deadline.is_some_and(|deadline| deadline <= now) => self.fail(now, &mut effects),
            _ => {}
        }
        effects
    }

    /// Returns when to pass [`RttInput::DeadlineReached`]; `None` for never.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Idle { until } => Some(until),
            State::Connecting { deadline } | State::Measuring { deadline } => deadline,
            State::Done => None,
        }
    }

    fn begin(&mut self, now: Instant, effects: &mut RttEffects) {
        if let Some(negotiation) = self.connection {
            return self.send(now, negotiation, effects);
        }
        let deadline = self.deadline_from(now);
        self.state = State::Connecting { deadline };
        effects.push(RttEffect::Connect { deadline });
    }

    fn send(&mut self, now: Instant, negotiation: Negotiation, effects: &mut RttEffects) {
        let deadline = self.deadline_from(now);
        self.state = State::Measuring { deadline };
        effects.push(RttEffect::Send {
            request: negotiation.request(&self.config),
            deadline,
        });
    }

    fn answered(
        &mut self,
        now: Instant,
        hello: Result<Hello, ServerError>,
        sample: Option<Duration>,
        effects: &mut RttEffects,
    ) {
        // Only the negotiation uses the reply.
        let (Ok(hello), Some(negotiation)) = (hello, &mut self.connection) else {
            return self.fail(now, effects);
        };
        *negotiation = Negotiation::after(&hello, &self.config);
        if let Some(sample) = sample {
            effects.push(RttEffect::Sample(sample));
        }
        self.pause(now);
    }

    fn fail(&mut self, now: Instant, effects: &mut RttEffects) {
        self.connection = None;
        effects.push(RttEffect::Disconnect);
        self.pause(now);
    }

    fn pause(&mut self, now: Instant) {
        self.state = State::Idle {
            until: now + self.config.wait(),
        };
    }

    fn deadline_from(&self, now: Instant) -> Option<Instant> {
        self.config.limit(false).map(|limit| now + limit)
    }
}
