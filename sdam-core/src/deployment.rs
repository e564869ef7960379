//! The state machine of a client's view of a deployment: topology, checks, round-trip times and SRV
//! polling.

mod follow;
mod input;
#[cfg(feature = "model")]
mod key;
mod server;
mod srv;
#[cfg(test)]
mod tests;

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;

pub use self::input::{Input, Timer};
use self::{server::Server, srv::SrvPolling};
pub use crate::output::{ConnId, Output, Outputs, Role};
use crate::{
    address::ServerAddress,
    error::{Error, ErrorOutcome},
    hello::Hello,
    ids::{Generation, ObjectId, ServerId},
    machine::{self, TopologyMachine},
    monitor::{Check, MonitorConfig, Reply, Trip, Waiting},
    options::{Options, Srv},
    report::ErrorReport,
    rng::Rng,
    server::Rtt,
    time::Instant,
    topology::TopologyDescription,
};

/// A client's view of a deployment: all state, and every decision.
///
/// It performs no I/O, never fails and never panics. [`handle`](Self::handle) takes what has
/// happened, and returns what has to be done, in order. Time, randomness and replies are arguments.
///
/// Its parts do not know each other: the [`TopologyMachine`] judges what is learned about servers;
/// each server has its checks, its measurements and its round-trip times; the polling of an SRV
/// record has none of them. A part writes its actions into the [`Outputs`] and returns what others
/// have to know.
///
/// # Contract
///
/// - The caller performs all outputs of a call in order, before those of the next call.
/// - Each [`Connect`](Output::Connect), [`Send`](Output::Send) and [`Read`](Output::Read) is answered
///   once, unless [`Disconnect`](Output::Disconnect) comes first. An answer counts only while it is
///   outstanding, so a late one may be passed: it has no effect.
/// - After a call, the timers of the servers that it has concerned are read again
///   ([`deadline_of`](Self::deadline_of)). These are the server of the input, those of
///   [`Wake`](Output::Wake) and new ones. A caller with one timer for all reads
///   [`deadline`](Self::deadline).
/// - At a deadline the caller first passes the answers that have arrived, then
///   [`Due`](Input::Due).
///
/// There are two clocks. `now` never goes back from one call to the next. The instants in inputs are
/// read where bytes are written and have arrived. They decide samples of the round-trip time,
/// durations of heartbeats, and whether a reply was late, so neither a wait for a lock nor a late
/// wake-up is measured. Instants that do not fit are clamped.
///
/// A check begins only in calls for its own server, which are its timer and its connections. Another
/// call that requests one brings the timer forward. So only `Open`, `Hosts`, `LookedUp` and `Close`
/// take time for each server.
#[doc(alias("SDAM", "Server Monitoring"))]
#[derive(Clone, Debug)]
pub struct Deployment {
    topology: TopologyMachine,
    /// The monitored servers, sorted by id.
    servers: Vec<Server>,
    config: Arc<MonitorConfig>,
    srv: Option<SrvPolling>,
    /// `srvMaxHosts`.
    max_hosts: usize,
    /// The time by which a measurement of the round-trip time may be early or late.
    slack: Duration,
    rng: Rng,
    /// True if the topology's inputs are events.
    records: bool,
    /// True if operations use the connections of the checks, and the caller decides when a check
    /// begins.
    is_inline: bool,
}

impl Deployment {
    /// Creates a deployment that is not open yet. `options` should be validated. `topology` is the id
    /// that its events carry.
    pub fn new(
        options: &Options,
        config: Arc<MonitorConfig>,
        topology: ObjectId,
        rng: Rng,
    ) -> Self {
        Self {
            topology: TopologyMachine::new(options, topology),
            servers: Vec::new(),
            srv: None,
            max_hosts: options.srv.as_ref().map_or(0, Srv::max_hosts),
            slack: config.heartbeat_frequency / 10,
            config,
            rng,
            records: false,
            is_inline: false,
        }
    }

    /// Leaves it to the caller when a check begins, for a client without tasks: only with
    /// [`Due`](Input::Due), and never in the call that ends another check. Operations use the
    /// connections of the checks, so a clear of a server's pool closes that one, too, unless the
    /// server's own check has caused it.
    #[must_use]
    pub fn with_inline_checks(mut self) -> Self {
        self.is_inline = true;
        self
    }

    /// Polls the SRV record of `options`, if there is one and the topology's type
    /// [is polled](crate::topology::TopologyType::polls_srv) (Polling SRV Records for mongos
    /// Discovery). Without this call, a caller may look it up by its own means.
    #[must_use]
    pub fn with_srv_polling(mut self, options: &Options) -> Self {
        self.srv = SrvPolling::new(options, &self.config);
        self
    }

    /// Emits the inputs of the topology as events ([`Input`](crate::event::EventKind::Input)), so
    /// that it can be replayed.
    #[must_use]
    pub fn with_recorded_inputs(mut self) -> Self {
        self.records = true;
        self
    }

    /// Handles an input that occurred at `now`, and returns the outputs.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) -> Outputs {
        let mut out = Outputs::default();
        let out_mut = &mut out;
        match input {
            Input::Open => self.open(now, out_mut),
            Input::Close => self.apply(now, machine::Input::Close, out_mut),
            Input::Due { timer, wanted } => match timer {
                Timer::Server(server) => self.server_due(now, server, wanted, out_mut),
                Timer::Srv => self.look_up(now, out_mut),
            },
            Input::Connected { conn } => self.connected(now, conn, out_mut),
            Input::Reply {
                conn,
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
                self.replied(now, conn, reply, out_mut);
            }
            Input::Failed { conn, at, error } => self.failed(now, (conn, at), error, out_mut),
            Input::Deserted { server } => self.deserted(now, server, out_mut),
            Input::CheckRequested { server } => {
                if let Some(server) = self.server_mut(server) {
                    server.request_check(now, out_mut);
                }
            }
            Input::Abandoned { server } => {
                if let Some(server) = self.server_mut(server) {
                    server.check.abandon(now, out_mut);
                }
            }
            Input::ConnectionLost { conn } => {
                if let Some(check) = self.check_on(conn) {
                    check.connection_lost();
                }
            }
            Input::Authenticated { conn } => {
                if let Some(check) = self.check_on(conn) {
                    check.authenticated();
                }
            }
            Input::Handshake {
                server,
                generation,
                hello,
                reply,
            } => {
                let rtt = self.rtt(server);
                self.handshake(now, (server, generation, rtt), (hello, reply), out_mut);
            }
            Input::ServiceConnectionClosed {
                server,
                service,
                generation,
            } => {
                let input = machine::Input::ServiceConnectionClosed {
                    server,
                    service,
                    generation,
                };
                self.apply(now, input, out_mut);
            }
            Input::LookedUp(outcome) => self.looked_up(now, outcome, out_mut),
            Input::Hosts(hosts) => self.hosts(now, hosts, out_mut),
            Input::Played {
                server,
                outcome,
                rtt,
            } => self.played(now, server, outcome, rtt, out_mut),
        }
        out
    }

    /// Handles an error of an operation or of a pool on `server`, and returns its outcome.
    ///
    /// Any error may be reported. One that does not concern the server's state, or is older than what
    /// is known, changes nothing. A network error closes the server's monitoring connection and
    /// cancels its running check.
    pub fn handle_error(
        &mut self,
        now: Instant,
        server: ServerId,
        error: &ErrorReport,
    ) -> (ErrorOutcome, Outputs) {
        let mut out = Outputs::default();
        let outcome = self.apply_error(now, server, error, &mut out);
        (outcome, out)
    }

    /// Returns when the first of all timers is due; `None` for never. The instant may have passed
    /// already.
    ///
    /// `wanted` tells whether selections are waiting: an idle server is then checked sooner.
    pub fn deadline(&self, wanted: bool) -> Option<Instant> {
        self.deadlines(wanted).map(|(deadline, _)| deadline).min()
    }

    /// Returns when `timer` is due, like [`deadline`](Self::deadline).
    pub fn deadline_of(&self, timer: Timer, wanted: bool) -> Option<Instant> {
        match timer {
            Timer::Server(server) => self.server(server)?.deadline(wanted),
            Timer::Srv => self.next_look_up(),
        }
    }

    /// Returns the timer that has been due for the longest time at `now`, if there is one.
    pub fn due(&self, now: Instant, wanted: bool) -> Option<Timer> {
        let (deadline, timer) = self.deadlines(wanted).min()?;
        (deadline <= now).then_some(timer)
    }

    /// Returns the current description.
    pub fn description(&self) -> &Arc<TopologyDescription> {
        self.topology.description()
    }

    /// Returns the generation of connections that the server's pool opens now; behind a load
    /// balancer, that of connections to `service`. `None` if the server has left.
    pub fn generation(&self, server: ServerId, service: Option<ObjectId>) -> Option<Generation> {
        self.topology.generation(server, service)
    }

    /// Returns the server's round-trip times, as measured by its checks and pings.
    pub fn rtt(&self, server: ServerId) -> Option<Rtt> {
        self.server(server)?.rtt.rtt()
    }

    /// Returns the id of the topology.
    pub fn topology(&self) -> ObjectId {
        self.topology.topology()
    }

    /// Returns whether the topology was closed.
    pub fn is_closed(&self) -> bool {
        self.topology.is_closed()
    }

    fn open(&mut self, now: Instant, out: &mut Outputs) {
        if let Some(srv) = &mut self.srv {
            srv.open(now);
        }
        self.apply(now, machine::Input::Open, out);
    }

    /// Acts at the deadline of a server.
    fn server_due(&mut self, now: Instant, server: ServerId, wanted: bool, out: &mut Outputs) {
        let known = self.is_known(server);
        let Some(own) = self.server_mut(server) else {
            return;
        };
        // A level and no message: selections that are served before a check may begin leave no
        // request behind.
        if wanted && own.check.earliest().is_some_and(|earliest| earliest <= now) {
            own.check.request(now);
        }
        let report = own.check.due(now, known, out);
        own.ping.due(now, out);
        if let Some(report) = report {
            self.report(now, server, report, out);
        }
        self.proceed(now, server, out);
    }

    fn connected(&mut self, now: Instant, conn: ConnId, out: &mut Outputs) {
        let Some(own) = self.awaiting(conn, Waiting::Connection) else {
            return;
        };
        match conn.role {
            Role::Check => own.check.connected(now, conn, out),
            Role::Ping => own.ping.connected(now, conn, out),
        }
        self.proceed(now, conn.server, out);
    }

    fn replied(&mut self, now: Instant, conn: ConnId, reply: Reply, out: &mut Outputs) {
        let known = self.is_known(conn.server);
        let Some(own) = self.awaiting(conn, Waiting::Reply) else {
            return;
        };
        match conn.role {
            Role::Check => {
                if let Some(report) = own.check.reply(now, known, conn, reply, out) {
                    self.report(now, conn.server, report, out);
                }
            }
            Role::Ping => {
                let hello = reply.hello.as_ref().ok();
                if let Some(sample) = own.ping.reply(now, conn, reply.trip, hello, out) {
                    own.rtt.add(sample);
                }
            }
        }
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
        let Some(own) = self.awaiting(conn, None) else {
            return;
        };
        match conn.role {
            Role::Check => {
                if let Some(report) = own.check.failed(now, known, (conn, at), error, out) {
                    self.report(now, conn.server, report, out);
                }
            }
            Role::Ping => own.ping.failed(now, conn, out),
        }
        self.proceed(now, conn.server, out);
    }

    fn handshake(
        &mut self,
        now: Instant,
        (server, generation, rtt): (ServerId, Generation, Option<Rtt>),
        (hello, reply): (Hello, &[u8]),
        out: &mut Outputs,
    ) {
        let input = machine::Input::Handshake {
            server,
            generation,
            hello,
            rtt,
        };
        self.apply_hello(now, input, reply, out);
    }

    fn played(
        &mut self,
        now: Instant,
        server: ServerId,
        outcome: Result<(Hello, &[u8]), Error>,
        rtt: Duration,
        out: &mut Outputs,
    ) {
        match outcome {
            Ok(reply) => {
                let generation = self.generation(server, None).unwrap_or_default();
                let rtt = Rtt {
                    average: rtt,
                    minimum: rtt,
                    p90: rtt,
                };
                self.handshake(now, (server, generation, Some(rtt)), reply, out);
            }
            Err(error) => {
                let input = machine::Input::Checked {
                    server,
                    outcome: Err(error),
                    rtt: None,
                };
                self.apply(now, input, out);
            }
        }
    }

    fn hosts(&mut self, now: Instant, hosts: &[ServerAddress], out: &mut Outputs) {
        let description = self.topology.description();
        let hosts = description.sample_hosts(hosts, self.max_hosts, &mut self.rng);
        self.apply(now, machine::Input::Hosts(&hosts), out);
    }

    fn deserted(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        if let Some(own) = self.server_mut(server) {
            own.stop(now, out);
            self.apply(now, machine::Input::MonitorDied { server }, out);
        }
    }

    fn proceed(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        if !self.is_inline
            && let Some(server) = self.server_mut(server)
        {
            server.proceed(now, out);
        }
    }

    /// Returns the checks that use `conn`.
    fn check_on(&mut self, conn: ConnId) -> Option<&mut Check> {
        let check = &mut self.server_mut(conn.server)?.check;
        (check.conn() == conn).then_some(check)
    }

    fn deadlines(&self, wanted: bool) -> impl Iterator<Item = (Instant, Timer)> + '_ {
        let server = move |server: &Server| {
            let deadline = server.deadline(wanted)?;
            Some((deadline, Timer::Server(server.id)))
        };
        let srv = self.next_look_up().map(|instant| (instant, Timer::Srv));
        self.servers.iter().filter_map(server).chain(srv)
    }

    /// Returns whether the server's type is known, from any source.
    fn is_known(&self, server: ServerId) -> bool {
        self.topology.is_known(server)
    }

    /// Returns the server for which an answer on `conn` is outstanding: this one, or any.
    fn awaiting(
        &mut self,
        conn: ConnId,
        answer: impl Into<Option<Waiting>>,
    ) -> Option<&mut Server> {
        let answer = answer.into();
        self.server_mut(conn.server).filter(|server| {
            let own = server.awaits(conn);
            own.is_some() && (answer.is_none() || own == answer)
        })
    }

    fn server(&self, server: ServerId) -> Option<&Server> {
        self.servers.get(self.position(server).ok()?)
    }

    fn server_mut(&mut self, server: ServerId) -> Option<&mut Server> {
        let place = self.position(server).ok()?;
        self.servers.get_mut(place)
    }

    fn position(&self, server: ServerId) -> Result<usize, usize> {
        self.servers.binary_search_by_key(&server, |own| own.id)
    }
}
