//! The checks of one server by themselves, with inputs and effects for scripts.

use alloc::sync::Arc;
use core::time::Duration;

use smallvec::SmallVec;

use super::super::{Check, MonitorConfig, Reply, Report, Trip};
use crate::{
    address::ServerAddress,
    document::SharedDocument,
    error::Error,
    event::EventKind,
    hello::{Hello, HelloRequest},
    ids::{Generation, ServerId},
    output::{Output, Outputs},
    time::Instant,
};

/// The topology's state of a server at the time of a monitor's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerStatus {
    /// The generation of the server's pool.
    pub(super) generation: Generation,
    /// True if the server's type is known, from any source.
    pub(super) known: bool,
}

/// An input of [`MonitorMachine::handle`].
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an input exists for the length of one call"
)]
pub(super) enum MonitorInput {
    /// The requested connection is open.
    Connected,
    /// A reply has arrived.
    Reply {
        /// The instant at which the request was written, or reading began without one.
        sent: Instant,
        /// The instant at which the reply had arrived.
        at: Instant,
        /// The parsed reply, or what makes it an error.
        hello: Result<Hello, Error>,
        /// The reply, a BSON document.
        bytes: SharedDocument,
        /// True if the server will send another reply without a request.
        more_to_come: bool,
    },
    /// The connection could not be opened, or broke.
    Failed {
        /// The instant of the failure.
        at: Instant,
        /// The error.
        error: Error,
    },
    /// The instant of [`MonitorMachine::deadline`] is reached.
    DeadlineReached,
    /// An immediate check is requested.
    CheckRequested,
    /// The server's pool was cleared because of a network error and now has `generation`; a
    /// connection whose opening began under an earlier generation is stale.
    Cancel {
        /// The generation of the pool.
        generation: Generation,
    },
    /// The connection was closed between two checks by an operation that shares it. This says
    /// nothing about the server.
    Disconnected,
    /// An operation that shares the connection has authenticated on it. The connection then
    /// survives an overloaded server's refusal to answer a check (SDAM: "SystemOverloadedError").
    Authenticated,
    /// The server has left the topology.
    Stop,
}

/// An effect that the monitor's driver executes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MonitorEffect {
    /// Open a connection; answer with `Connected` or `Failed`.
    Connect {
        /// The deadline of the attempt; also [`MonitorMachine::deadline`].
        deadline: Option<Instant>,
    },
    /// Send the request and read one reply; answer with `Reply` or `Failed`.
    Send {
        /// The request to send.
        request: HelloRequest,
        /// The deadline of the attempt; also [`MonitorMachine::deadline`].
        deadline: Option<Instant>,
    },
    /// Read one more reply without sending anything; answer with `Reply` or `Failed`.
    ReadNext {
        /// The deadline of the attempt; also [`MonitorMachine::deadline`].
        deadline: Option<Instant>,
    },
    /// Cancel any operation in progress and close the connection, if there is one.
    Disconnect,
    /// Add this sample to the server's round-trip times.
    RttSample(Duration),
    /// Report the outcome to the topology, together with the current round-trip times. A success is
    /// never reported before the first sample.
    Report {
        /// The outcome of the check.
        outcome: Result<Hello, Error>,
    },
    /// Start measuring round-trip times on a dedicated connection.
    StartRtt,
    /// Stop the task that `StartRtt` started and close its connection, because the server is polled
    /// from now on (Server Monitoring: "Measuring RTT").
    StopRtt,
    /// Append this event to the queue of events.
    Emit(EventKind),
    /// End the monitor.
    Exit,
}

/// Effects in the order in which they have to run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MonitorEffects(SmallVec<[MonitorEffect; 4]>);

impl MonitorEffects {
    fn push(&mut self, effect: MonitorEffect) {
        self.0.push(effect);
    }
}

impl IntoIterator for MonitorEffects {
    type Item = MonitorEffect;
    type IntoIter = smallvec::IntoIter<[MonitorEffect; 4]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The checks of one server, and what a deployment would know of it.
#[derive(Debug)]
pub(super) struct MonitorMachine {
    check: Check,
    /// The pool's generation when the newest connection began to be opened.
    generation: Generation,
    is_stopped: bool,
}

impl MonitorMachine {
    /// Creates the monitor of `server` at `address`, about to make its first check.
    pub(super) fn new(
        config: Arc<MonitorConfig>,
        server: ServerId,
        address: ServerAddress,
    ) -> Self {
        Self {
            check: Check::new(config, server, address),
            generation: Generation::FIRST,
            is_stopped: false,
        }
    }

    /// Returns the first effects.
    pub(super) fn start(&mut self, now: Instant, status: ServerStatus) -> MonitorEffects {
        self.handle(now, status, MonitorInput::DeadlineReached)
    }

    /// Handles an input that occurred at `now`, with the topology's `status` of the server, and
    /// returns the effects.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        status: ServerStatus,
        input: MonitorInput,
    ) -> MonitorEffects {
        if self.is_stopped {
            return MonitorEffects::default();
        }
        let mut out = Outputs::default();
        let was_streaming = self.check.is_streaming();
        let report = self.pass(now, status, input, &mut out);
        let mut effects = MonitorEffects::default();
        match (was_streaming, self.check.is_streaming()) {
            (false, true) => effects.push(MonitorEffect::StartRtt),
            (true, false) if !self.is_stopped => effects.push(MonitorEffect::StopRtt),
            _ => {}
        }
        self.translate(status, out, report, &mut effects);
        if self.is_stopped {
            effects.push(MonitorEffect::Exit);
        }
        effects
    }

    fn pass(
        &mut self,
        now: Instant,
        status: ServerStatus,
        input: MonitorInput,
        out: &mut Outputs,
    ) -> Option<Report> {
        let (check, known) = (&mut self.check, status.known);
        let conn = check.conn();
        match input {
            MonitorInput::Connected => check.connected(now, conn, out),
            MonitorInput::Reply {
                sent,
                at,
                hello,
                bytes,
                more_to_come,
            } => {
                let reply = Reply {
                    trip: Trip::new(sent, at, now),
                    hello,
                    bytes,
                    more_to_come,
                };
                return check.reply(now, known, conn, reply, out);
            }
            MonitorInput::Failed { at, error } => {
                return check.failed(now, known, (conn, at), error, out);
            }
            MonitorInput::DeadlineReached => return check.due(now, known, out),
            MonitorInput::CheckRequested if check.awaits(conn).is_none() => {
                check.request(now);
                return check.due(now, known, out);
            }
            MonitorInput::Cancel { generation } if self.generation < generation => {
                check.cancel(now, known, out);
            }
            MonitorInput::CheckRequested | MonitorInput::Cancel { .. } => {}
            MonitorInput::Disconnected => check.connection_lost(),
            MonitorInput::Authenticated => check.authenticated(),
            MonitorInput::Stop => {
                check.stop(now, out);
                self.is_stopped = true;
            }
        }
        None
    }

    /// Adds the outputs to the effects; the sample comes before the end of the heartbeat, and the
    /// report after it.
    fn translate(
        &mut self,
        status: ServerStatus,
        out: Outputs,
        mut report: Option<Report>,
        effects: &mut MonitorEffects,
    ) {
        if let Some(sample) = report.as_ref().and_then(|report| report.sample) {
            effects.push(MonitorEffect::RttSample(sample));
        }
        for output in out {
            let effect = match output {
                Output::Connect { deadline, .. } => {
                    self.generation = status.generation;
                    MonitorEffect::Connect { deadline }
                }
                Output::Send {
                    request, deadline, ..
                } => MonitorEffect::Send { request, deadline },
                Output::Read { deadline, .. } => MonitorEffect::ReadNext { deadline },
                Output::Disconnect { .. } => MonitorEffect::Disconnect,
                Output::Emit(event) => MonitorEffect::Emit(event),
                // Not of a check.
                _ => continue,
            };
            let is_event = matches!(effect, MonitorEffect::Emit(_));
            effects.push(effect);
            if is_event && let Some(Report { outcome, .. }) = report.take() {
                effects.push(MonitorEffect::Report { outcome });
            }
        }
    }

    /// Returns when to pass [`MonitorInput::DeadlineReached`]; `None` for never. The instant may
    /// have passed already.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.check.deadline()
    }
}
