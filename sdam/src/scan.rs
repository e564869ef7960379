//! Single-threaded mode: a topology without background work.
//!
//! Servers are checked inline with operations. A program that selects no server performs no I/O
//! (SDAM: "Single-threaded monitoring").
//!
//! # How long a selection takes
//!
//! With `serverSelectionTryOnce` (the default) a selection may take as long as one scan, which
//! begins at least 500 ms after the previous one. `serverSelectionTimeoutMS` and `timeoutMS` then
//! have no effect.
//! Without it, the limit is `serverSelectionTimeoutMS`, or `timeoutMS` if that is shorter and not
//! zero. A selection fails at the earliest 500 ms before that limit, and at the latest the time of
//! one scan after it.
//!
//! A scan checks one server after the other.
//! Each takes at most `connectTimeoutMS` to connect and as much for its reply, and both twice if
//! it was known before. A server that did not answer is skipped for the next 5 seconds.
//! DNS look-ups of host names come on top if the system does not limit them.
//!
//! # SRV records
//!
//! SRV records are not polled before a scan (H-13), because this version resolves none. A
//! `mongodb+srv` string is a configuration error unless the program resolves it
//! ([`ConnectionString::resolved`](sdam_core::uri::ConnectionString::resolved)); the topology then
//! begins with the resolved hosts and nothing more.

mod channel;
mod check;
mod effects;
mod member;
mod operations;
mod report;
mod search;
mod selected;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use sdam_core::{
    hello::Handshake,
    ids::{Generation, ObjectId, ServerId},
    machine::{Input, TopologyMachine},
    monitor::MonitorConfig,
    options::{Options, Warning},
    pool::PoolFactory,
    rng::Rng,
    scan::{ScanConfig, ScanEffect, ScanInput, ScanMachine},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};
use sdam_events::{history::History, queue::EventQueue, sink::EventSink};
use sdam_select::{criteria::Criteria, settings::Settings};
use sdam_transport::{
    handshake::{InvalidMetadata, Library},
    runtime::Io,
};

use self::member::Member;
pub use self::{channel::Channel, selected::ScanSelected};
use crate::{
    builder::{Prepared, TopologyBuilder, publish_warnings},
    error::{SelectionError, StartError},
    held::HeldPanic,
    introduction::Introduction,
    select::Limit,
};

/// A deployment that is scanned only when a server is needed.
///
/// Methods that change it take `&mut self`: there is no lock, no task and no spawner.
/// It uses the same state machines as [`Topology`](crate::topology::Topology).
/// Futures block where the [`Io`] blocks; with a non-blocking `Io`, any executor works.
///
/// # Connections
///
/// There is one connection to each server.
/// Checks use it, and operations should use it, too: see [`channel`](Self::channel).
/// Connection pools that are given to the builder are still created, cleared and closed.
///
/// # Events
///
/// The sink is called at the end of each call, in order, before the call returns.
/// A slow event sink blocks its caller.
pub struct ScanTopology {
    options: Options,
    warnings: Vec<Warning>,
    settings: Settings,
    /// The default selection timeout.
    limit: Limit,
    config: Arc<MonitorConfig>,
    introduction: Introduction,
    io: Io,
    rng: Rng,
    machine: TopologyMachine,
    scan: ScanMachine,
    members: BTreeMap<ServerId, Member>,
    pools: Arc<dyn PoolFactory>,
    events: Arc<EventQueue>,
    sink: Option<Arc<dyn EventSink>>,
    history: Option<Arc<History>>,
    panic: HeldPanic,
}

impl ScanTopology {
    /// Starts a topology without pools and sinks; see also [`TopologyBuilder::scan`]. Performs no
    /// I/O.
    ///
    /// # Errors
    ///
    /// If the options contradict each other.
    pub fn start(options: Options, io: Io) -> Result<Self, StartError> {
        TopologyBuilder::new(options).scan(io)
    }

    pub(crate) fn new(prepared: Prepared, io: Io) -> Self {
        let Prepared {
            options,
            topology,
            mut rng,
            mut config,
            introduction,
            pools,
            events,
            sink,
            history,
            selector,
            warnings,
        } = prepared;
        // H-16: between calls nothing would read streamed replies.
        config.streaming = false;
        config.heartbeat_frequency = options.scan_frequency();
        let mut settings = Settings::single_threaded(&options);
        settings.selector = selector;
        let scan = ScanMachine::new(ScanConfig::new(&options), rng.fork());
        let mut this = Self {
            settings,
            limit: Limit::configured(&options),
            config: Arc::new(config),
            introduction,
            machine: TopologyMachine::new(&options, topology),
            scan,
            members: BTreeMap::new(),
            options,
            warnings,
            io,
            rng,
            pools,
            events,
            sink,
            history,
            panic: HeldPanic::default(),
        };
        this.apply(Input::Open, None);
        publish_warnings(&this.events, this.now(), &this.warnings);
        this.deliver();
        this
    }

    /// Returns the id that all events of this topology carry.
    pub fn id(&self) -> ObjectId {
        self.machine.topology()
    }

    /// Returns the options that the topology was started with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the configuration warnings: workarounds for the connection string, and options
    /// without effect on a single-threaded client. Each was also
    /// [published](sdam_core::event::EventKind::ConfigWarning) when the topology opened.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Appends a wrapping library to the client metadata and returns whether that changed
    /// anything: a library that was appended before is not appended again. Only connections that
    /// are opened later send it (Handshake: "Supporting wrapping libraries").
    ///
    /// # Errors
    ///
    /// If one of the library's texts contains a `|`; then nothing is changed.
    pub fn append_metadata(&self, library: Library) -> Result<bool, InvalidMetadata> {
        self.introduction.append(library)
    }

    /// Returns the handshake of the first hello of a connection that is opened now. Pools use it
    /// for their connections, too.
    pub fn handshake(&self) -> Arc<Handshake> {
        self.introduction.handshake()
    }

    /// Returns the current topology description.
    pub fn description(&self) -> &Arc<TopologyDescription> {
        self.machine.description()
    }

    /// Returns whether the next selection begins with a scan (SDAM: "stale"); false if load
    /// balanced.
    pub fn is_stale(&self) -> bool {
        self.description().topology_type() != TopologyType::LoadBalanced
            && self.scan.is_stale(self.now())
    }

    /// Returns when the newest scan ended, on the clock of the `Io`.
    pub fn last_scan(&self) -> Option<Instant> {
        self.scan.last_scan()
    }

    /// Returns the generation of connections to `server` that are opened now; behind a load
    /// balancer, that of connections to `service`. `None` if the server has left the topology.
    pub fn generation(&self, server: ServerId, service: Option<ObjectId>) -> Option<Generation> {
        self.machine.generation(server, service)
    }

    /// Selects a server. Scans first if a scan is due, or after a failure.
    ///
    /// See [how long a selection takes](self#how-long-a-selection-takes).
    ///
    /// # Errors
    ///
    /// If no suitable server was found, or none can be: the topology is incompatible or closed, or
    /// the criteria are invalid.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. The check in progress is then suspended, and the next call that
    /// checks servers continues it.
    pub async fn select(&mut self, criteria: &Criteria) -> Result<ScanSelected, SelectionError> {
        self.select_limited(criteria, self.limit).await
    }

    /// Selects a server like [`select`](Self::select), with this timeout if it is shorter than
    /// `serverSelectionTimeoutMS`. The timeout replaces the client's `timeoutMS`.
    ///
    /// # Errors
    ///
    /// As [`select`](Self::select).
    ///
    /// # Cancel safety
    ///
    /// As [`select`](Self::select).
    pub async fn select_within(
        &mut self,
        criteria: &Criteria,
        timeout: Duration,
    ) -> Result<ScanSelected, SelectionError> {
        let limit = Limit::of_call(&self.options, timeout);
        self.select_limited(criteria, limit).await
    }

    async fn select_limited(
        &mut self,
        criteria: &Criteria,
        limit: Limit,
    ) -> Result<ScanSelected, SelectionError> {
        let mut report = report::begin(self, criteria, limit.timeout);
        let outcome = self.search(criteria, limit, &mut report).await;
        report.look(self.description());
        let mut outcome = report.end(outcome, |selected| (selected.id(), selected.address()));
        self.deliver();
        // The history is a sink, so it includes this call only after the delivery.
        if let (Err(SelectionError::Timeout(timeout)), Some(history)) =
            (&mut outcome, &self.history)
        {
            timeout.history = history.transitions();
        }
        outcome
    }

    /// Checks all servers except those that failed within the last 5 seconds, no sooner than 500
    /// ms after the last scan.
    ///
    /// # Cancel safety
    ///
    /// As [`select`](Self::select).
    pub async fn scan(&mut self) {
        self.carry_out(ScanInput::Scan).await;
    }

    /// Checks one server, no sooner than 500 ms after its last check (SDAM: "Checking a single
    /// server"). Nothing happens if it has left the topology.
    ///
    /// # Cancel safety
    ///
    /// As [`select`](Self::select).
    pub async fn check(&mut self, server: ServerId) {
        self.carry_out(ScanInput::Check { server }).await;
    }

    /// Makes the checks that [reported errors](Self::handle_error) have requested, which otherwise
    /// the next selection makes first. Errors request checks only with
    /// `singleThreadedImmediateCheck`.
    ///
    /// # Cancel safety
    ///
    /// As [`select`](Self::select).
    pub async fn settle(&mut self) {
        self.carry_out(ScanInput::Settle).await;
    }

    /// Closes all connections and publishes the last events. Dropping the topology does the same.
    pub fn close(&mut self) {
        if self.machine.is_closed() {
            return;
        }
        self.apply(Input::Close, None);
        self.events.close();
        self.deliver();
    }

    /// Runs the scan machine from `input` until it has no more effects.
    async fn carry_out(&mut self, input: ScanInput) {
        if !self.machine.is_closed() {
            let mut next = Some(self.tell(input));
            while let Some(effect) = next {
                next = self.execute(effect).await;
            }
        }
        self.deliver();
    }

    /// Executes one asynchronous effect and returns the next effect; `None` for any other effect.
    async fn execute(&mut self, effect: ScanEffect) -> Option<ScanEffect> {
        let input = match effect {
            ScanEffect::Check { server } => ScanInput::Checked {
                retry: self.check_server(server).await,
            },
            ScanEffect::SleepUntil(instant) => {
                self.io.clock.sleep_until(instant).await;
                ScanInput::Awake
            }
            ScanEffect::Probe { server } => ScanInput::Probed {
                alive: self.probe(server).await,
            },
            ScanEffect::Rest
            | ScanEffect::Choose
            | ScanEffect::Select { .. }
            | ScanEffect::Fail(_) => return None,
        };
        Some(self.tell(input))
    }

    fn tell(&mut self, input: ScanInput) -> ScanEffect {
        let now = self.now();
        self.scan.handle(now, self.machine.description(), input)
    }

    fn now(&self) -> Instant {
        self.io.clock.now()
    }

    /// Ends a call: delivers the events to the sink and re-raises the panic of a pool.
    fn deliver(&mut self) {
        if let Some(sink) = &self.sink {
            self.events.drain_now(&**sink);
        }
        std::mem::take(&mut self.panic).resume();
    }
}

impl Drop for ScanTopology {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for ScanTopology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanTopology")
            .field("id", &self.id())
            .field("description", self.description())
            .field("last_scan", &self.last_scan())
            .finish_non_exhaustive()
    }
}
