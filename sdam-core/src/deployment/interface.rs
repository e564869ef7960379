//! The inputs and outputs of a deployment, and recordings: inputs emitted as events, and a
//! deployment that replays these inputs.

use alloc::{boxed::Box, sync::Arc};
use core::{slice, time::Duration};

use smallvec::SmallVec;

use super::Deployment;
use crate::{
    address::ServerAddress,
    error::Error,
    event::EventKind,
    hello::{HelloReply, HelloRequest},
    ids::{Generation, ObjectId, ServerId},
    monitor::MonitorConfig,
    options::{Detector, HandshakeOpcode, Options, Srv},
    pool::PoolClear,
    report::ErrorReport,
    rng::Rng,
    srv::SrvRecords,
    time::Instant,
    topology::TopologyDescription,
};

/// An input to [`Deployment::handle`](crate::deployment::Deployment::handle).
///
/// Recordings contain inputs in the form in which the feature `serde` serializes them.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all_fields = "camelCase", deny_unknown_fields))]
pub enum Input {
    /// Opens the topology: publishes the opening events and adds the seeds as servers. Has no
    /// effect if the topology was opened before.
    Open,
    /// Closes the topology: ends every heartbeat, closes every connection and pool, publishes the
    /// closing events and ignores all later inputs.
    Close,
    /// The timer's deadline has been reached. Answers that have already arrived must be passed
    /// first, so that a reply that waited in the socket while the host was suspended is accepted.
    ///
    /// Has no effect before the deadline.
    Due {
        /// The timer.
        timer: Timer,
        /// True if selections are waiting, so that an idle server is checked as soon as
        /// `minHeartbeatFrequencyMS` allows.
        wanted: bool,
    },
    /// A connection is open.
    Connected {
        /// The connection.
        conn: ConnId,
    },
    /// A reply has arrived.
    Reply {
        /// The connection.
        conn: ConnId,
        /// The instant at which the request was written, or at which reading began if there was no
        /// request.
        sent: Instant,
        /// The instant at which the reply arrived.
        at: Instant,
        /// The reply. The document is only needed on a connection for checks.
        reply: HelloReply,
        /// True if the server will send another reply without a request.
        more_to_come: bool,
    },
    /// A connection could not be opened, or broke.
    ///
    /// The kind [`Internal`](crate::error::ErrorKind::Internal) means that the transport has
    /// panicked. If it panicked during a check, the server becomes Unknown, the pool is not
    /// cleared, and the next check begins `minHeartbeatFrequencyMS` later.
    Failed {
        /// The connection.
        conn: ConnId,
        /// The instant of the failure.
        at: Instant,
        /// The error.
        error: Error,
    },
    /// The task that watched the server was dropped by its runtime, so no more answers will arrive
    /// on its connections. The server is Unknown from now on and is not checked again.
    Deserted {
        /// The server.
        server: ServerId,
    },
    /// An immediate check of the server is requested.
    #[doc(alias = "requestImmediateCheck")]
    CheckRequested {
        /// The server.
        server: ServerId,
    },
    /// A request for a server or for checks. This input and the next four are only for [inline
    /// mode](crate::deployment::Deployment::with_scans). The request ends with
    /// [`Finish`](crate::deployment::Output::Finish).
    Scan(ScanRequest),
    /// The answer to [`Choose`](crate::deployment::Output::Choose).
    Chosen {
        /// The suitable server, if there is one.
        server: Option<ServerId>,
        /// The idle time of the server's connection; `None` if there is no connection.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::optional_nanos"))]
        idle: Option<Duration>,
    },
    /// The answer to [`Probe`](crate::deployment::Output::Probe): `Ok` for any reply, otherwise the
    /// error. The connection is closed after an error.
    Probed {
        /// The server.
        server: ServerId,
        /// The error, if there was no reply.
        outcome: Result<(), Error>,
    },
    /// The connection was closed between two checks by an operation that shares it. This says
    /// nothing about the server.
    ConnectionLost {
        /// The connection.
        conn: ConnId,
    },
    /// An operation that shares the connection has authenticated on it. The connection then
    /// survives an overloaded server's refusal to answer a check (SDAM: "SystemOverloadedError").
    Authenticated {
        /// The connection.
        conn: ConnId,
    },
    /// A pooled connection has been opened and its handshake was answered.
    ///
    /// Behind a load balancer, the connection belongs to the service named in the reply, and has
    /// the current generation of that [service](crate::deployment::Deployment::generation).
    Handshake {
        /// The server of the connection.
        server: ServerId,
        /// The generation under which the connection was opened; ignored behind a load balancer.
        generation: Generation,
        /// The reply. An error reply has no effect here; report it as [`Error`](Self::Error).
        reply: HelloReply,
    },
    /// A connection to a service behind a load balancer, reported earlier as `Handshake`, was
    /// closed. The service is forgotten when its last connection is closed (CMAP: "Load Balancer
    /// Mode").
    ServiceConnectionClosed {
        /// The load balancer.
        server: ServerId,
        /// The service.
        #[cfg_attr(feature = "serde", serde(rename = "serviceId"))]
        service: ObjectId,
        /// The generation of the connection.
        generation: Generation,
    },
    /// An error from an operation or a pool, handled like
    /// [`handle_error`](crate::deployment::Deployment::handle_error), but without a result.
    Error {
        /// The server.
        server: ServerId,
        /// The error.
        report: ErrorReport,
    },
    /// An operation, or a pooled connection that is being opened, is waiting for an answer from the
    /// server. Reported each time that another [`Detector::floor`](crate::options::Detector::floor)
    /// has passed. Has no effect without a detector.
    Late {
        /// The server.
        server: ServerId,
        /// The time at which the wait began.
        sent: Instant,
    },
    /// An operation got its reply while a detector was [asking](crate::server::Silence::asked) the
    /// server, or after the operation was reported as [`Late`](Self::Late).
    Answered {
        /// The server.
        server: ServerId,
    },
    /// The look-up of the SRV record has ended.
    LookedUp(Result<SrvRecords, Error>),
    /// The hosts of an SRV record that the caller has looked up and validated. `srvMaxHosts`
    /// applies to them.
    Hosts(Box<[ServerAddress]>),
}

impl Input {
    /// Returns the connection on which the answer in this input arrived; `None` for an input that
    /// is not such an answer.
    pub fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Connected { conn } | Self::Reply { conn, .. } | Self::Failed { conn, .. } => {
                Some(*conn)
            }
            _ => None,
        }
    }
}

/// A timer of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Timer {
    /// The timer of a server's checks and measurements.
    Server(ServerId),
    /// The timer of the look-ups of the SRV record.
    Srv,
    /// The timer of the current request, the only timer in inline mode.
    Scan,
}

/// Identifies an attempt to connect and the resulting connection. The value is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ConnId {
    /// The server.
    pub server: ServerId,
    /// The purpose of the connection.
    pub role: Role,
    /// The number of the attempt for this server and role, counted from 1.
    pub number: u64,
}

/// The purpose of a connection to a monitored server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Role {
    /// Checks of the server.
    Check,
    /// Measurements of round-trip times, while checks wait for changes (Server Monitoring:
    /// "Measuring RTT").
    Ping,
    /// A single request that tests whether a silent server answers on a new connection
    /// ([`Detector`](crate::options::Detector)).
    Probe,
}

/// A request from a client without background tasks. It replaces the previous request, except that
/// a check or probe in progress is finished first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub enum ScanRequest {
    /// An operation needs a server.
    Select {
        /// `serverSelectionTimeoutMS`; has no effect with `serverSelectionTryOnce`.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        timeout: Duration,
    },
    /// All servers must be checked, whether or not a scan is due.
    Scan,
    /// Only this server must be checked (SDAM: "Checking a single server").
    Check {
        /// The server's id.
        server: ServerId,
    },
    /// Only checks that were requested because of errors must run now.
    Settle,
}

/// An action for the caller to perform.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Open a connection; answer with `Connected` or `Failed`.
    Connect {
        /// The new connection.
        conn: ConnId,
        /// The time at which the attempt fails; `None` for no limit.
        deadline: Option<Instant>,
    },
    /// Send the request and read one reply; answer with `Reply` or `Failed`.
    Send {
        /// The connection.
        conn: ConnId,
        /// The request.
        request: Box<HelloRequest>,
        /// The time at which the request fails; `None` for no limit.
        deadline: Option<Instant>,
    },
    /// Read one more reply without sending anything; answer with `Reply` or `Failed`.
    Read {
        /// The connection.
        conn: ConnId,
        /// The time at which reading fails; `None` for no limit.
        deadline: Option<Instant>,
    },
    /// Cancel the operation in progress, if there is one, and close the connection.
    Disconnect {
        /// The connection.
        conn: ConnId,
    },
    /// Read the server's deadline again. A call that concerned neither the server's timer nor its
    /// connections has brought the deadline forward.
    Wake {
        /// The server.
        server: ServerId,
    },
    /// Create the server's pool. If the server is monitored, pass `Due` for it after all outputs
    /// have run.
    OpenServer {
        /// The id of the new server.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// True if the server is checked; false for a load balancer.
        monitored: bool,
    },
    /// Close the server's pool. The server's other connections are already closed, and no later
    /// output names the server.
    CloseServer {
        /// The server id.
        server: ServerId,
    },
    /// Mark the server's pool ready. Once the pool is ready, this output is repeated only after a
    /// clear.
    PoolReady {
        /// The server id.
        server: ServerId,
    },
    /// Clear the server's pool.
    PoolClear {
        /// The server id.
        server: ServerId,
        /// The clear and its cause.
        clear: PoolClear,
    },
    /// Make this description visible to readers.
    Publish(Arc<TopologyDescription>),
    /// Append the event to the event queue.
    Emit(EventKind),
    /// Look up the SRV records of the name. Answer with `LookedUp`, which contains an error if
    /// there is no answer by the deadline.
    LookUp {
        /// The name of the record.
        name: Arc<str>,
        /// The time at which the look-up fails; `None` for no limit.
        deadline: Option<Instant>,
    },
    /// Select a suitable server from the current description; answer with `Chosen`.
    Choose,
    /// Send `ping` on the connection of the server's checks, and close the connection if it breaks
    /// or times out; answer with `Probed`.
    Probe {
        /// The server.
        server: ServerId,
    },
    /// The request has ended. A selection returns the chosen server.
    Finish(Result<Option<ServerId>, ScanFailure>),
}

/// The reason why server selection fails in inline mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanFailure {
    /// A server and the client have no wire version in common.
    Incompatible,
    /// `serverSelectionTimeoutMS` has passed, or will pass before servers may be checked again.
    Timeout,
    /// One scan found no suitable server, and `serverSelectionTryOnce` allows only one.
    TriedOnce,
}

/// Outputs in the order in which they must run: open, ready, publish, emit, clear, close.
///
/// "Ready before publish" means that no reader sees a selectable server with a paused pool. "Clear
/// after publish" means that no reader of the new description gets a connection of the old
/// generation (SDAM: "Why synchronize clearing a server's pool with updating the topology?"). The
/// event that ends a heartbeat precedes the consequences of the heartbeat, and `TopologyClosed`
/// comes last.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "outputs carry commands to connections and pools"]
pub struct Outputs(SmallVec<[Output; 8]>);

impl Outputs {
    pub(crate) fn push(&mut self, output: Output) {
        self.0.push(output);
    }

    pub(crate) fn emit(&mut self, event: EventKind) {
        self.push(Output::Emit(event));
    }

    pub(crate) fn emit_all(&mut self, events: impl IntoIterator<Item = EventKind>) {
        self.0.extend(events.into_iter().map(Output::Emit));
    }

    /// Returns whether there are no outputs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the outputs, in order.
    pub fn iter(&self) -> slice::Iter<'_, Output> {
        self.0.iter()
    }
}

impl IntoIterator for Outputs {
    type Item = Output;
    type IntoIter = smallvec::IntoIter<[Output; 8]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'o> IntoIterator for &'o Outputs {
    type Item = &'o Output;
    type IntoIter = slice::Iter<'o, Output>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// An input with the data that a replay needs: the payload of the event
/// [`Input`](crate::event::EventKind::Input).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RecordedInput {
    /// The time at which the deployment handled the input.
    pub now: Instant,
    /// The input.
    pub input: Input,
    /// The setup of the deployment; present only with [`Input::Open`].
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub setup: Option<Setup>,
}

/// The configuration of a deployment's checks and look-ups, apart from the options of its topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct Setup {
    /// The seed of the deployment's random numbers.
    pub seed: u64,
    /// `heartbeatFrequencyMS`.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub heartbeat_frequency: Duration,
    /// `minHeartbeatFrequencyMS`.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub min_heartbeat_frequency: Duration,
    /// `connectTimeoutMS`.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::optional_nanos"))]
    pub connect_timeout: Option<Duration>,
    /// True to stream if the server supports it.
    pub streaming: bool,
    /// True if a failed check of a known server is retried before it is reported.
    pub retry_before_unknown: bool,
    /// The detector of silent servers.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub detector: Option<Detector>,
    /// The maximum random delay of background connections; see
    /// [`Options::spread`](crate::options::Options::spread).
    #[cfg_attr(feature = "serde", serde(default, with = "crate::encoding::nanos"))]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Duration::is_zero"))]
    pub spread: Duration,
    /// The time from a server's first streaming check to the first measurement of its round-trip
    /// time.
    #[cfg_attr(feature = "serde", serde(default, with = "crate::encoding::nanos"))]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Duration::is_zero"))]
    pub ping_delay: Duration,
    /// The options of scans, in inline mode.
    pub scans: Option<ScanSetup>,
    /// `srvMaxHosts`.
    pub max_hosts: usize,
    /// The polled SRV record.
    pub srv: Option<Srv>,
}

/// The options of scans in inline mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct ScanSetup {
    /// `heartbeatFrequencyMS`: the time for which the outcome of a scan is valid.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub frequency: Duration,
    /// `serverSelectionTryOnce`.
    pub try_once: bool,
    /// `socketCheckIntervalMS`.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub socket_check_interval: Duration,
    /// True if a server is checked at once after its "not writable primary" error.
    pub immediate_check: bool,
}

impl Deployment {
    /// Creates a deployment that replays a recording and re-emits the recorded inputs as events.
    /// `options` are the recorded options; `setup` is the setup recorded with the first input.
    ///
    /// The same inputs at the same times yield the same outputs, except that requests lack the
    /// client's metadata and declared API.
    pub fn restored(mut options: Options, setup: &Setup) -> Self {
        let config = MonitorConfig {
            heartbeat_frequency: setup.heartbeat_frequency,
            min_heartbeat_frequency: setup.min_heartbeat_frequency,
            connect_timeout: setup.connect_timeout,
            streaming: setup.streaming,
            handshake: Arc::default(),
            server_api: None,
            handshake_opcode: HandshakeOpcode::default(),
            retry_before_unknown: setup.retry_before_unknown,
            detector: setup.detector,
            spread: setup.spread,
            ping_delay: setup.ping_delay,
        };
        options.srv.clone_from(&setup.srv);
        options.connect_timeout = setup.connect_timeout;
        let seed = Rng::new(setup.seed);
        let mut new = Self::new(options.clone(), Arc::new(config), seed).with_recorded_inputs();
        new.max_hosts = setup.max_hosts;
        if let Some(scans) = setup.scans {
            options.heartbeat_frequency = Some(scans.frequency);
            options.deviations.min_heartbeat_frequency = setup.min_heartbeat_frequency;
            options.server_selection_try_once = Some(scans.try_once);
            options.socket_check_interval = scans.socket_check_interval;
            options.deviations.single_threaded_immediate_check = scans.immediate_check;
            new = new.with_scans(&options);
        }
        new.with_srv_polling(&options)
    }

    /// Emits an input as an event if inputs are recorded, unless the topology is closed.
    pub(super) fn record(&self, now: Instant, input: impl FnOnce() -> Input, out: &mut Outputs) {
        if !self.records || self.is_closed() {
            return;
        }
        let input = input();
        let setup = (input == Input::Open).then(|| Setup {
            seed: self.seed,
            heartbeat_frequency: self.config.heartbeat_frequency,
            min_heartbeat_frequency: self.config.min_heartbeat_frequency,
            connect_timeout: self.config.connect_timeout,
            streaming: self.config.streaming,
            retry_before_unknown: self.config.retry_before_unknown,
            detector: self.config.detector,
            spread: self.config.spread,
            ping_delay: self.config.ping_delay,
            scans: self.inline.as_ref().map(|own| own.scans.setup),
            max_hosts: self.max_hosts,
            srv: self.srv.as_ref().map(|polling| polling.srv.clone()),
        });
        let recorded = RecordedInput { now, input, setup };
        out.emit(EventKind::Input(Arc::new(recorded)));
    }
}
