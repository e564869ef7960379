//! The monitored servers of a deployment and their deadlines. Applies the outcomes of checks and
//! errors to the topology, and the resulting changes to the servers.

use alloc::{sync::Arc, vec::Vec};
use core::{mem, time::Duration};

use smallvec::SmallVec;

use super::{
    ConnId, Deployment, Output, Outputs, Role,
    silence::{Answers, Host},
};
use crate::{
    address::ServerAddress,
    error::{ErrorKind, ErrorOutcome},
    ids::ServerId,
    monitor::{Check, CheckOutcome, MonitorConfig, Waiting},
    pool::PoolClear,
    report::ErrorReport,
    rtt::{Ping, RttWindow},
    time::Instant,
};

/// The monitored servers, sorted by id, and the state of this host that affects their deadlines.
///
/// Each mutable access to a server is noted, and [`settle`](Self::settle) then computes the
/// deadlines of the server again. Every change therefore wakes the server's task if necessary.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    list: Vec<Server>,
    host: Host,
    /// The servers that were accessed mutably since the deadlines were last settled.
    touched: SmallVec<[ServerId; 4]>,
    /// True if all servers count as touched.
    all_touched: bool,
}

/// The times at which a server's timer is due; `None` if it is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deadlines {
    /// The time if no selection is waiting.
    pub(super) idle: Option<Instant>,
    /// The time if selections are waiting.
    pub(super) wanted: Option<Instant>,
}

impl Deadlines {
    pub(super) fn when(self, wanted: bool) -> Option<Instant> {
        if wanted { self.wanted } else { self.idle }
    }

    /// Returns whether either time is earlier than in `before`.
    fn is_sooner(self, before: Self) -> bool {
        let sooner = |after: Option<Instant>, before: Option<Instant>| {
            after.is_some_and(|after| before.is_none_or(|before| after < before))
        };
        sooner(self.idle, before.idle) || sooner(self.wanted, before.wanted)
    }
}

impl Servers {
    pub(super) fn new(host: Host) -> Self {
        Self { list: Vec::new(), host, touched: SmallVec::new(), all_touched: false }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Server> {
        self.list.iter()
    }

    pub(super) fn get(&self, server: ServerId) -> Option<&Server> {
        self.list.get(self.position(server).ok()?)
    }

    pub(super) fn get_mut(&mut self, server: ServerId) -> Option<&mut Server> {
        let place = self.position(server).ok()?;
        let own = self.list.get_mut(place)?;
        if !mem::replace(&mut own.is_touched, true) {
            self.touched.push(server);
        }
        Some(own)
    }

    pub(super) fn host(&self) -> Host {
        self.host
    }

    /// Returns the state of this host for a change, which may affect all deadlines.
    pub(super) fn host_mut(&mut self) -> &mut Host {
        self.all_touched = true;
        &mut self.host
    }

    /// Adds a server. No wake-up is needed, because the deployment's caller reads the deadlines of
    /// new servers.
    pub(super) fn insert(&mut self, mut new: Server) {
        new.deadlines = new.fresh_deadlines(self.host);
        let place = self.list.partition_point(|other| other.id < new.id);
        // A `Server` is large and is seldom added, so no spare capacity is reserved.
        self.list.reserve_exact(1);
        self.list.insert(place, new);
    }

    pub(super) fn remove(&mut self, server: ServerId) -> Option<Server> {
        Some(self.list.remove(self.position(server).ok()?))
    }

    /// Computes the deadlines of all touched servers again, and emits a `Wake` for each server
    /// whose deadline is earlier than before. `caller` needs no `Wake`, because its task reads its
    /// deadline after the call.
    pub(super) fn settle(&mut self, caller: Option<ServerId>, out: &mut Outputs) {
        let host = self.host;
        let mut settle = |own: &mut Server| {
            own.is_touched = false;
            let fresh = own.fresh_deadlines(host);
            let before = mem::replace(&mut own.deadlines, fresh);
            if fresh.is_sooner(before) && caller != Some(own.id) {
                out.push(Output::Wake { server: own.id });
            }
        };
        if mem::take(&mut self.all_touched) {
            self.touched.clear();
            self.list.iter_mut().for_each(settle);
            return;
        }
        for server in mem::take(&mut self.touched) {
            if let Ok(place) = self.position(server)
                && let Some(own) = self.list.get_mut(place)
            {
                settle(own);
            }
        }
    }

    fn position(&self, server: ServerId) -> Result<usize, usize> {
        self.list.binary_search_by_key(&server, |own| own.id)
    }
}

/// The checks and the round-trip times of one server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) id: ServerId,
    pub(super) check: Check,
    pub(super) ping: Ping,
    /// Tests whether the server answers on a new connection.
    pub(super) probe: Ping,
    pub(super) rtt: RttWindow,
    pub(super) answers: Answers,
    /// The deadlines after the last call.
    deadlines: Deadlines,
    is_touched: bool,
}

impl Server {
    /// Creates a server whose first check is due at once. Measurements are one heartbeat apart,
    /// plus or minus `slack`.
    pub(super) fn new(
        config: &Arc<MonitorConfig>,
        id: ServerId,
        address: ServerAddress,
        slack: Duration,
    ) -> Self {
        Self {
            id,
            check: Check::new(Arc::clone(config), id, address),
            ping: Ping::new(Arc::clone(config), (id, Role::Ping), slack),
            probe: Ping::new(Arc::clone(config), (id, Role::Probe), slack),
            rtt: RttWindow::default(),
            answers: Answers::default(),
            deadlines: Deadlines::default(),
            is_touched: false,
        }
    }

    /// Returns the kind of answer outstanding on `conn`.
    pub(super) fn awaits(&self, conn: ConnId) -> Option<Waiting> {
        match conn.role {
            Role::Check => self.check.awaits(conn),
            Role::Ping => self.ping.awaits(conn),
            Role::Probe => self.probe.awaits(conn),
        }
    }

    /// Returns the times at which the server's timer is due, as of the end of the last call.
    pub(super) fn deadlines(&self) -> Deadlines {
        self.deadlines
    }

    /// Computes the times at which the server's timer is due.
    pub(super) fn fresh_deadlines(&self, host: Host) -> Deadlines {
        let connections = [self.ping.deadline(), self.probe.deadline()];
        let judgments = [self.overdue(host), self.next_judgment(host)];
        let others = connections.into_iter().chain(judgments).flatten().min();
        let sooner = |check: Option<Instant>| check.into_iter().chain(others).min();
        let check = self.check.deadline();
        Deadlines { idle: sooner(check), wanted: sooner(self.check.earliest().or(check)) }
    }

    /// Begins the check if it is due. Begins the measurement as early as its slack allows, which
    /// saves a wake-up. `delay` postpones the first measurement.
    pub(super) fn proceed(&mut self, now: Instant, delay: Duration, out: &mut Outputs) {
        self.check.proceed(now, out);
        if self.check.streaming {
            self.ping.start(now + self.ping.delay() + delay);
        } else {
            self.ping.stop(out);
        }
        self.ping.proceed(now, out);
    }

    /// Ends the running check, measurement and probe for `reason`, and begins no new ones.
    pub(super) fn stop(&mut self, now: Instant, reason: &str, out: &mut Outputs) {
        self.check.stop(now, reason, out);
        self.ping.stop(out);
        self.probe.stop(out);
    }
}

impl Deployment {
    /// Returns a random delay for a background connection, shorter than `Options::spread`, so that
    /// many clients do not connect at the same time.
    pub(super) fn random_delay(&mut self) -> Duration {
        let spread = self.config.spread.as_nanos().try_into().unwrap_or(u64::MAX);
        if spread == 0 || self.inline.is_some() {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.rng.below(spread))
    }
}

/// The consequences of a change for the other parts of the deployment, in the order in which they
/// must take effect. All other consequences are in the [`Outputs`] already.
#[derive(Debug, Default)]
#[must_use = "consequences carry commands to connections and pools"]
pub(super) struct Consequences {
    /// The new servers that must be monitored.
    pub(super) opened: Vec<(ServerId, ServerAddress)>,
    /// The servers whose round-trip times must be discarded, because the server was lost, or failed
    /// another check while it was lost.
    pub(super) lost: SmallVec<[ServerId; 2]>,
    /// The pools to clear.
    pub(super) cleared: Vec<(ServerId, PoolClear)>,
    /// The servers that have left the topology.
    pub(super) closed: Vec<ServerId>,
    /// The server whose running check must be cancelled and whose connection must be closed.
    pub(super) cancel: Option<ServerId>,
    /// The servers that must be checked soon (SDAM: "requestImmediateCheck").
    pub(super) check: SmallVec<[ServerId; 2]>,
}

impl Deployment {
    /// Applies the outcome of a check.
    pub(super) fn report(
        &mut self,
        now: Instant,
        server: ServerId,
        outcome: CheckOutcome,
        out: &mut Outputs,
    ) {
        match outcome {
            Err(error) if error.kind() == ErrorKind::Internal => {
                let news = self.topology.monitor_died(now, server, out);
                self.follow(now, news, out);
            }
            outcome => {
                let failed = outcome.is_err();
                if failed && self.servers.get(server).is_some_and(|own| own.check.pauses()) {
                    let delay = self.random_delay();
                    self.with(server, |own| own.check.delay(delay));
                }
                self.checked(now, server, outcome, out);
            }
        }
    }

    /// Applies the outcome of a check to the topology.
    pub(super) fn checked(
        &mut self,
        now: Instant,
        server: ServerId,
        outcome: CheckOutcome,
        out: &mut Outputs,
    ) {
        let rtt = self.rtt(server);
        let news = self.topology.checked(now, server, outcome, rtt, out);
        self.follow_check(now, Some(server), news, out);
    }

    /// Applies an error from an operation or a pool.
    pub(super) fn error(
        &mut self,
        now: Instant,
        server: ServerId,
        report: &ErrorReport,
        out: &mut Outputs,
    ) -> ErrorOutcome {
        let (outcome, news) = self.topology.error(now, server, report, out);
        self.follow(now, news, out);
        self.weigh(now, server, &report.error, out);
        if let Some(inline) = &mut self.inline
            && matches!(outcome, ErrorOutcome::MarkedUnknown | ErrorOutcome::Cleared)
        {
            inline.scans.server_lost(self.topology.description(), server);
        }
        outcome
    }

    /// Applies the consequences of a topology change that was not caused by a check.
    pub(super) fn follow(&mut self, now: Instant, news: Consequences, out: &mut Outputs) {
        self.follow_check(now, None, news, out);
    }

    /// Applies the consequences of a change of the topology. `checked` is the server whose check
    /// caused the change, if any.
    fn follow_check(
        &mut self,
        now: Instant,
        checked: Option<ServerId>,
        news: Consequences,
        out: &mut Outputs,
    ) {
        for (server, address) in news.opened {
            self.servers.insert(Server::new(&self.config, server, address, self.slack));
        }
        for server in news.lost {
            self.with(server, |own| {
                own.rtt.reset();
                own.clear_suspicion(now, false, out);
            });
        }
        for (server, clear) in news.cleared {
            let is_whole = clear.service_id.is_none();
            out.push(Output::PoolClear { server, clear });
            // If the server's own check caused the clear, that check has already decided whether
            // to keep the connection.
            if self.inline.is_some() && is_whole && checked != Some(server) {
                self.cancel_check(now, server, out);
            }
        }
        for server in news.closed {
            if let Some(mut own) = self.servers.remove(server) {
                own.clear_suspicion(now, false, out);
                let reason = if self.topology.is_closed() {
                    "the topology was closed"
                } else {
                    "the server has left the topology"
                };
                own.stop(now, reason, out);
            }
            out.push(Output::CloseServer { server });
        }
        if let Some(server) = news.cancel {
            self.cancel_check(now, server, out);
        }
        for server in news.check {
            self.with(server, |own| own.check.request(now));
        }
    }

    /// Closes the connection for checks and ends the running check.
    pub(super) fn cancel_check(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        let known = self.is_known(server);
        self.with(server, |own| own.check.cancel(now, known, out));
    }
}
