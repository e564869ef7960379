//! Changes of the topology because of checks and errors, and what a change means for the other parts
//! of the deployment.

use alloc::vec::Vec;

use smallvec::SmallVec;

use super::{Deployment, Output, Outputs, server::Server};
use crate::{
    address::ServerAddress,
    error::{ErrorKind, ErrorOutcome},
    ids::ServerId,
    monitor::CheckOutcome,
    pool::PoolClear,
    report::ErrorReport,
    time::Instant,
};

/// The consequences of a change for the other parts of the deployment, in the order in which they
/// must take effect. Everything else is in the [`Outputs`] already.
#[derive(Debug, Default)]
#[must_use = "consequences carry commands to connections and pools"]
pub(super) struct Consequences {
    /// The new servers that must be monitored.
    pub(super) opened: Vec<(ServerId, ServerAddress)>,
    /// The servers whose round-trip times are void: they were lost, or a check of them has failed
    /// again.
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

    /// Applies the consequences of a change of the topology that no check has caused.
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
