//! The measurements of one server by themselves, with inputs and effects for scripts.

use alloc::sync::Arc;
use core::time::Duration;

use smallvec::SmallVec;

use super::super::Ping;
use crate::{
    error::Error,
    hello::{Hello, HelloRequest},
    ids::ServerId,
    monitor::{MonitorConfig, Trip},
    output::{Output, Outputs},
    time::Instant,
};

/// An input of [`RttMachine::handle`].
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an input exists for the length of one call"
)]
pub(super) enum RttInput {
    /// The requested connection is open.
    Connected,
    /// A reply has arrived.
    Reply {
        /// The instant at which the request was written.
        sent: Instant,
        /// The instant at which the reply had arrived.
        at: Instant,
        /// The parsed reply, or what makes it an error.
        hello: Result<Hello, Error>,
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
pub(super) enum RttEffect {
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
pub(super) struct RttEffects(SmallVec<[RttEffect; 2]>);

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

/// The measurements of one server.
#[derive(Debug)]
pub(super) struct RttMachine {
    ping: Ping,
    is_stopped: bool,
}

impl RttMachine {
    /// Creates a machine that is about to measure for the first time.
    pub(super) fn new(config: Arc<MonitorConfig>) -> Self {
        // The id is not part of any effect.
        let mut ping = Ping::new(config, ServerId::from_u64(0), Duration::ZERO);
        ping.start();
        Self {
            ping,
            is_stopped: false,
        }
    }

    /// Returns the first effects.
    pub(super) fn start(&mut self, now: Instant) -> RttEffects {
        self.handle(now, RttInput::DeadlineReached)
    }

    /// Handles an input that occurred at `now`, and returns the effects.
    pub(super) fn handle(&mut self, now: Instant, input: RttInput) -> RttEffects {
        let mut effects = RttEffects::default();
        if self.is_stopped {
            return effects;
        }
        let mut out = Outputs::default();
        let conn = self.ping.conn();
        match input {
            RttInput::Connected => self.ping.connected(now, conn, &mut out),
            RttInput::Reply { sent, at, hello } => {
                let trip = Trip::new(sent, at, now);
                let hello = hello.as_ref().ok();
                let sample = self.ping.reply(now, conn, trip, hello, &mut out);
                effects.0.extend(sample.map(RttEffect::Sample));
            }
            RttInput::Failed => self.ping.failed(now, conn, &mut out),
            RttInput::DeadlineReached => self.ping.due(now, &mut out),
            RttInput::Stop => {
                self.is_stopped = true;
                // The driver closes its connection whether it is open or not.
                self.ping.stop(&mut out);
                effects.push(RttEffect::Disconnect);
                effects.push(RttEffect::Exit);
                return effects;
            }
        }
        for output in out {
            effects.0.extend(match output {
                Output::Connect { deadline, .. } => Some(RttEffect::Connect { deadline }),
                Output::Send {
                    request, deadline, ..
                } => Some(RttEffect::Send { request, deadline }),
                Output::Disconnect { .. } => Some(RttEffect::Disconnect),
                // Not of a measurement.
                _ => None,
            });
        }
        effects
    }

    /// Returns when to pass [`RttInput::DeadlineReached`]; `None` for never.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.ping.deadline()
    }
}
