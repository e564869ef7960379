//! Server selection in single-threaded mode, with scans as needed.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    deployment::{Input, Output, ScanFailure, ScanRequest},
    ids::ServerId,
    time::Instant,
};
use sdam_select::{choose, criteria::Criteria};

use super::Scanner;
use crate::{
    engine::Engine,
    select::{Limit, LimitSource, SelectionEvents, error::SelectionError, selected::Selected},
};

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
    pub(super) async fn select(
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
