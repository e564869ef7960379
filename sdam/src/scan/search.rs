//! Server selection in single-threaded mode, with scans as needed.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    ids::ServerId,
    scan::{ScanEffect, ScanFailure, ScanInput},
    time::Instant,
};
use sdam_select::{choose, criteria::Criteria, diagnose, explain};

use super::{ScanSelected, ScanTopology, report::Report};
use crate::{
    error::{Bound, SelectionError, SelectionTimeout},
    select::Limit,
};

impl ScanTopology {
    pub(super) async fn search(
        &mut self,
        criteria: &Criteria,
        limit: Limit,
        report: &mut Report,
    ) -> Result<ScanSelected, SelectionError> {
        if self.machine.is_closed() {
            return Err(SelectionError::Closed);
        }
        let started = self.now();
        let mut effect = self.tell(ScanInput::Select {
            timeout: limit.timeout,
        });
        loop {
            effect = match effect {
                ScanEffect::Choose => self.attempt(criteria, report)?,
                ScanEffect::Select { server } => {
                    let selected = self.selected(server, criteria);
                    return selected.ok_or(SelectionError::Closed);
                }
                ScanEffect::Fail(failure) => {
                    return Err(self.failure(failure, criteria, limit, started));
                }
                effect => match self.execute(effect).await {
                    Some(next) => next,
                    None => return Err(SelectionError::Closed),
                },
            };
            report.look(self.machine.description());
        }
    }

    /// Tries to choose a server once.
    fn attempt(
        &mut self,
        criteria: &Criteria,
        report: &mut Report,
    ) -> Result<ScanEffect, SelectionError> {
        if let Some((server, idle)) = self.choose(criteria)? {
            return Ok(self.tell(ScanInput::Found { server, idle }));
        }
        let next = self.tell(ScanInput::NotFound);
        if !matches!(next, ScanEffect::Fail(_)) {
            report.go_on(self.machine.description());
        }
        Ok(next)
    }

    /// Chooses a suitable server and returns how long its connection has been idle.
    fn choose(
        &mut self,
        criteria: &Criteria,
    ) -> Result<Option<(ServerId, Option<Duration>)>, SelectionError> {
        let random = self.rng.next_u64();
        let topology = Arc::clone(self.machine.description());
        // There is only one operation at a time, so there are no operation counts.
        let chosen = choose(&topology, &self.settings, criteria, |_| 0, random)
            .map_err(SelectionError::InvalidCriteria)?;
        let now = self.now();
        Ok(chosen.map(|chosen| {
            let id = chosen.server.id;
            let member = self.members.get_mut(&id);
            (id, member.and_then(|member| member.idle(now)))
        }))
    }

    fn selected(&self, server: ServerId, criteria: &Criteria) -> Option<ScanSelected> {
        let topology = self.machine.description();
        let description = topology.server_by_id(server)?;
        let member = self.members.get(&server)?;
        let generation = self.generation(server, member.service)?;
        Some(ScanSelected::new(
            description,
            topology,
            criteria,
            generation,
            Arc::clone(&member.pool),
        ))
    }

    fn failure(
        &self,
        failure: ScanFailure,
        criteria: &Criteria,
        limit: Limit,
        started: Instant,
    ) -> SelectionError {
        let topology = self.machine.description();
        let description = Arc::clone(topology);
        if failure == ScanFailure::Incompatible {
            return SelectionError::Incompatible { description };
        }
        let at = self.now();
        let explanation = explain(topology, &self.settings, criteria);
        let failures = topology.servers().iter().map(|server| {
            let member = self.members.get(&server.id);
            let failures = member.map(|member| member.failures.clone());
            failures.unwrap_or_default()
        });
        SelectionError::Timeout(Box::new(SelectionTimeout {
            criteria: criteria.clone(),
            diagnoses: diagnose(topology, &explanation),
            explanation,
            failures: failures.collect(),
            description,
            timeout: limit.timeout,
            bound: match failure {
                ScanFailure::Timeout => limit.bound,
                ScanFailure::TriedOnce | ScanFailure::Incompatible => Bound::TryOnce,
            },
            waited: at.since(started),
            at,
            // Added after the events of this call are delivered.
            history: Vec::new(),
        }))
    }
}
