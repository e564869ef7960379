//! The check loop of one server (Server Monitoring).

mod check;
mod negotiation;
mod pace;
#[cfg(test)]
mod tests;
mod timing;
mod transition;

use alloc::sync::Arc;
use core::{mem, time::Duration};

use smallvec::SmallVec;

use crate::{
    address::ServerAddress,
    document::SharedDocument,
    error::ServerError,
    event::EventKind,
    hello::{Handshake, Hello, HelloRequest},
    ids::{Generation, ServerId},
    options::{HandshakeOpcode, Options, ServerApi, ServerMonitoringMode},
    time::Instant,
};

use self::check::{Connection, Idle, State, Waiting};
pub(crate) use self::negotiation::Negotiation;
use self::pace::Pace;
pub(crate) use self::timing::Trip;

/// The configuration that all monitors of a topology share.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MonitorConfig {
    /// `heartbeatFrequencyMS`, at least `min_heartbeat_frequency`.
    pub heartbeat_frequency: Duration,
    /// `minHeartbeatFrequencyMS`, 500 ms outside tests.
    pub min_heartbeat_frequency: Duration,
    /// `connectTimeoutMS`, `None` for no limit.
    pub connect_timeout: Option<Duration>,
    /// True to stream where a server supports it; decided from `serverMonitoringMode` and the
    /// platform.
    pub streaming: bool,
    /// The arguments of every connection's first hello.
    pub handshake: Arc<Handshake>,
    /// The declared stable API; with one, only `hello` is used.
    pub server_api: Option<Arc<ServerApi>>,
    /// The framing of the first legacy hello of a connection.
    pub handshake_opcode: HandshakeOpcode,
    /// True to retry a failed check of a known server on a new connection before reporting it.
    pub legacy_retry_before_unknown: bool,
}

impl MonitorConfig {
    /// Creates the configuration of monitors that send `handshake`. `faas` tells whether the
    /// program runs as a function of a FaaS provider (SDAM: "serverMonitoringMode").
    pub fn new(options: &Options, handshake: Arc<Handshake>, faas: bool) -> Self {
        Self {
            heartbeat_frequency: options.heartbeat_frequency(),
            min_heartbeat_frequency: options.min_heartbeat_frequency,
            connect_timeout: options.connect_timeout,
            streaming: match options.server_monitoring_mode {
                ServerMonitoringMode::Auto => !faas,
                ServerMonitoringMode::Stream => true,
                ServerMonitoringMode::Poll => false,
            },
            handshake,
            server_api: options.server_api.clone().map(Arc::new),
            handshake_opcode: options.handshake_opcode,
            legacy_retry_before_unknown: options.legacy_retry_before_unknown,
        }
    }
}

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
        hello: Result<Hello, ServerError>,
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
        error: ServerError,
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
        outcome: Result<Hello, ServerError>,
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
    config: Arc<MonitorConfig>,
    server: ServerId,
    address: ServerAddress,
    state: State,
    /// The open connection; outlives the checks it serves.
    connection: Option<Connection>,
    /// The number of connections requested so far.
    connections: u64,
    /// The pool's generation when the newest connection began to be opened.
    generation: Generation,
    /// True if the last failure of a check was withheld, so that the next one has to be reported.
    withheld: bool,
    /// True if the task that measures round-trip times is running.
    rtt_started: bool,
    /// The limit on the rate of streamed replies, over all connections.
    pace: Pace,
}

impl MonitorMachine {
    /// Creates the monitor of `server` at `address`, about to make its first check.
    pub fn new(config: Arc<MonitorConfig>, server: ServerId, address: ServerAddress) -> Self {
        Self {
            config,
            server,
            address,
            state: State::Idle(Idle::at_once(Instant::EPOCH)),
            connection: None,
            connections: 0,
            generation: Generation::FIRST,
            withheld: false,
            rtt_started: false,
            pace: Pace::default(),
        }
    }

    /// Creates the monitor that replaces this one after a panic. It keeps only the connection
    /// count, so that connection numbers stay unique, and the limit on the rate of streamed
    /// replies.
    #[must_use]
    pub fn successor(&self) -> Self {
        let config = Arc::clone(&self.config);
        Self {
            connections: self.connections,
            pace: self.pace,
            ..Self::new(config, self.server, self.address.clone())
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
        let mut effects = MonitorEffects::default();
        // Every arm yields the next state; `Done` is only a placeholder.
        self.state = match (mem::replace(&mut self.state, State::Done), input) {
            (State::Done, _) => State::Done,
            (state, MonitorInput::Stop) => self.stop(now, state, &mut effects),
            (state, MonitorInput::Cancel { generation }) if self.generation < generation => {
                self.cancel(now, status, state, &mut effects)
            }
            (State::Idle(idle), MonitorInput::DeadlineReached) if idle.is_due(now) => {
                self.begin(now, status, &mut effects)
            }
            (State::Idle(idle), MonitorInput::CheckRequested) => {
                let idle = self.config.hastened(idle, now);
                if idle.is_due(now) {
                    self.begin(now, status, &mut effects)
                } else {
                    State::Idle(idle)
                }
            }
            (State::Checking(check), MonitorInput::Abandon) => {
                self.abandon(now, check, &mut effects)
            }
            (State::Idle(idle), MonitorInput::Disconnected) => {
                self.connection = None;
                State::Idle(idle)
            }
            (state, MonitorInput::Authenticated) => {
                if let Some(connection) = &mut self.connection {
                    connection.authenticated = true;
                }
                state
            }
            (State::Checking(check), MonitorInput::Connected)
                if check.waiting == Waiting::Connection =>
            {
                self.greet(now, check, &mut effects)
            }
            (
                State::Checking(check),
                MonitorInput::Reply {
                    sent,
                    at,
                    hello,
                    bytes,
                    more_to_come,
                },
            ) if check.waiting == Waiting::Reply => {
                let trip = Trip::new(sent, at, now);
                match hello {
                    Ok(hello) => {
                        let reply = (hello, bytes, more_to_come);
                        self.answered(now, check, trip, reply, &mut effects)
                    }
                    Err(error) => {
                        self.fail(now, status, check, trip.duration(), error, &mut effects)
                    }
                }
            }
            (State::Checking(check), MonitorInput::Failed { at, error }) => {
                let took = Trip::new(check.since, at, now).duration();
                self.fail(now, status, check, took, error, &mut effects)
            }
            (State::Checking(check), MonitorInput::DeadlineReached) => {
                self.expire(now, status, check, &mut effects)
            }
            // This includes a request for a check while one is running: it must be ignored, not
            // remembered (Server Monitoring: "Requesting an immediate check").
            (state, _) => state,
        };
        effects
    }

    /// Returns when to pass [`MonitorInput::DeadlineReached`]; `None` for never. The instant may
    /// have passed already.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Idle(idle) => Some(idle.until),
            State::Checking(check) => check.deadline,
            State::Done => None,
        }
    }

    /// Returns when a requested check may begin; `None` if no request would bring the next check
    /// forward.
    ///
    /// A request stands until the check begins. So while selections wait, the caller passes
    /// [`MonitorInput::CheckRequested`] no sooner than this: the selections may end before
    /// (Server Monitoring: "minHeartbeatFrequencyMS").
    pub fn earliest_check(&self) -> Option<Instant> {
        match &self.state {
            State::Idle(idle) => {
                let earliest = idle.ended + self.config.min_heartbeat_frequency;
                (earliest < idle.until).then_some(earliest)
            }
            State::Checking(_) | State::Done => None,
        }
    }
}
