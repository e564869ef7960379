//! The monitor of one server, with its own inputs and effects.

use alloc::sync::Arc;
use core::time::Duration;

use smallvec::SmallVec;

use super::{
    MonitorConfig, Trip,
    check::{Check, Reply, Report},
};
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
pub struct ServerStatus {
    /// The generation of the server's pool.
    pub generation: Generation,
    /// True if the server's type is known, from any source.
    pub known: bool,
}

/// An input of [`MonitorMachine::handle`].
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an input exists for the length of one call"
)]
pub enum MonitorInput {
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
    #[doc(alias = "requestImmediateCheck")]
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
    /// The caller has left the running check unattended for so long that its outcome would be
    /// meaningless. The check ends without a report, and another one may begin at once.
    Abandon,
    /// The server has left the topology.
    Stop,
}

/// An effect that the monitor's driver executes.
#[derive(Clone, Debug, PartialEq)]
pub enum MonitorEffect {
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
#[must_use = "effects carry commands to the monitor's connection"]
pub struct MonitorEffects(SmallVec<[MonitorEffect; 4]>);

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

/// The monitor of one server: polling, streaming, retries, cancellation and heartbeat events.
///
/// It has one request outstanding at a time, waits for the answer or for its
/// [`deadline`](Self::deadline), and never fails.
///
/// A check that has to follow at once (a streamed reply, the retry after a network error) does not
/// begin in the call that ends its predecessor. Instead, the machine's deadline is due at once. So
/// the driver reads its control signals after every report, and a new connection begins under the
/// generation that the pool has after the report.
///
/// Cancellation applies to the connection, not to the check: the fault that broke the pool's
/// connections most likely broke this one. The connection is closed if its opening began under an
/// earlier generation, whether it is being opened, in use, or idle. If the server is still known,
/// because a reply was faster than the cancellation, the next check begins as soon as
/// `minHeartbeatFrequencyMS` allows.
///
/// A deadline that is noticed more than a heartbeat late means that the host was suspended, not
/// that the server is silent. The check then continues, once, for another second or for the connect
/// timeout if that is shorter, before it fails. A reply that is accepted only because of that, or
/// because it was read before the expired deadline was noticed, is old and is no sample of the
/// round-trip time. If it was to be a sample, the check sends another request on the same
/// connection before it ends.
///
/// The rate of streamed replies is limited, although no real server pushes them without a pause.
/// After some tens of such replies the connection is closed, and the next check begins on a new one
/// after `minHeartbeatFrequencyMS`. So the work per server is bounded, and its description is never
/// older than that.
///
/// There are two clocks. `now` is read by the driver when it calls, and does not run backwards. The
/// instants in the inputs are read where bytes are written and have arrived: they decide durations,
/// samples of the round-trip time, and whether a reply was late. So neither the time to parse a
/// reply nor the wait before the call is measured. Instants that do not fit are clamped.
///
/// # Contract
///
/// The driver executes all effects of a call in order before the next call. `Connect`, `Send` and
/// `ReadNext` are never outstanding together; each is answered by exactly one of the inputs named
/// at it, unless `Disconnect` comes first. Time does not run backwards between calls. An answer
/// without a request, and any input after `Exit`, is ignored.
#[doc(alias("Server Monitoring", "awaitable hello", "streaming protocol"))]
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct MonitorMachine {
    check: Check,
    /// The pool's generation when the newest connection began to be opened.
    generation: Generation,
    is_stopped: bool,
}

impl MonitorMachine {
    /// Creates the monitor of `server` at `address`, about to make its first check.
    pub fn new(config: Arc<MonitorConfig>, server: ServerId, address: ServerAddress) -> Self {
        Self::of(Check::new(config, server, address))
    }

    /// Creates the monitor that replaces this one after a panic. It keeps only the connection
    /// count, so that connection numbers stay unique, and the limit on the rate of streamed
    /// replies.
    #[must_use]
    pub fn successor(&self) -> Self {
        Self::of(self.check.successor())
    }

    fn of(check: Check) -> Self {
        Self {
            check,
            generation: Generation::FIRST,
            is_stopped: false,
        }
    }

    /// Returns the first effects.
    pub fn start(&mut self, now: Instant, status: ServerStatus) -> MonitorEffects {
        self.handle(now, status, MonitorInput::DeadlineReached)
    }

    /// Handles an input that occurred at `now`, with the topology's `status` of the server, and
    /// returns the effects.
    pub fn handle(
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
            MonitorInput::CheckRequested if check.is_idle() => {
                check.request(now);
                return check.due(now, known, out);
            }
            MonitorInput::Cancel { generation } if self.generation < generation => {
                check.cancel(now, known, out);
            }
            MonitorInput::CheckRequested | MonitorInput::Cancel { .. } => {}
            MonitorInput::Disconnected => check.connection_lost(),
            MonitorInput::Authenticated => check.authenticated(),
            MonitorInput::Abandon => check.abandon(now, out),
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
    pub fn deadline(&self) -> Option<Instant> {
        self.check.deadline()
    }

    /// Returns when a requested check may begin; `None` if no request would bring the next check
    /// forward.
    ///
    /// A request stands until the check begins. So while selections wait, the caller passes
    /// [`MonitorInput::CheckRequested`] no sooner than this: the selections may end before
    /// (Server Monitoring: "minHeartbeatFrequencyMS").
    pub fn earliest_check(&self) -> Option<Instant> {
        self.check.earliest()
    }
}
