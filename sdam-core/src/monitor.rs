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

/// What all monitors of a topology have in common.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MonitorConfig {
    /// `heartbeatFrequencyMS`, at least 500 ms.
    pub heartbeat_frequency: Duration,
    /// `connectTimeoutMS`, `None` for no limit.
    pub connect_timeout: Option<Duration>,
    /// Whether to stream where a server supports it: `serverMonitoringMode` and what is known of
    /// the platform, decided.
    pub streaming: bool,
    /// The arguments of every connection's first hello.
    pub handshake: Arc<Handshake>,
    /// The declared API; then only `hello` is used.
    pub server_api: Option<Arc<ServerApi>>,
    /// How the first legacy hello of a connection is framed.
    pub handshake_opcode: HandshakeOpcode,
    /// Whether to retry a failed check of a known server on a new connection before reporting it.
    pub legacy_retry_before_unknown: bool,
}

impl MonitorConfig {
    /// What `options` mean for monitors that introduce themselves with `handshake`; `faas` says
    /// whether the program runs as a function of a FaaS provider (SDAM: "serverMonitoringMode").
    pub fn new(options: &Options, handshake: Arc<Handshake>, faas: bool) -> Self {
        Self {
            heartbeat_frequency: options.heartbeat_frequency(),
            connect_timeout: options.connect_timeout(),
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

/// What the topology holds of a server at the moment at which its monitor is told something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStatus {
    /// The generation of the server's pool.
    pub generation: Generation,
    /// Whether the server's type is known, whoever found it out.
    pub known: bool,
}

/// What a monitor is told.
#[derive(Debug)]
pub enum MonitorInput<'a> {
    /// The connection that was asked for is open.
    Connected,
    /// A reply has arrived.
    Reply {
        /// The reply, a BSON document.
        bytes: &'a [u8],
        /// Whether the server will send another one unasked.
        more_to_come: bool,
    },
    /// The connection could not be opened, or broke.
    Failed(ServerError),
    /// The instant of [`MonitorMachine::deadline`] has come.
    DeadlineReached,
    /// Somebody wants to know how the server is.
    CheckRequested,
    /// The server's pool was cleared because of a network error and now has `generation`; a
    /// connection whose opening began under an earlier one is of no use any more.
    Cancel {
        /// The generation of the pool.
        generation: Generation,
    },
    /// The connection was closed by whoever else uses it, between two checks; says nothing about
    /// the server.
    Disconnected,
    /// Whoever else uses the connection has authenticated on it. An overloaded server's refusal to
    /// answer a check then does not cost the connection (SDAM: "SystemOverloadedError").
    Authenticated,
    /// Whoever carried out the running check has not looked after it for so long that its outcome
    /// would mean nothing. It ends without a report, and another one may begin at once.
    Abandon,
    /// The server has left the topology.
    Stop,
}

/// What a monitor wants.
#[derive(Clone, Debug, PartialEq)]
pub enum MonitorEffect {
    /// Open a connection; answer with `Connected` or `Failed`.
    Connect {
        /// When the attempt fails; also [`MonitorMachine::deadline`].
        deadline: Option<Instant>,
    },
    /// Send the request and read one reply; answer with `Reply` or `Failed`.
    Send {
        /// What to send.
        request: HelloRequest,
        /// When the attempt fails; also [`MonitorMachine::deadline`].
        deadline: Option<Instant>,
    },
    /// Read one more reply without sending anything; answer with `Reply` or `Failed`.
    ReadNext {
        /// When the attempt fails; also [`MonitorMachine::deadline`].
        deadline: Option<Instant>,
    },
    /// Give up whatever is under way and close the connection, if there is one.
    Disconnect,
    /// Take this sample into the server's round-trip times.
    RttSample(Duration),
    /// Tell the topology, together with the round-trip times as they are now. A success never comes
    /// before the first sample.
    Report {
        /// What came of the check.
        outcome: Result<Hello, ServerError>,
    },
    /// Start measuring round-trip times on a connection of their own.
    StartRtt,
    /// End what `StartRtt` began, with its connection: the server is polled from now on (Server
    /// Monitoring: "Measuring RTT").
    StopRtt,
    /// Append to the queue of events.
    Emit(EventKind),
    /// End.
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
/// It asks for one thing at a time, waits for the answer or for its [`deadline`](Self::deadline),
/// and never fails.
///
/// A check that has to follow at once (a streamed reply, the retry after a network error) does not
/// begin in the call that ends its predecessor: the machine's deadline is then simply due.
/// So the driver looks at its mailbox after every report, and a new connection begins under the
/// generation that the pool has after the report.
///
/// Cancelling means the connection, not the check: whatever broke the pool's connections most likely
/// broke this one.
/// It is closed if its opening began under an earlier generation, whether it is being opened, used,
/// or idle.
/// If the server is known all the same, because a reply was faster than the cancellation, the next
/// check begins as soon as `minHeartbeatFrequencyMS` allows.
///
/// A deadline that is noticed more than a heartbeat late says that the host was suspended, not that
/// the server is silent.
/// The check then goes on for another second, or for the connect timeout if that is shorter, before
/// it fails; once.
/// A reply that makes it only thanks to that, or to being read before anybody looked at the clock,
/// is old and is no sample of the round-trip time.
/// If it was to be one, the check asks again on the same connection before it ends.
///
/// A server that pushes replies without a pause, which no real one does, is not read on: after some
/// tens of them the connection is closed, and what the server has to say is asked for on a new one
/// after `minHeartbeatFrequencyMS`.
/// So it costs a bounded amount of work, and what is known of it is never older than that.
///
/// # Contract
///
/// The driver executes all effects of a call in order before the next call.
/// `Connect`, `Send` and `ReadNext` are never outstanding together; each is answered by exactly one
/// of the inputs named at it, unless `Disconnect` comes first.
/// Time does not run backwards between calls.
/// An answer that was not asked for, and any input after `Exit`, is ignored.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct MonitorMachine {
    config: Arc<MonitorConfig>,
    server: ServerId,
    address: ServerAddress,
    state: State,
    /// The open connection; outlives the checks it serves.
    connection: Option<Connection>,
    /// How many connections were asked for.
    connections: u64,
    /// The pool's generation when the newest connection began to be opened.
    generation: Generation,
    /// Whether the last failure of a check was not reported, so that the next one has to be.
    withheld: bool,
    /// Whether the task that measures round-trip times was started, and not stopped since.
    rtt_started: bool,
    /// The replies that the server pushes, over all connections.
    pace: Pace,
}

impl MonitorMachine {
    /// The monitor of `server` at `address`, about to make its first check.
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

    /// The monitor that takes over from this one, which came to grief. It only remembers how many
    /// connections there were, so that no two have the same number.
    #[must_use]
    pub fn successor(&self) -> Self {
        let config = Arc::clone(&self.config);
        Self {
            connections: self.connections,
            pace: self.pace,
            ..Self::new(config, self.server, self.address.clone())
        }
    }

    /// The first effects.
    pub fn start(&mut self, now: Instant, status: ServerStatus) -> MonitorEffects {
        self.handle(now, status, MonitorInput::DeadlineReached)
    }

    /// Takes in what happened at `now`, when the topology holds `status` of the server.
    pub fn handle(
        &mut self,
        now: Instant,
        status: ServerStatus,
        input: MonitorInput<'_>,
    ) -> MonitorEffects {
        let mut effects = MonitorEffects::default();
        // Every arm says what state follows; `Done` only stands in meanwhile.
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
                let idle = idle.hastened(now);
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
                    bytes,
                    more_to_come,
                },
            ) if check.waiting == Waiting::Reply => {
                self.answered(now, status, check, bytes, more_to_come, &mut effects)
            }
            (State::Checking(check), MonitorInput::Failed(error)) => {
                self.fail(now, status, check, error, &mut effects)
            }
            (State::Checking(check), MonitorInput::DeadlineReached) => {
                self.expire(now, status, check, &mut effects)
            }
            // Among them a request for a check while one is running: it must be ignored, not
            // remembered (Server Monitoring: "Requesting an immediate check").
            (state, _) => state,
        };
        effects
    }

    /// When to tell the machine that its deadline has come; `None` for never. It may have passed
    /// already.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Idle(idle) => Some(idle.until),
            State::Checking(check) => check.deadline,
            State::Done => None,
        }
    }
}
