//! Errors of operations and connection pools (SDAM: "Error handling").

use alloc::sync::Arc;

use super::{
    Effect, Effects, LifePhase, TopologyMachine,
    update::{Clear, Consequences, KEEPS_CONNECTIONS},
};
use crate::{
    error::{Error, ErrorKind, ErrorOutcome, Stage, StateChange},
    ids::{ObjectId, ServerId},
    pool::PoolClear,
    report::ErrorReport,
    server::ServerDescription,
    time::Instant,
    topology::TopologyType,
};

impl TopologyMachine {
    /// Processes an error from a pooled connection at `now` and returns its outcome.
    ///
    /// Any error from an operation may be reported. An error that does not concern the server's
    /// state, or is outdated, changes nothing.
    #[doc(alias = "isStateChangeError")]
    pub(crate) fn handle_error(
        &mut self,
        now: Instant,
        server: ServerId,
        report: &ErrorReport,
    ) -> (ErrorOutcome, Effects) {
        let ignored = |outcome| (outcome, Effects::default());
        if self.phase != LifePhase::Open {
            return ignored(ErrorOutcome::UnknownServer);
        }
        let Some(current) = self.current(server).map(Arc::clone) else {
            return ignored(ErrorOutcome::UnknownServer);
        };
        let load_balanced = self.description.topology_type() == TopologyType::LoadBalanced;
        let service = report.service_id.filter(|_| load_balanced);
        if self.generation(server, service).is_none_or(|own| report.generation < own) {
            return ignored(ErrorOutcome::Stale);
        }
        if current.is_newer_than_error(report.error.topology_version()) {
            return ignored(ErrorOutcome::Stale);
        }
        let Some((error, consequences)) = self.judge(report) else {
            return ignored(ErrorOutcome::Irrelevant);
        };
        let clears = consequences.clear.is_some();
        if load_balanced {
            let counts = clears && !error.stage().is_before_hello_completes();
            return match service.filter(|_| counts) {
                Some(service) => self.clear_service(server, service, error),
                None => ignored(ErrorOutcome::Irrelevant),
            };
        }
        let outcome = if clears { ErrorOutcome::Cleared } else { ErrorOutcome::MarkedUnknown };
        let new = ServerDescription::failed(server, current.address.clone(), error, now);
        let effects = self.update(now, new, consequences);
        (outcome, effects)
    }

    /// Returns the error without its context, together with its consequences; `None` if the error
    /// does not concern the server.
    fn judge(&self, report: &ErrorReport) -> Option<(Error, Consequences)> {
        let error = report.error.clone().without_context();
        // Neither says anything about the server.
        if error.stage() == Stage::CheckOut || error.kind() == ErrorKind::Invalid {
            return None;
        }
        let establishing = error.stage().is_before_handshake_completes();
        if establishing
            && error.is_overload()
            && !self.options.deviations.handshake_errors_mark_unknown
        {
            return None;
        }
        let state_change = error.state_change();
        let consequences = |clears: bool, cancel_check, request_check| Consequences {
            clear: clears.then(|| Clear { cause: error.clone(), interrupt_in_use: false }),
            cancel_check,
            request_check,
            checked: false,
        };
        let consequences = if let (Some(state_change), false) = (state_change, establishing) {
            let clears = state_change == StateChange::ShuttingDown
                || report.max_wire_version.is_some_and(|own| own < KEEPS_CONNECTIONS);
            consequences(clears, false, true)
        } else if establishing || error.kind() == ErrorKind::Network {
            // A server that reports a state change is alive, so its running check is not cancelled;
            // another check is requested instead. A failed authentication always cancels the
            // running check (I-14).
            let cancel_check = state_change.is_none() || error.stage() == Stage::Auth;
            consequences(true, cancel_check, state_change.is_some())
        } else {
            return None;
        };
        Some((error, consequences))
    }

    /// Clears one service (Load Balancers: "Error handling"): only its connections become stale,
    /// and the load balancer's description never changes.
    fn clear_service(
        &mut self,
        server: ServerId,
        service: ObjectId,
        error: Error,
    ) -> (ErrorOutcome, Effects) {
        let Some(pool) = self.pool_mut(server) else {
            return (ErrorOutcome::UnknownServer, Effects::default());
        };
        let mut clear = PoolClear::new(pool.services.clear(service), error);
        clear.service_id = Some(service);
        (ErrorOutcome::ServiceCleared, Effects::one(Effect::PoolClear { server, clear }))
    }
}
