//! One monitored server of a deployment, and the random delays of background connections.

use alloc::sync::Arc;
use core::time::Duration;

use super::{
    Deployment,
    silence::{Answers, Host},
};
use crate::{
    address::ServerAddress,
    ids::ServerId,
    interface::{ConnId, Output, Outputs, Role},
    monitor::{Check, MonitorConfig, Waiting},
    rtt::{Ping, RttWindow},
    time::Instant,
};

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
            rtt: RttWindow::new(),
            answers: Answers::default(),
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

    /// Returns the time at which the server's timer is due, or `None` if no timer is set.
    pub(super) fn deadline(&self, wanted: bool, host: Host) -> Option<Instant> {
        let requested = self.check.earliest().filter(|_| wanted);
        let check = requested.or_else(|| self.check.deadline());
        let connections = [check, self.ping.deadline(), self.probe.deadline()];
        let judgments = [self.overdue(host), self.next_judgment(host)];
        connections.into_iter().chain(judgments).flatten().min()
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

    /// Brings the next check forward.
    pub(super) fn request_check(&mut self, now: Instant, host: Host, out: &mut Outputs) {
        self.hastened(host, out, |server, _| server.check.request(now));
    }

    /// Closes the connection for checks and ends the running check.
    pub(super) fn cancel_check(
        &mut self,
        now: Instant,
        (known, host): (bool, Host),
        out: &mut Outputs,
    ) {
        self.hastened(host, out, |server, out| server.check.cancel(now, known, out));
    }

    /// Ends the running check, measurement and probe for this reason, and does not begin new ones.
    pub(super) fn stop(&mut self, now: Instant, reason: &str, out: &mut Outputs) {
        self.check.stop(now, reason, out);
        self.ping.stop(out);
        self.probe.stop(out);
    }

    /// Applies `change`, and wakes the server's task if the change brings its deadline forward.
    pub(super) fn hastened(
        &mut self,
        host: Host,
        out: &mut Outputs,
        change: impl FnOnce(&mut Self, &mut Outputs),
    ) {
        let deadlines = |server: &Self| [false, true].map(|wanted| server.deadline(wanted, host));
        let before = deadlines(self);
        change(self, out);
        if is_sooner(deadlines(self), before) {
            out.push(Output::Wake { server: self.id });
        }
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

    /// Spreads the first checks of the seeds over time.
    pub(super) fn spread(&mut self, now: Instant) {
        for index in 0..self.servers.len() {
            let delay = self.random_delay();
            if let Some(server) = self.servers.get_mut(index).filter(|_| !delay.is_zero()) {
                server.check.postpone(now + delay);
            }
        }
    }
}

/// Returns whether any of `deadlines` is earlier than its counterpart in `before`.
pub(super) fn is_sooner(deadlines: [Option<Instant>; 2], before: [Option<Instant>; 2]) -> bool {
    let mut pairs = deadlines.into_iter().zip(before);
    pairs.any(|(after, before)| after.is_some_and(|after| before.is_none_or(|own| after < own)))
}
