//! Single-threaded mode: a topology without background work.
//!
//! Servers are checked inline with operations, so a program that selects no server does nothing at
//! all (SDAM: "Single-threaded monitoring").
//!
//! # How long a selection takes
//!
//! With `serverSelectionTryOnce` (the default) a selection may take as long as one scan, which
//! begins no sooner than 500 ms after the previous one, and neither `serverSelectionTimeoutMS` nor
//! `timeoutMS` has any effect.
//! Without it a selection fails between 500 ms before `serverSelectionTimeoutMS` has passed, or
//! `timeoutMS` if that is shorter and not zero, and the time of a scan after that.
//!
//! A scan checks one server after the other.
//! Each takes `connectTimeoutMS` for connecting and as much for its reply at most, and both once
//! more if it was known before; one that did not answer is skipped for the next 5 seconds.
//! Looking up host names comes on top where the system puts no limit to it.
//!
//! # SRV records
//!
//! No SRV record is looked up again before a scan (H-13), because this version looks up none: a
//! `mongodb+srv` string is a configuration error unless the program resolves it
//! ([`ConnectionString::resolved`](sdam_core::uri::ConnectionString::resolved)), and then the hosts
//! it names are those that the topology begins with and nothing more.

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

/// A deployment that is looked at when a server is needed.
///
/// It takes `&mut self` for whatever changes it: there is no lock, no task and no spawner.
/// The machines that decide everything are those of [`Topology`](crate::topology::Topology).
/// Futures block where the [`Io`] blocks; with an `Io` that does not, any executor will do.
///
/// # Connections
///
/// There is one connection to each server.
/// Checks are made on it, and operations are meant to use it, too: see [`channel`](Self::channel).
/// Connection pools that are given to the builder are commanded as ever.
///
/// # Events
///
/// The sink is called at the end of each call, in order, before the call returns.
/// An event sink that is slow makes its caller wait.
pub struct ScanTopology {
    options: Options,
    /// What the user should know about the options.
    warnings: Vec<Warning>,
    settings: Settings,
    /// How long selections wait that are not told how long.
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
    /// A topology without pools and sinks; see [`TopologyBuilder::scan`] for more. Performs no I/O.
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
        // H-16: nobody would read what a server streams.
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

    /// The id that all events of this topology carry.
    pub fn id(&self) -> ObjectId {
        self.machine.topology()
    }

    /// The options it was started with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What the user should know about the options: what was worked around in the connection
    /// string, and what has no effect on a single-threaded client. Each was also
    /// [published](sdam_core::event::EventKind::ConfigWarning) when the topology opened.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Appends a library that wraps this one to what connections tell servers about the client, and
    /// tells whether that changed anything: one that has been appended before is not appended
    /// again. Only connections that are opened later say so (Handshake: "Supporting wrapping
    /// libraries").
    ///
    /// # Errors
    ///
    /// One of the library's texts contains a `|`; then nothing is changed.
    pub fn append_metadata(&self, library: Library) -> Result<bool, InvalidMetadata> {
        self.introduction.append(library)
    }

    /// What a connection that is opened now says in its first hello; pools introduce theirs with
    /// the same.
    pub fn handshake(&self) -> Arc<Handshake> {
        self.introduction.handshake()
    }

    /// What is known now.
    pub fn description(&self) -> &Arc<TopologyDescription> {
        self.machine.description()
    }

    /// Whether the next selection begins with a scan (SDAM: "stale"); never behind a load balancer.
    pub fn is_stale(&self) -> bool {
        self.description().topology_type() != TopologyType::LoadBalanced
            && self.scan.is_stale(self.now())
    }

    /// When the newest scan ended, on the clock of the `Io`.
    pub fn last_scan(&self) -> Option<Instant> {
        self.scan.last_scan()
    }

    /// The generation of connections to `server` that are opened now; behind a load balancer, that
    /// of connections to `service`. `None` if the server has left the topology.
    pub fn generation(&self, server: ServerId, service: Option<ObjectId>) -> Option<Generation> {
        self.machine.generation(server, service)
    }

    /// Selects a server; scans before if that is due, and after a failure.
    ///
    /// How long that takes is told [above](self#how-long-a-selection-takes).
    ///
    /// # Errors
    ///
    /// If no suitable server was found, or waiting would be in vain: the topology is incompatible or
    /// closed, or the criteria can never be met.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. The check that is under way then rests until the next call that
    /// checks servers, which goes on with it.
    pub async fn select(&mut self, criteria: &Criteria) -> Result<ScanSelected, SelectionError> {
        self.select_limited(criteria, self.limit).await
    }

    /// Like [`select`](Self::select), but with this timeout if it is shorter than
    /// `serverSelectionTimeoutMS`. It takes the place of the client's `timeoutMS`.
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
        // It is told like any sink, so only now it knows what this call has done.
        if let (Err(SelectionError::Timeout(timeout)), Some(history)) =
            (&mut outcome, &self.history)
        {
            timeout.history = history.transitions();
        }
        outcome
    }

    /// Checks all servers but those that failed within the last 5 seconds, no sooner than 500 ms
    /// after the last scan.
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

    /// Makes the checks that [reported errors](Self::handle_error) have called for, which the next
    /// selection would begin with otherwise. There are some only with `singleThreadedImmediateCheck`.
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

    /// Does what needs no criteria, until nothing is left to do.
    async fn carry_out(&mut self, input: ScanInput) {
        if !self.machine.is_closed() {
            let mut next = Some(self.tell(input));
            while let Some(effect) = next {
                next = self.execute(effect).await;
            }
        }
        self.deliver();
    }

    /// Does one thing that takes time, and says what comes next; `None` if it is no such thing.
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

    /// Ends a call: tells the sink whatever has happened, and lets the panic of a pool go on.
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
