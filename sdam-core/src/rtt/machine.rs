//! The task that measures round-trip times while a monitor streams (Server Monitoring: "Measuring
//! RTT").

#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use core::time::Duration;

use smallvec::SmallVec;

use crate::{
    hello::{Hello, HelloRequest},
    monitor::{MonitorConfig, Negotiation},
    time::Instant,
};

/// What the machine is told.
#[derive(Clone, Copy, Debug)]
pub enum RttInput<'a> {
    /// The connection that was asked for is open.
    Connected,
    /// A reply has arrived.
    Reply {
        /// The reply, a BSON document.
        bytes: &'a [u8],
    },
    /// The connection could not be opened, or broke; nobody wants to know why.
    Failed,
    /// The instant of [`RttMachine::deadline`] has come.
    DeadlineReached,
    /// The server has left the topology.
    Stop,
}

/// What the machine wants.
#[derive(Clone, Debug, PartialEq)]
pub enum RttEffect {
    /// Open a connection; answer with `Connected` or `Failed`.
    Connect {
        /// When the attempt fails; also [`RttMachine::deadline`].
        deadline: Option<Instant>,
    },
    /// Send the request and read one reply; answer with `Reply` or `Failed`.
    Send {
        /// What to send.
        request: HelloRequest,
        /// When the attempt fails; also [`RttMachine::deadline`].
        deadline: Option<Instant>,
    },
    /// Give up whatever is under way and close the connection, if there is one.
    Disconnect,
    /// Take this sample into the server's round-trip times.
    Sample(Duration),
    /// End.
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

/// Sends hello on a connection of its own, once per heartbeat, and measures how long the answer
/// takes.
///
/// It is silent: it has no events, reports no errors and never resets the round-trip times, because
/// its connection proves nothing that the monitor does not find out as well.
/// After an error it begins anew, a heartbeat later.
///
/// # Contract
///
/// That of [`MonitorMachine`](crate::monitor::MonitorMachine): effects are executed in order before
/// the next call, and a request is answered once unless `Disconnect` comes first.
#[derive(Debug)]
pub struct RttMachine {
    config: Arc<MonitorConfig>,
    state: State,
    /// What was negotiated on the open connection.
    connection: Option<Negotiation>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle {
        until: Instant,
    },
    Connecting {
        deadline: Option<Instant>,
    },
    Measuring {
        sent: Instant,
        deadline: Option<Instant>,
    },
    Done,
}

impl RttMachine {
    /// A machine about to measure for the first time.
    pub fn new(config: Arc<MonitorConfig>) -> Self {
        Self {
            config,
            state: State::Idle {
                until: Instant::EPOCH,
            },
            connection: None,
        }
    }

    /// The first effects.
    pub fn start(&mut self, now: Instant) -> RttEffects {
        self.handle(now, RttInput::DeadlineReached)
    }

    /// Takes in what happened at `now`.
    pub fn handle(&mut self, now: Instant, input: RttInput<'_>) -> RttEffects {
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
            (State::Measuring { sent, deadline }, RttInput::Reply { bytes }) => {
                // What comes after its time was delayed by this host, which slept or stalled.
                let late = deadline.is_some_and(|deadline| deadline < now);
                let sample = (!late).then(|| now.since(sent));
                self.answered(now, bytes, sample, &mut effects);
            }
            (State::Connecting { .. } | State::Measuring { .. }, RttInput::Failed) => {
                self.fail(now, &mut effects);
            }
            (
                State::Connecting { deadline } | State::Measuring { deadline, .. },
                RttInput::DeadlineReached,
            ) if deadline.is_some_and(|deadline| deadline <= now) => self.fail(now, &mut effects),
            _ => {}
        }
        effects
    }

    /// When to tell the machine that its deadline has come; `None` for never.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Idle { until } => Some(until),
            State::Connecting { deadline } | State::Measuring { deadline, .. } => deadline,
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
        self.state = State::Measuring {
            sent: now,
            deadline,
        };
        effects.push(RttEffect::Send {
            request: negotiation.request(&self.config),
            deadline,
        });
    }

    fn answered(
        &mut self,
        now: Instant,
        bytes: &[u8],
        sample: Option<Duration>,
        effects: &mut RttEffects,
    ) {
        // The reply matters for the negotiation alone.
        let (Ok(hello), Some(negotiation)) = (Hello::parse(bytes), &mut self.connection) else {
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
