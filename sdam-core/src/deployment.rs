//! The state machine behind a client's view of a deployment: its topology, checks, round-trip times
//! and SRV polling.

mod inline;
mod interface;
mod scan;
mod server;
mod silence;
mod srv;
#[cfg(test)]
mod tests;
mod topology;
mod trial;

use alloc::{boxed::Box, sync::Arc};
use core::time::Duration;

use smallvec::SmallVec;

pub use self::interface::{
    ConnId, Input, Output, Outputs, RecordedInput, Role, ScanFailure, ScanRequest, ScanSetup,
    Setup, Timer,
};
use self::{
    inline::Inline,
    scan::Scans,
    server::{Server, Servers},
    silence::{Evidence, Host},
    srv::SrvPolling,
    topology::Topology,
};
use crate::{
    address::ServerAddress,
    error::{Error, ErrorOutcome},
    event::EventKind,
    hello::HelloReply,
    ids::{Generation, ObjectId, ServerId},
    monitor::{Check, MonitorConfig, Trip, Waiting},
    options::{Detector, Options, Srv},
    report::ErrorReport,
    rng::Rng,
    server::Rtt,
    time::Instant,
    topology::TopologyDescription,
};

/// A client's view of a deployment, which holds all state and makes every decision.
///
/// It performs no I/O, never fails and never panics. [`handle`](Self::handle) takes an input, which
/// describes what has happened, and returns the actions for the caller, in order. Time, randomness
/// and replies are passed as arguments.
///
/// Its parts are independent of each other: the topology, the checks, measurements and round-trip
/// times of each server, and the polling of an SRV record. Each part writes its actions into the
/// [`Outputs`] and returns the information that other parts need.
///
/// # Contract
///
/// - The caller performs all outputs of a call in order, before those of the next call.
/// - The caller answers each [`Connect`](Output::Connect), [`Send`](Output::Send) and
///   [`Read`](Output::Read) once, unless [`Disconnect`](Output::Disconnect) comes first. A late
///   answer may still be passed, but has no effect.
/// - After each call, the caller reads the deadlines of the affected servers again
///   ([`deadline_of`](Self::deadline_of)): the server of the input, those of [`Wake`](Output::Wake)
///   and new ones. A caller with a single timer reads [`deadline`](Self::deadline).
/// - At a deadline the caller first passes the answers that have arrived, then
///   [`Due`](Input::Due).
///
/// `now` never decreases from one call to the next. Instants within inputs may be earlier, because
/// the transport reads the clock at the moment when bytes are written or arrive. These instants
/// determine round-trip times, the durations of heartbeats, and whether a reply was late, so time
/// lost to locks and late wake-ups is not measured. Inconsistent instants are clamped.
///
/// A check begins only in a call that handles its server's timer or one of its server's
/// connections. Any other call that requests a check merely brings that timer forward. As a result,
/// only `Open`, `Hosts`, `LookedUp` and `Close` take time proportional to the number of servers.
#[doc(alias("SDAM", "Server Monitoring"))]
#[derive(Clone, Debug)]
pub struct Deployment {
    topology: Topology,
    servers: Servers,
    evidence: Evidence,
    config: Arc<MonitorConfig>,
    srv: Option<Box<SrvPolling>>,
    /// `srvMaxHosts`.
    max_hosts: usize,
    /// The maximum deviation of a round-trip measurement from its scheduled time.
    slack: Duration,
    rng: Rng,
    /// The seed of `rng`.
    seed: u64,
    /// True if inputs and measurements are emitted as events.
    records: bool,
    /// The state of inline mode; `None` for a client with background tasks.
    inline: Option<Box<Inline>>,
}

impl Deployment {
    /// Creates a deployment that is not open yet. `options` should be validated.
    pub fn new(options: impl Into<Arc<Options>>, config: Arc<MonitorConfig>, rng: Rng) -> Self {
        let options = options.into();
        Self {
            max_hosts: options.srv.as_ref().map_or(0, Srv::max_hosts),
            topology: Topology::new(options),
            servers: Servers::new(Host::new(config.detector)),
            evidence: Evidence::default(),
            srv: None,
            slack: config.heartbeat_frequency / 10,
            config,
            seed: rng.seed(),
            rng,
            records: false,
            inline: None,
        }
    }

    /// Enables inline mode, for a client without background tasks: servers are checked only on
    /// [request](Input::Scan), one at a time (SDAM: "Single-threaded monitoring"). Each request
    /// leads to checks, waits, look-ups of the SRV record, server choices and probes, until it is
    /// [finished](Output::Finish). There is one timer, [`Timer::Scan`].
    ///
    /// A caller may abandon a request and begin another one. The check or probe in progress is then
    /// finished first, and the scan resumes where it stopped. If the caller leaves a check
    /// unattended until after its deadline, the check is repeated, unless its answer has already
    /// arrived.
    ///
    /// Operations share the connections of the checks, so clearing a server's pool also closes the
    /// server's connection, unless the clear was caused by the server's own check.
    #[must_use]
    pub fn with_scans(mut self, options: &Options) -> Self {
        let rng = self.rng.fork();
        self.servers = Servers::new(Host::default());
        self.inline = Some(Box::new(Inline::new(Scans::new(options, rng))));
        self
    }

    /// Polls the SRV record named in `options`, if there is one and the topology's type [allows
    /// polling](crate::topology::TopologyType::polls_srv) (Polling SRV Records for mongos
    /// Discovery). Without polling, the caller may look the record up itself and pass
    /// [`Input::Hosts`].
    #[must_use]
    pub fn with_srv_polling(mut self, options: &Options) -> Self {
        self.srv = SrvPolling::new(options, &self.config).map(Box::new);
        self
    }

    /// Emits all inputs as events ([`EventKind::Input`]), so that they can be
    /// [replayed](Self::restored). Also emits measured round-trip times
    /// ([`EventKind::RttMeasured`]).
    #[must_use]
    pub fn with_recorded_inputs(mut self) -> Self {
        self.records = true;
        self
    }

    /// Handles an input that occurred at `now`, and returns the outputs.
    pub fn handle(&mut self, now: Instant, input: Input) -> Outputs {
        let mut outputs = Outputs::default();
        let out = &mut outputs;
        self.record(now, || input.clone(), out);
        let caller = caller(&input);
        match input {
            Input::Open => self.open(now, out),
            Input::Close => self.close(now, out),
            Input::Due { timer, wanted } => self.fire(now, timer, wanted, out),
            Input::Connected { conn } => self.connected(now, conn, out),
            Input::Reply { conn, sent, at, reply, more_to_come } => {
                let trip = Trip::new(sent, at, now);
                self.replied(now, conn, trip, reply, more_to_come, out);
            }
            Input::Failed { conn, at, error } => self.failed(now, (conn, at), error, out),
            Input::Deserted { server } => self.deserted(now, server, out),
            Input::CheckRequested { server } => {
                self.with(server, |own| own.check.request(now));
            }
            Input::Scan(request) => self.request(now, request, out),
            Input::Chosen { server, idle } => {
                self.step(now, out, |scans, view| scans.chosen(view, server, idle));
            }
            Input::Probed { server, outcome } => self.probed(now, server, outcome, out),
            Input::ConnectionLost { conn } => self.tell_check(conn, Check::connection_lost),
            Input::Authenticated { conn } => self.tell_check(conn, Check::authenticated),
            Input::Handshake { server, generation, reply } => {
                if let Ok(hello) = reply.hello {
                    let rtt = self.rtt(server);
                    let pool = (server, generation);
                    let news = self.topology.handshake(now, pool, hello, rtt, out);
                    self.follow(now, news, out);
                    self.answered_elsewhere(now, server, out);
                }
            }
            Input::ServiceConnectionClosed { server, service, generation } => {
                self.topology.service_connection_closed(server, service, generation);
            }
            Input::Error { server, report } => {
                self.error(now, server, &report, out);
            }
            Input::Late { server, sent } => self.late(server, sent),
            Input::Answered { server } => self.answered_elsewhere(now, server, out),
            Input::LookedUp(outcome) => self.looked_up(now, outcome, out),
            Input::Hosts(hosts) => self.hosts(now, &hosts, out),
        }
        self.servers.settle(caller, out);
        outputs
    }

    /// Handles an error from an operation or a pool on `server`, and returns its outcome.
    ///
    /// Any error may be reported; errors that are stale or say nothing about the server's state are
    /// ignored. A network error closes the server's monitoring connection and cancels its running
    /// check.
    pub fn handle_error(
        &mut self,
        now: Instant,
        server: ServerId,
        error: &ErrorReport,
    ) -> (ErrorOutcome, Outputs) {
        let mut out = Outputs::default();
        let input = || Input::Error { server, report: error.clone() };
        self.record(now, input, &mut out);
        let outcome = self.error(now, server, error, &mut out);
        self.servers.settle(None, &mut out);
        (outcome, out)
    }

    /// Returns the time at which the earliest timer is due, or `None` if no timer is set. The time
    /// may already have passed.
    ///
    /// `wanted` is true if selections are waiting; in that case, an idle server is checked sooner.
    pub fn deadline(&self, wanted: bool) -> Option<Instant> {
        self.deadlines(wanted).map(|(deadline, _)| deadline).min()
    }

    /// Returns the time at which `timer` is due, like [`deadline`](Self::deadline).
    pub fn deadline_of(&self, timer: Timer, wanted: bool) -> Option<Instant> {
        match timer {
            Timer::Server(_) if self.inline.is_some() => None,
            Timer::Server(server) => self.servers.get(server)?.deadlines().when(wanted),
            Timer::Srv => self.next_look_up(),
            Timer::Scan => self.next_step(),
        }
    }

    /// Returns the timer with the earliest deadline, if it is due at `now`.
    pub fn due(&self, now: Instant, wanted: bool) -> Option<Timer> {
        let (deadline, timer) = self.deadlines(wanted).min()?;
        (deadline <= now).then_some(timer)
    }

    /// Returns the current description of the topology.
    pub fn description(&self) -> &Arc<TopologyDescription> {
        self.topology.description()
    }

    /// Returns the current generation of the server's pool, or of `service` behind a load balancer.
    /// `None` if the server has left the topology.
    pub fn generation(&self, server: ServerId, service: Option<ObjectId>) -> Option<Generation> {
        self.topology.generation(server, service)
    }

    /// Returns the failure detector; `None` in inline mode, or if none is configured.
    pub fn detector(&self) -> Option<Detector> {
        self.servers.host().detector
    }

    /// Returns the server's round-trip times, as measured by its checks and pings.
    pub fn rtt(&self, server: ServerId) -> Option<Rtt> {
        self.servers.get(server)?.rtt.rtt()
    }

    /// Returns whether the topology was closed.
    pub fn is_closed(&self) -> bool {
        self.topology.is_closed()
    }

    /// Adds a sample to the server's round-trip times.
    fn measured(&mut self, server: ServerId, sample: Duration, out: &mut Outputs) {
        let records = self.records;
        let Some(own) = self.servers.get_mut(server) else {
            return;
        };
        own.rtt.add(sample);
        if let Some(rtt) = own.rtt.rtt().filter(|_| records) {
            let address = own.check.address.clone();
            out.emit(EventKind::RttMeasured { server, address, rtt });
        }
    }

    fn open(&mut self, now: Instant, out: &mut Outputs) {
        if let Some(srv) = &mut self.srv {
            srv.open(now);
        }
        let news = self.topology.open(out);
        let seeds: SmallVec<[ServerId; 4]> =
            news.opened.iter().map(|(server, _)| *server).collect();
        self.follow(now, news, out);
        // Spreads the first checks of the seeds over time.
        for server in seeds {
            let delay = self.random_delay();
            if !delay.is_zero() {
                self.with(server, |own| own.check.postpone(now + delay));
            }
        }
    }

    fn close(&mut self, now: Instant, out: &mut Outputs) {
        if let Some(news) = self.topology.close(out) {
            self.follow(now, news, out);
            out.emit(EventKind::TopologyClosed);
        }
    }

    fn fire(&mut self, now: Instant, timer: Timer, wanted: bool, out: &mut Outputs) {
        match timer {
            Timer::Server(server) => self.server_due(now, server, wanted, out),
            Timer::Srv if self.next_look_up().is_some_and(|next| next <= now) => {
                self.look_up(now, out);
            }
            Timer::Srv => {}
            Timer::Scan => self.request_due(now, out),
        }
    }

    /// Handles the deadline of a server.
    fn server_due(&mut self, now: Instant, server: ServerId, wanted: bool, out: &mut Outputs) {
        if self.inline.is_none() {
            self.note_stall(now, server);
            // Overdue answers are noticed before time-outs are handled, because a time-out ends
            // requests whose answers may be overdue.
            self.await_answer(now, server, out);
            self.judge(now, server, out);
        }
        let known = self.is_known(server);
        let Some(own) = self.servers.get_mut(server) else {
            return;
        };
        // Uses the current value of `wanted`, so a selection that has already ended does not cause
        // a check.
        if wanted && own.check.earliest().is_some_and(|earliest| earliest <= now) {
            own.check.request(now);
        }
        let outcome = own.check.due(now, known, out);
        own.ping.due(now, out);
        own.probe.due(now, out);
        if let Some(outcome) = outcome {
            self.report(now, server, outcome, out);
        }
        self.proceed(now, server, out);
    }

    fn connected(&mut self, now: Instant, conn: ConnId, out: &mut Outputs) {
        let Some(own) = self.awaiting(conn, Waiting::Connection) else {
            return;
        };
        match conn.role {
            Role::Check => own.check.connected(now, out),
            Role::Ping => own.ping.connected(now, out),
            Role::Probe => own.probe.connected(now, out),
        }
        self.proceed(now, conn.server, out);
    }

    fn replied(
        &mut self,
        now: Instant,
        conn: ConnId,
        trip: Trip,
        reply: HelloReply,
        more_to_come: bool,
        out: &mut Outputs,
    ) {
        let known = self.is_known(conn.server);
        if self.awaiting(conn, Waiting::Reply).is_none() {
            return;
        }
        // The reply to a check may make the server known.
        let may_be_known = known || conn.role == Role::Check;
        self.answered(now, (conn.server, trip.at), may_be_known, out);
        let Some(own) = self.servers.get_mut(conn.server) else {
            return;
        };
        match conn.role {
            Role::Check => {
                let sample = own.check.sample(trip);
                match own.check.reply(now, known, trip, reply, more_to_come, out) {
                    Some(outcome) => {
                        if let (Some(sample), Ok(_)) = (sample, &outcome) {
                            self.measured(conn.server, sample, out);
                        }
                        self.report(now, conn.server, outcome, out);
                    }
                    // The check is repeated, so this reply does not make the server known.
                    None => own.clear_suspicion(now, known, out),
                }
            }
            Role::Ping => {
                let hello = reply.hello.as_deref().ok();
                if let Some(sample) = own.ping.reply(now, trip, hello, out) {
                    self.measured(conn.server, sample, out);
                }
            }
            // Any answer, including an error, has already ended the probe.
            Role::Probe => {}
        }
        self.retry(now, out);
        self.proceed(now, conn.server, out);
    }

    fn failed(
        &mut self,
        now: Instant,
        (conn, at): (ConnId, Instant),
        error: Error,
        out: &mut Outputs,
    ) {
        let known = self.is_known(conn.server);
        let is_suspended = self.is_suspended();
        let Some(own) = self.awaiting(conn, None) else {
            return;
        };
        match conn.role {
            Role::Check if is_suspended && error.is_timeout() => {
                self.abandon(now, conn.server, out);
            }
            Role::Check => {
                if let Some(outcome) = own.check.failed(now, known, at, error, out) {
                    self.report(now, conn.server, outcome, out);
                }
            }
            Role::Ping => own.ping.failed(now, out),
            Role::Probe => own.probe.failed(now, out),
        }
        self.proceed(now, conn.server, out);
    }

    fn hosts(&mut self, now: Instant, hosts: &[ServerAddress], out: &mut Outputs) {
        let description = self.topology.description();
        let hosts = description.sample_hosts(hosts, self.max_hosts, &mut self.rng);
        let news = self.topology.hosts(now, &hosts, out);
        self.follow(now, news, out);
    }

    fn deserted(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        if let Some(own) = self.servers.get_mut(server) {
            own.stop(now, "the runtime dropped the task that checks the server", out);
            let news = self.topology.monitor_died(now, server, out);
            self.follow(now, news, out);
        }
    }

    fn proceed(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        if self.inline.is_some() {
            self.go_on(now, out);
        } else {
            let delay = self.random_delay();
            self.with(server, |own| own.proceed(now, delay, out));
        }
    }

    /// Calls `tell` with the check loop that uses `conn`, if there is one.
    fn tell_check(&mut self, conn: ConnId, tell: impl FnOnce(&mut Check)) {
        if let Some(own) = self.servers.get_mut(conn.server).filter(|own| own.check.conn() == conn)
        {
            tell(&mut own.check);
        }
    }

    fn deadlines(&self, wanted: bool) -> impl Iterator<Item = (Instant, Timer)> + '_ {
        let server = move |server: &Server| {
            let deadline = server.deadlines().when(wanted)?;
            Some((deadline, Timer::Server(server.id)))
        };
        let has_tasks = self.inline.is_none();
        let others = [
            self.next_look_up().map(|instant| (instant, Timer::Srv)),
            self.next_step().map(|instant| (instant, Timer::Scan)),
        ];
        let servers = self.servers.iter().filter(move |_| has_tasks);
        servers.filter_map(server).chain(others.into_iter().flatten())
    }

    /// Returns whether the server's type is known from a check or from the handshake of a pooled
    /// connection: it is neither Unknown nor PossiblePrimary.
    fn is_known(&self, server: ServerId) -> bool {
        self.topology.is_known(server)
    }

    /// Returns the server if it awaits `answer` on `conn`. If `answer` is `None`, any kind of
    /// answer counts.
    fn awaiting(
        &mut self,
        conn: ConnId,
        answer: impl Into<Option<Waiting>>,
    ) -> Option<&mut Server> {
        let answer = answer.into();
        self.servers.get_mut(conn.server).filter(|server| {
            let own = server.awaits(conn);
            own.is_some() && (answer.is_none() || own == answer)
        })
    }

    fn with(&mut self, server: ServerId, act: impl FnOnce(&mut Server)) {
        if let Some(own) = self.servers.get_mut(server) {
            act(own);
        }
    }
}

/// Returns the server whose task passes `input` and then reads the server's deadline.
fn caller(input: &Input) -> Option<ServerId> {
    match input {
        Input::Due { timer: Timer::Server(server), .. } | Input::Deserted { server } => {
            Some(*server)
        }
        _ => input.conn().map(|conn| conn.server),
    }
}

/// Writes keys that identify the states of a deployment, for state-space searches.
#[cfg(feature = "model")]
mod key {
    use core::hash::{Hash, Hasher};

    use super::Deployment;
    use crate::time::Instant;

    impl Deployment {
        /// Writes all state that determines the behavior of the deployment from `now` on.
        ///
        /// Instants are written relative to `now`, so that equal states at different times have
        /// equal keys. The key omits server ids, connection numbers, the values of generations and
        /// round-trip times, and error messages, because no rule depends on them. It also omits the
        /// random order in which a scan checks servers of equal rank. It does not contain the
        /// number of checks that followed each other without a pause, but only whether that number
        /// has reached its limit.
        pub fn write_key(&self, now: Instant, hasher: &mut impl Hasher) {
            self.topology.write_key(hasher);
            // Servers are sorted by address, so the key does not depend on the order in which they
            // were added.
            for described in self.description().servers() {
                let Some(server) = self.servers.get(described.id) else {
                    continue;
                };
                server.check.write_key(now, hasher);
                server.ping.write_key(now, hasher);
                server.rtt.rtt().is_some().hash(hasher);
                // Servers are never suspected in inline mode.
                if self.inline.is_none() {
                    self.write_suspicion(now, server, hasher);
                }
                if self.detector().is_some() {
                    server.probe.write_key(now, hasher);
                }
            }
            if let Some(srv) = &self.srv {
                srv.write_key(now, hasher);
            }
            if let Some(inline) = &self.inline {
                inline.write_key(now, self.description(), hasher);
            }
        }
    }
}
