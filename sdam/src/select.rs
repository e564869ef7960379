//! Server selection: at once if a server is suitable, otherwise by waiting.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::future::{BoxFuture, Either, FutureExt, select};
use sdam_core::{event::EventName, options::Options, time::Instant, topology::TopologyDescription};
use sdam_events::{queue::EventQueue, sink::Interest};
use sdam_select::{choose, criteria::Criteria, diagnose, explain, explain::Explanation};

use crate::{
    cell::TopologyCell,
    error::{Bound, SelectionError, SelectionTimeout},
    pending::Pending,
    report::{Report, Scene},
    selected::Selected,
    snapshot::Snapshot,
    sync::{EventListener, Guard},
};

impl TopologyCell {
    /// Selects from the current snapshot, without lock, allocation or waiting.
    pub(crate) fn try_select(
        &self,
        criteria: &Criteria,
    ) -> Result<Option<Selected>, SelectionError> {
        self.select_from(&self.snapshot().load(), criteria)
    }

    fn select_from(
        &self,
        snapshot: &Guard<Arc<Snapshot>>,
        criteria: &Criteria,
    ) -> Result<Option<Selected>, SelectionError> {
        if snapshot.closed {
            return Err(SelectionError::Closed);
        }
        let topology = &snapshot.description;
        if !topology.is_compatible() {
            return Err(SelectionError::Incompatible {
                description: Arc::clone(topology),
            });
        }
        let (random, lane) = self.random();
        let chosen = choose(
            topology,
            &self.settings,
            criteria,
            |candidate| snapshot.operation_count(candidate.index),
            random,
        )
        .map_err(SelectionError::InvalidCriteria)?;
        let selected = chosen.and_then(|chosen| {
            let server = snapshot.servers.get(chosen.index)?;
            Some(Selected::new(
                server,
                chosen.server,
                topology,
                criteria,
                lane,
            ))
        });
        if selected.is_none() && snapshot.is_abandoned() {
            return Err(SelectionError::RuntimeShutDown);
        }
        Ok(selected)
    }

    /// Selects a server, waiting for up to `limit` if necessary (Server Selection: "Multi-threaded
    /// or asynchronous server selection").
    pub(crate) async fn select(
        &self,
        criteria: &Criteria,
        limit: Limit,
    ) -> Result<Selected, SelectionError> {
        // A selection that does not wait publishes nothing to sinks that only want waiting events.
        const WAITING: Interest = Interest::of(&[EventName::ServerSelectionWaiting]);
        if !self.events.wants_any(Interest::SELECTION.without(WAITING))
            && let Some(selected) = self.try_select(criteria)?
        {
            return Ok(selected);
        }
        let report = Report::begin(self, &self.settings, criteria);
        let outcome = match self.try_select(criteria) {
            Ok(Some(selected)) => Ok(selected),
            Ok(None) => self.wait(criteria, limit, &report).await,
            Err(error) => Err(error),
        };
        report.end(outcome, |selected| (selected.id(), selected.address()))
    }

    async fn wait(
        &self,
        criteria: &Criteria,
        limit: Limit,
        report: &Report<&Self>,
    ) -> Result<Selected, SelectionError> {
        if limit.timeout.is_zero() {
            // A caller that polls without waiting still gets servers that are checked.
            self.request_checks();
            return Err(self.timed_out(criteria, limit, report.started));
        }
        let limit_of_waiters = self.options.max_waiters;
        let Some((_ticket, first)) = self.demand.ticket(limit_of_waiters) else {
            return Err(SelectionError::TooManyWaiters {
                limit: limit_of_waiters,
            });
        };
        let deadline = report.started + limit.timeout;
        report.waiting(Some(deadline.since(self.now())));
        if first {
            self.request_checks();
        }
        let mut expiry = self.runtime.io.clock.sleep_until(deadline);
        loop {
            // Listening before reading the snapshot means that no change in between is missed.
            let changed = self.changed.listen();
            if let Some(selected) = self.try_select(criteria)? {
                return Ok(selected);
            }
            if either(changed, &mut expiry).await {
                continue;
            }
            // A change that came together with the deadline counts (L-63).
            return match self.try_select(criteria)? {
                Some(selected) => Ok(selected),
                None => Err(self.timed_out(criteria, limit, report.started)),
            };
        }
    }

    /// Builds the timeout error of a selection that began at `started`.
    fn timed_out(&self, criteria: &Criteria, limit: Limit, started: Instant) -> SelectionError {
        let at = self.now();
        let snapshot = self.snapshot().load_full();
        let topology = &snapshot.description;
        let failures = (0..topology.servers().len()).map(|index| snapshot.failures(index));
        let explanation = explain(topology, &self.settings, criteria);
        SelectionError::Timeout(Box::new(SelectionTimeout {
            criteria: criteria.clone(),
            diagnoses: diagnose(topology, &explanation),
            explanation,
            failures: failures.collect(),
            description: Arc::clone(topology),
            timeout: limit.timeout,
            bound: limit.bound,
            waited: at.since(started),
            at,
            history: self
                .history
                .as_ref()
                .map_or_else(Vec::new, |history| history.transitions()),
        }))
    }

    /// Explains for each known server why a selection would choose or reject it.
    pub(crate) fn explain(&self, criteria: &Criteria) -> Explanation {
        // No snapshot guard is held while the application's selectors run.
        let topology = Arc::clone(&self.snapshot().load().description);
        explain(&topology, &self.settings, criteria)
    }

    /// Waits until `ready` yields a value for a snapshot, or `deadline` has passed.
    pub(crate) async fn wait_for<T>(
        &self,
        mut ready: impl FnMut(&Snapshot) -> Option<T>,
        deadline: Option<Instant>,
    ) -> Option<T> {
        let mut expiry = match deadline {
            Some(deadline) => self.runtime.io.clock.sleep_until(deadline),
            None => futures::future::pending().boxed(),
        };
        loop {
            let changed = self.changed.listen();
            let (found, closed) = {
                let snapshot = self.snapshot().load();
                (ready(&snapshot), snapshot.closed)
            };
            if found.is_some() || closed || !either(changed, &mut expiry).await {
                return found.or_else(|| ready(&self.snapshot().load()));
            }
        }
    }
}

/// The time limit of a selection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) timeout: Duration,
    pub(crate) bound: Bound,
}

impl Limit {
    /// Returns the configured limit: `serverSelectionTimeoutMS`, or `timeoutMS` if that is
    /// shorter. A `timeoutMS` of zero means no limit (Server Selection: "Timeouts").
    pub(crate) fn configured(options: &Options) -> Self {
        let timeout = options.driver.timeout();
        let timeout = timeout.filter(|timeout| !timeout.is_zero());
        Self::within(options, timeout, Bound::Timeout)
    }

    /// Returns the limit of a call, at most `serverSelectionTimeoutMS`. `timeout` is what is left
    /// of the `timeoutMS` of an operation.
    pub(crate) fn of_call(options: &Options, timeout: Duration) -> Self {
        Self::within(options, Some(timeout), Bound::Call)
    }

    fn within(options: &Options, timeout: Option<Duration>, bound: Bound) -> Self {
        let own = options.server_selection_timeout;
        match timeout.filter(|timeout| *timeout < own) {
            Some(timeout) => Self { timeout, bound },
            None => Self {
                timeout: own,
                bound: Bound::ServerSelectionTimeout,
            },
        }
    }
}

/// Waits for the change or the deadline; returns whether the change came first.
async fn either(changed: EventListener, expiry: &mut BoxFuture<'_, ()>) -> bool {
    matches!(select(pin!(changed), expiry).await, Either::Left(_))
}

impl Scene for &TopologyCell {
    fn events(&self) -> &EventQueue {
        &self.events
    }

    fn pending(&self) -> &Pending {
        &self.pending
    }

    fn now(&self) -> Instant {
        TopologyCell::now(self)
    }

    fn description(&self) -> Arc<TopologyDescription> {
        Arc::clone(&self.snapshot().load().description)
    }
}
