//! Single-threaded mode: a topology without background work.

#[cfg(feature = "blocking")]
mod blocking;
mod check;
mod connection;

use std::{collections::BTreeMap, marker::PhantomData, sync::Arc, time::Duration};

use sdam_core::{
    deployment::{Deployment, Input, Output, ScanFailure, ScanRequest},
    hello::HelloRequest,
    ids::{Generation, ObjectId, ServerId},
    options::{ConfigError, Options, Warning},
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::sink::EventSink;
use sdam_select::{choose, criteria::Criteria, explain::Explanation, settings::Settings};
use sdam_transport::{
    handshake::DriverInfo,
    pool::{NoPools, PoolHandle, PoolHost as _},
    runtime::Backend,
};

#[cfg(feature = "blocking")]
pub use self::blocking::BlockingTopology;
use self::connection::Member;
pub use self::connection::ScanConnection;
use crate::{
    engine::{
        Background, DeferredPanic, Engine,
        snapshot::{Snapshot, SnapshotGuard},
    },
    select::{
        Limit, LimitSource, SelectionEvents,
        error::SelectionError,
        selected::{Selected, SelectedServer},
    },
    sync::Mutex,
    topology::TopologyBuilder,
};

/// A deployment whose servers are checked only when an operation needs a server.
///
/// Servers are checked inline with operations: there is no task and no spawner. A program that
/// selects no server performs no I/O (SDAM: "Single-threaded monitoring"). This type uses the same
/// engine as [`Topology`](crate::Topology). The engine's lock is contended only if pools report
/// from other threads. Futures block where the [`Backend`] blocks; with a non-blocking `Backend`,
/// any executor works.
///
/// # How long a selection takes
///
/// With `serverSelectionTryOnce` (the default) a selection may take as long as one scan, which
/// begins at least 500 ms after the previous one. `serverSelectionTimeoutMS` and `timeoutMS` then
/// have no effect. Without `serverSelectionTryOnce`, the limit is `serverSelectionTimeoutMS`, or
/// `timeoutMS` if that is shorter and not zero. A selection fails at most 500 ms before that limit,
/// and at most the duration of one scan after it.
///
/// A scan checks one server after the other. Each check takes at most `connectTimeoutMS` to connect
/// and as long again to receive the reply. If the server was known before, a failed check is
/// repeated once, so the check takes at most twice that time. A server that did not answer is
/// skipped for the next 5 seconds. DNS look-ups of host names may take additional time if the
/// system does not limit them.
///
/// # SRV records
///
/// A `mongodb+srv` string has to be resolved first ([`resolve`](crate::resolve)). If its SRV record
/// is polled and a look-up is due, the next scan begins with that look-up (H-13), which takes at
/// most `connectTimeoutMS`.
///
/// # Connections
///
/// There is one connection to each server. Checks use it, and operations should use it, too: see
/// [`connection`](Self::connection). The builder's connection pools are still created, cleared and
/// closed. Errors reported by pools are applied at once, but the connections of checks are closed
/// only during the next call to the topology.
///
/// # Authentication
///
/// A connection is authenticated when the first operation [needs](Self::connect) it, by the
/// builder's [authenticator](TopologyBuilder::authenticator) or `authenticate`. Checks need no
/// authentication, and arbiters have no users (Authentication: "Authentication Handshake").
///
/// # Events
///
/// Events are delivered to the sink in order, at the end of each call and before it returns. A slow
/// sink therefore blocks the caller.
pub struct ScanTopology<P = NoPools> {
    scanner: Scanner,
    pool: PhantomData<fn() -> P>,
}

impl<P: PoolHandle> TopologyBuilder<P> {
    /// Builds a single-threaded topology without background tasks. Servers are checked inline with
    /// selections, using only `backend`. Performs no I/O itself.
    ///
    /// # Errors
    ///
    /// If the options contradict each other.
    pub fn scan(self, mut backend: Backend) -> Result<ScanTopology<P>, ConfigError> {
        let mut prepared = self.prepare(&mut backend, Options::single_threaded_warnings)?;
        // H-16: servers must not stream, because nothing would read streamed replies between calls.
        prepared.config.streaming = false;
        prepared.config.heartbeat_frequency = prepared.options.scan_frequency();
        let settings = prepared.settings(Settings::single_threaded);
        let sink = prepared.sink.take();
        let background = Background::Caller(Mutex::new(DeferredPanic::default()));
        let engine = Engine::new(prepared, settings, (backend, None), background);
        let mut scanner = Scanner { engine, members: BTreeMap::new(), sink };
        scanner.engine.handle(Input::Open);
        scanner.engine.publish_warnings();
        scanner.deliver();
        Ok(ScanTopology { scanner, pool: PhantomData })
    }
}

impl<P: PoolHandle> ScanTopology<P> {
    /// Selects a server. Scans first if a scan is due or an error requires one.
    ///
    /// See [how long a selection takes](Self#how-long-a-selection-takes).
    ///
    /// # Errors
    ///
    /// If no suitable server was found, or if none can be found because the topology is
    /// incompatible or closed, or the criteria are invalid.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. The check in progress is then suspended, and the next call that
    /// checks servers continues it.
    pub async fn select(
        &mut self,
        criteria: &Criteria,
    ) -> Result<SelectedServer<P>, SelectionError> {
        let limit = Limit::configured(&self.scanner.engine.common.options);
        let selected = self.scanner.select(criteria, limit).await?;
        Ok(SelectedServer::new(selected))
    }

    /// Selects a server like [`select`](Self::select), but with the given timeout if that is
    /// shorter than `serverSelectionTimeoutMS`. The timeout replaces the client's `timeoutMS`.
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
    ) -> Result<SelectedServer<P>, SelectionError> {
        let limit = Limit::of_call(self.options(), timeout);
        let selected = self.scanner.select(criteria, limit).await?;
        Ok(SelectedServer::new(selected))
    }

    /// Explains for each known server why a selection would choose or reject it.
    pub fn explain(&self, criteria: &Criteria) -> Explanation {
        self.scanner.engine.explain(criteria)
    }

    /// Checks all servers except those that failed within the last 5 seconds. Waits until 500 ms
    /// have passed since the last scan.
    ///
    /// # Cancel safety
    ///
    /// As [`select`](Self::select).
    pub async fn scan(&mut self) {
        self.scanner.carry_out(ScanRequest::Scan).await;
    }

    /// Checks one server, no sooner than 500 ms after its last check (SDAM: "Checking a single
    /// server"). Does nothing if the server has left the topology.
    ///
    /// # Cancel safety
    ///
    /// As [`select`](Self::select).
    pub async fn check(&mut self, server: ServerId) {
        self.scanner.carry_out(ScanRequest::Check { server }).await;
    }

    /// Makes the checks that [reported errors](Self::handle_error) have requested. Without this
    /// call, the next selection begins with these checks. Errors request checks only with
    /// `singleThreadedImmediateCheck`.
    ///
    /// # Cancel safety
    ///
    /// As [`select`](Self::select).
    pub async fn settle(&mut self) {
        self.scanner.carry_out(ScanRequest::Settle).await;
    }

    /// Returns the current snapshot.
    pub fn snapshot(&self) -> SnapshotGuard {
        SnapshotGuard(self.scanner.engine.published.load())
    }

    /// Returns the current topology description.
    pub fn description(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.snapshot().description())
    }

    /// Returns whether the next selection begins with a scan (SDAM: "stale"); false behind a load
    /// balancer.
    pub fn is_stale(&self) -> bool {
        let engine = &self.scanner.engine;
        engine.read(|deployment| deployment.is_stale(engine.now()))
    }

    /// Returns the time at which the last scan ended, as measured by the clock of the `Backend`.
    pub fn last_scan(&self) -> Option<Instant> {
        self.scanner.last_scan()
    }

    /// Returns the current generation of the server's connections, or of `service` behind a load
    /// balancer. `None` if the server has left the topology.
    pub fn generation(&self, server: ServerId, service: Option<ObjectId>) -> Option<Generation> {
        self.scanner.engine.generation(server, service)
    }

    /// Returns the topology's id, which all its events carry.
    pub fn id(&self) -> ObjectId {
        self.scanner.engine.events.topology()
    }

    /// Returns the options that the topology was started with.
    pub fn options(&self) -> &Options {
        &self.scanner.engine.common.options
    }

    /// Returns the configuration warnings. They concern problems in the connection string that were
    /// worked around, and options that have no effect on a single-threaded client. Each was also
    /// [published](sdam_core::event::EventKind::ConfigWarning) when the topology opened.
    pub fn warnings(&self) -> &[Warning] {
        &self.scanner.engine.common.warnings
    }

    /// Returns the first message of a new connection, with the client metadata, the declared API
    /// and the framing that the options require.
    pub fn hello(&self) -> HelloRequest {
        self.scanner.engine.hello()
    }

    /// Appends a wrapping library to the client metadata, and returns false if it was already
    /// appended. Only connections opened later send it (Handshake: "Supporting wrapping
    /// libraries").
    ///
    /// # Errors
    ///
    /// If one of the library's strings contains a `|`, or the metadata is a [driver's
    /// document](TopologyBuilder::client_document); the metadata is then unchanged.
    pub fn append_metadata(&self, library: DriverInfo) -> Result<bool, ConfigError> {
        self.scanner.engine.common.metadata.append(library)
    }

    /// Closes all connections and publishes the last events. Dropping the topology does the same.
    ///
    /// Does not wait for the pools' connections and commands that are still in progress: their last
    /// events are counted as dropped.
    pub fn close(&mut self) {
        self.scanner.close();
    }
}

/// A [`ScanTopology`] without its pool type.
struct Scanner {
    engine: Arc<Engine>,
    /// The servers, synchronised with the engine.
    members: BTreeMap<ServerId, Member>,
    sink: Option<Arc<dyn EventSink>>,
}

impl Scanner {
    /// Passes a request to the state machine, and carries out its outputs until the request is
    /// complete.
    async fn carry_out(&mut self, request: ScanRequest) {
        self.prepare();
        if !self.is_closed() {
            let mut output = self.tell(Input::Scan(request));
            while !matches!(output, Some(Output::Finish(_))) {
                output = self.advance(output).await;
            }
        }
        self.deliver();
    }

    /// Carries out a probe or a look-up, or waits for the running check or the state machine's
    /// deadline. Returns the next output.
    async fn advance(&mut self, output: Option<Output>) -> Option<Output> {
        let input = match output {
            Some(Output::Probe { server }) => Some(self.probe(server).await),
            output => self.engine.look_up(output).await,
        };
        let input = match input {
            Some(input) => input,
            None => self.answer().await,
        };
        self.tell(input)
    }

    /// Passes an input to the engine, and returns the output to carry out.
    fn tell(&mut self, input: Input) -> Option<Output> {
        let output = self.engine.ask(input);
        self.follow();
        output
    }

    /// Begins a call: applies the pools' reports, and closes the connections of operations that
    /// were dropped.
    fn prepare(&mut self) {
        self.follow();
        let is_abandoned = |member: &mut Member| member.is_abandoned().then_some(member.id());
        let abandoned: Vec<_> = self.members.values_mut().filter_map(is_abandoned).collect();
        for server in abandoned {
            self.lose_connection(server);
        }
    }

    /// Synchronises the members with the engine: adds and removes members, and carries out the
    /// orders for their connections.
    fn follow(&mut self) {
        for server in self.engine.published.load().servers.iter() {
            let new = || Member::new(Arc::clone(server));
            if !server.orders.is_ended() {
                self.members.entry(server.id()).or_insert_with(new);
            }
        }
        let engine = &self.engine;
        self.members.retain(|_, member| member.follow(engine));
    }

    fn now(&self) -> Instant {
        self.engine.now()
    }

    fn last_scan(&self) -> Option<Instant> {
        self.engine.read(Deployment::last_scan)
    }

    fn is_closed(&self) -> bool {
        self.engine.published.load().closed
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.engine.published.load_full()
    }

    fn close(&mut self) {
        if !self.is_closed() {
            self.tell(Input::Close);
            self.engine.events.close();
            self.deliver();
        }
    }

    /// Ends a call: delivers the events to the sink and re-raises a pool's panic.
    fn deliver(&mut self) {
        if let Some(sink) = &self.sink {
            self.engine.events.drain_now(&**sink);
        }
        self.engine.take_panic().resume();
    }
}

/// The events of one selection.
struct Reported<'s> {
    events: SelectionEvents<'s>,
    /// The deadline of the selection; `None` with `serverSelectionTryOnce`.
    deadline: Option<Instant>,
    waited: bool,
}

impl Reported<'_> {
    /// Publishes that the selection is waiting, but at most once for each selection (K-8).
    fn waiting(&mut self, engine: &Engine) {
        if !std::mem::replace(&mut self.waited, true) {
            let now = engine.now();
            self.events.waiting(self.deadline.map(|deadline| deadline.since(now)));
        }
    }
}

impl Scanner {
    async fn select(
        &mut self,
        criteria: &Criteria,
        limit: Limit,
    ) -> Result<Selected, SelectionError> {
        self.prepare();
        // Cloned because the events outlive the mutable borrows of `self` below.
        let engine = Arc::clone(&self.engine);
        let try_once = engine.common.options.server_selection_try_once.unwrap_or(true);
        let events = SelectionEvents::begin(engine.selection_context(), criteria);
        let mut reported = Reported {
            deadline: (!try_once).then(|| events.started + limit.timeout),
            events,
            waited: false,
        };
        let outcome = self.search(criteria, limit, &mut reported).await;
        let mut outcome = reported.events.end(outcome);
        self.deliver();
        // The history is recorded by a sink, so it contains the events of this call only after they
        // have been delivered.
        if let (Err(SelectionError::Timeout(timeout)), Some(history)) =
            (&mut outcome, &engine.history)
        {
            timeout.history = history.transitions();
        }
        outcome
    }

    async fn search(
        &mut self,
        criteria: &Criteria,
        limit: Limit,
        reported: &mut Reported<'_>,
    ) -> Result<Selected, SelectionError> {
        if self.is_closed() {
            return Err(SelectionError::Closed);
        }
        let started = self.now();
        let timeout = limit.timeout;
        let mut output = self.tell(Input::Scan(ScanRequest::Select { timeout }));
        loop {
            output = match output {
                Some(Output::Choose) => self.attempt(criteria, reported)?,
                Some(Output::Finish(Ok(server))) => {
                    let selected = server.and_then(|server| self.selected(server, criteria));
                    return selected.ok_or(SelectionError::Closed);
                }
                Some(Output::Finish(Err(failure))) => {
                    return Err(self.failure(failure, criteria, limit, started));
                }
                output => self.advance(output).await,
            };
        }
    }

    /// Makes one attempt to choose a server.
    fn attempt(
        &mut self,
        criteria: &Criteria,
        reported: &mut Reported<'_>,
    ) -> Result<Option<Output>, SelectionError> {
        let (server, idle) = self.choose(criteria)?;
        let next = self.tell(Input::Chosen { server, idle });
        // The wait is published even if no time is left (K-8).
        if server.is_none() && next != Some(Output::Finish(Err(ScanFailure::TriedOnce))) {
            reported.waiting(&self.engine);
        }
        Ok(next)
    }

    /// Chooses a suitable server. Returns the server, if there is one, and the time for which its
    /// connection has been idle.
    fn choose(
        &mut self,
        criteria: &Criteria,
    ) -> Result<(Option<ServerId>, Option<Duration>), SelectionError> {
        let (random, _) = self.engine.common.random();
        let snapshot = self.snapshot();
        let settings = &self.engine.common.settings;
        // There is only one operation at a time, so operation counts are irrelevant.
        let chosen = choose(&snapshot.description, settings, criteria, |_| 0, random)
            .map_err(SelectionError::InvalidCriteria)?;
        let now = self.now();
        let server = chosen.map(|chosen| chosen.server.id);
        let member = server.and_then(|server| self.members.get_mut(&server));
        Ok((server, member.and_then(|member| member.idle(now))))
    }

    fn selected(&self, server: ServerId, criteria: &Criteria) -> Option<Selected> {
        let topology = &self.snapshot().description;
        let description = topology.server_by_id(server)?;
        let (_, lane) = self.engine.common.random();
        let server = &self.members.get(&server)?.server;
        let settings = &self.engine.common.settings;
        Selected::new(server, description, topology, settings, criteria, lane)
    }

    fn failure(
        &self,
        failure: ScanFailure,
        criteria: &Criteria,
        limit: Limit,
        started: Instant,
    ) -> SelectionError {
        let limit = match failure {
            ScanFailure::Incompatible => {
                let description = Arc::clone(&self.snapshot().description);
                return SelectionError::Incompatible { description };
            }
            ScanFailure::Timeout => limit,
            ScanFailure::TriedOnce => Limit { source: LimitSource::TryOnce, ..limit },
        };
        self.engine.timed_out(criteria, limit, started)
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.close();
    }
}

sdam_core::opaque!(ScanTopology<P>, |this|
    id: this.scanner.engine.events.topology(),
    description: this.scanner.snapshot().description,
    last_scan: this.scanner.last_scan()
);
