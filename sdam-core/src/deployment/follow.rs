//! Passes changes of the topology on to the other parts of a deployment. This is the only file in
//! which one part acts on another.

use super::{Deployment, Server};
use crate::{
    error::{ErrorKind, ErrorOutcome},
    ids::ServerId,
    interface::{Output, Outputs},
    machine::{self, Effect, Effects},
    monitor::Report,
    report::ErrorReport,
    time::Instant,
};

impl Deployment {
    /// Applies the outcome of a check.
    pub(super) fn report(
        &mut self,
        now: Instant,
        server: ServerId,
        report: Report,
        out: &mut Outputs,
    ) {
        if let Some(sample) = report.sample {
            self.measured(server, sample, out);
        }
        if report.is_final {
            let delay = self.random_delay();
            self.with(server, |own| own.check.delay(delay));
        }
        let rtt = self.rtt(server);
        let input = match report.outcome {
            Err(error) if error.kind() == ErrorKind::Internal => {
                machine::Input::MonitorDied { server }
            }
            outcome => machine::Input::Checked { server, outcome, rtt },
        };
        self.apply(now, input, out);
    }

    /// Applies an input to the topology.
    pub(super) fn apply(&mut self, now: Instant, input: machine::Input<'_>, out: &mut Outputs) {
        let checked = match &input {
            machine::Input::Checked { server, .. } => Some(*server),
            _ => None,
        };
        let effects = self.topology.handle(now, input);
        self.follow(now, (effects, checked), out);
    }

    /// Applies an error from an operation or a pool.
    pub(super) fn apply_error(
        &mut self,
        now: Instant,
        server: ServerId,
        error: &ErrorReport,
        out: &mut Outputs,
    ) -> ErrorOutcome {
        let (outcome, effects) = self.topology.handle_error(now, server, error);
        self.follow(now, (effects, None), out);
        self.weigh(now, server, &error.error, out);
        if let Some(inline) = &mut self.inline
            && matches!(outcome, ErrorOutcome::MarkedUnknown | ErrorOutcome::Cleared)
        {
            inline.scans.server_lost(self.topology.description(), server);
        }
        outcome
    }

    /// Applies the effects of a change of the topology. `checked` is the server whose check caused
    /// the change, if any.
    fn follow(
        &mut self,
        now: Instant,
        (effects, checked): (Effects, Option<ServerId>),
        out: &mut Outputs,
    ) {
        for effect in effects {
            match effect {
                Effect::OpenServer { server, address, monitored } => {
                    if monitored {
                        let new = Server::new(&self.config, server, address.clone(), self.slack);
                        let place = self.servers.partition_point(|other| other.id < server);
                        // A `Server` is large and is seldom added, so no spare capacity is
                        // reserved.
                        self.servers.reserve_exact(1);
                        self.servers.insert(place, new);
                    }
                    out.push(Output::OpenServer { server, address, monitored });
                }
                Effect::CloseServer { server } => {
                    if let Ok(place) = self.position(server) {
                        let mut own = self.servers.remove(place);
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
                Effect::PoolReady { server } => out.push(Output::PoolReady { server }),
                Effect::PoolClear { server, clear } => {
                    let is_whole = clear.service_id.is_none();
                    out.push(Output::PoolClear { server, clear });
                    // If the server's own check caused the clear, that check has already decided
                    // whether to keep the connection.
                    if self.inline.is_some() && is_whole && checked != Some(server) {
                        self.cancel_check(now, server, out);
                    }
                }
                Effect::Publish(description) => out.push(Output::Publish(description)),
                Effect::Emit(event) => out.emit(event),
                Effect::ResetRtt { server } => {
                    self.with(server, |own| {
                        own.rtt.reset();
                        own.clear_suspicion(now, false, out);
                    });
                }
                Effect::CancelCheck { server } => self.cancel_check(now, server, out),
                Effect::RequestCheck { server } => {
                    let host = self.evidence.host;
                    self.with(server, |own| own.request_check(now, host, out));
                }
            }
        }
    }

    fn cancel_check(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        let state = (self.is_known(server), self.evidence.host);
        self.with(server, |own| own.cancel_check(now, state, out));
    }
}
