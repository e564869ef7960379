//! Errors of operations and connection pools (SDAM: "Error handling").

use alloc::sync::Arc;

use super::{
    Effect, Effects, LifePhase, TopologyMachine,
    update::{Clear, Consequences, KEEPS_CONNECTIONS},
};
use crate::{
    app_error::{AppError, Cause, ErrorOutcome},
    error::{ErrorKind, SYSTEM_OVERLOADED_ERROR, ServerError, Stage, StateChange},
    ids::{ObjectId, ServerId},
    pool::PoolClear,
    reply,
    server::ServerDescription,
    time::Instant,
    topology::TopologyType,
};

/// The consequences of an error.
struct Verdict {
    error: ServerError,
    clear: bool,
    cancel_check: bool,
    request_check: bool,
}

impl TopologyMachine {
    /// Processes an error of a pooled connection at `now` and returns its outcome.
    ///
    /// Any error of an operation may be reported. An error that does not concern the server's
    /// state, or is outdated, changes nothing.
    #[doc(alias = "isStateChangeError")]
    pub fn handle_error(
        &mut self,
        now: Instant,
        server: ServerId,
        error: &AppError<'_>,
    ) -> (ErrorOutcome, Effects) {
        let ignored = |outcome| (outcome, Effects::default());
        if self.phase != LifePhase::Open {
            return ignored(ErrorOutcome::UnknownServer);
        }
        let Some(current) = self.current(server).map(Arc::clone) else {
            return ignored(ErrorOutcome::UnknownServer);
        };
        let load_balanced = self.description.topology_type() == TopologyType::LoadBalanced;
        let service = error.service_id.filter(|_| load_balanced);
        if self
            .generation(server, service)
            .is_none_or(|own| error.generation < own)
        {
            return ignored(ErrorOutcome::Stale);
        }
        let Some(failure) = error.failure() else {
            return ignored(ErrorOutcome::Irrelevant);
        };
        if current.is_newer_than_error(failure.topology_version) {
            return ignored(ErrorOutcome::Stale);
        }
        let Some(verdict) = self.judge(error, failure) else {
            return ignored(ErrorOutcome::Irrelevant);
        };
        if load_balanced {
            let counts = verdict.clear && !error.stage.is_before_hello_completes();
            return match service.filter(|_| counts) {
                Some(service) => self.clear_service(server, service, verdict.error),
                None => ignored(ErrorOutcome::Irrelevant),
            };
        }
        let outcome = if verdict.clear {
            ErrorOutcome::Cleared
        } else {
            ErrorOutcome::MarkedUnknown
        };
        let cause = verdict.error.shared();
        let new = ServerDescription::failed(server, current.address.clone(), cause.clone(), now);
        let effects = self.update(
            now,
            new,
            Consequences {
                clear: verdict.clear.then_some(Clear {
                    cause,
                    interrupt_in_use: false,
                }),
                cancel_check: verdict.cancel_check,
                request_check: verdict.request_check,
                checked: false,
            },
        );
        (outcome, effects)
    }

    /// Returns the consequences of `error`; `None` if it says nothing about the server's state.
    fn judge(&self, report: &AppError<'_>, error: ServerError) -> Option<Verdict> {
        let establishing = report.stage.is_before_handshake_completes();
        let overloaded = error.has_label(SYSTEM_OVERLOADED_ERROR);
        if establishing && overloaded && !self.config.handshake_errors_mark_unknown {
            return None;
        }
        let state_change = error.state_change();
        if let (Some(state_change), false) = (state_change, establishing) {
            let clear = state_change == StateChange::ShuttingDown
                || report
                    .max_wire_version
                    .is_some_and(|own| own < KEEPS_CONNECTIONS);
            return Some(Verdict {
                error,
                clear,
                cancel_check: false,
                request_check: true,
            });
        }
        let relevant = establishing || error.kind == ErrorKind::Network;
        // A server that reports a state change is alive, so a check is requested instead. A failed
        // authentication always cancels (I-14).
        let cancel_check = state_change.is_none() || report.stage == Stage::Auth;
        relevant.then_some(Verdict {
            error,
            clear: true,
            cancel_check,
            request_check: state_change.is_some(),
        })
    }

    /// Clears one service (Load Balancers: "Error handling"): only its connections become stale,
    /// and the load balancer's description never changes.
    fn clear_service(
        &mut self,
        server: ServerId,
        service: ObjectId,
        error: ServerError,
    ) -> (ErrorOutcome, Effects) {
        let Some(pool) = self.pool_mut(server) else {
            return (ErrorOutcome::UnknownServer, Effects::default());
        };
        let mut clear = PoolClear::new(pool.services.clear(service), error.shared());
        clear.service_id = Some(service);
        (
            ErrorOutcome::ServiceCleared,
            Effects::one(Effect::PoolClear { server, clear }),
        )
    }
}

impl AppError<'_> {
    /// Returns the error in the reported cause; `None` if a reply contains none.
    fn failure(&self) -> Option<ServerError> {
        let mut error = self.failure_in_cause()?;
        error.source = self.source.clone();
        Some(error)
    }

    fn failure_in_cause(&self) -> Option<ServerError> {
        let (kind, message) = match &self.cause {
            Cause::Reply(reply) => return reply::error(reply, self.stage),
            Cause::Network(message) => (ErrorKind::Network, message),
            Cause::Timeout(message) => (ErrorKind::Timeout, message),
            Cause::Protocol(message) => (ErrorKind::Protocol, message),
            Cause::Auth(message) => (ErrorKind::Command, message),
        };
        let mut error = ServerError::new(kind, self.stage, &**message);
        error.labels = self.labels().iter().map(|label| (*label).into()).collect();
        Some(error)
    }
}
