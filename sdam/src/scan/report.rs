//! The events of a selection.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    event::{EventKind, Selection, SelectionFailure},
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::queue::EventQueue;
use sdam_select::criteria::Criteria;
use sdam_transport::clock::Clock;

use super::{ScanSelected, ScanTopology};
use crate::{error::SelectionError, select::described};

/// Publishes the steps of a selection, if anybody listens; a selection that is dropped fails.
pub(super) struct Report {
    events: Arc<EventQueue>,
    clock: Arc<dyn Clock>,
    started: Instant,
    /// When the selection gives up; `None` if it is not a matter of time.
    deadline: Option<Instant>,
    selection: Option<Arc<Selection>>,
    /// What was known last.
    description: Arc<TopologyDescription>,
    waited: bool,
}

impl Report {
    pub(super) fn begin(topology: &ScanTopology, criteria: &Criteria, timeout: Duration) -> Self {
        let started = topology.now();
        let try_once = topology.options.server_selection_try_once.unwrap_or(true);
        let report = Self {
            events: Arc::clone(&topology.events),
            clock: Arc::clone(&topology.io.clock),
            started,
            deadline: (!try_once).then(|| started + timeout),
            selection: described(&topology.events, criteria),
            description: Arc::clone(topology.description()),
            waited: false,
        };
        report.push(|selection, description| EventKind::ServerSelectionStarted {
            selection,
            description,
        });
        report
    }

    /// Remembers what is known, in case nothing is heard any more.
    pub(super) fn look(&mut self, description: &Arc<TopologyDescription>) {
        if self.selection.is_some() && !Arc::ptr_eq(&self.description, description) {
            self.description = Arc::clone(description);
        }
    }

    /// Says that the selection goes on; once (K-8).
    pub(super) fn waiting(&mut self, now: Instant, description: &Arc<TopologyDescription>) {
        if std::mem::replace(&mut self.waited, true) {
            return;
        }
        self.look(description);
        let remaining = self.deadline.map(|deadline| deadline.since(now));
        self.push(|selection, description| EventKind::ServerSelectionWaiting {
            selection,
            description,
            remaining,
        });
    }

    pub(super) fn end(
        mut self,
        outcome: &Result<ScanSelected, SelectionError>,
        description: &Arc<TopologyDescription>,
    ) {
        if self.selection.is_none() {
            return;
        }
        self.look(description);
        let duration = self.clock.now().since(self.started);
        match outcome {
            Ok(selected) => {
                let (server, address) = (selected.id(), selected.address().clone());
                self.push(
                    |selection, description| EventKind::ServerSelectionSucceeded {
                        selection,
                        description,
                        server,
                        address,
                        duration,
                    },
                );
            }
            Err(error) => self.fail(error.failure(), &error.without_description()),
        }
        self.selection = None;
    }

    fn fail(&self, reason: SelectionFailure, failure: &str) {
        let duration = self.clock.now().since(self.started);
        self.push(|selection, description| EventKind::ServerSelectionFailed {
            selection,
            description,
            reason,
            failure: failure.into(),
            duration,
        });
    }

    fn push(&self, event: impl FnOnce(Arc<Selection>, Arc<TopologyDescription>) -> EventKind) {
        if let Some(selection) = &self.selection {
            let event = event(Arc::clone(selection), Arc::clone(&self.description));
            self.events.push(self.clock.now(), event);
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if self.selection.is_some() {
            self.fail(
                SelectionFailure::Cancelled,
                "the selection was cancelled by its caller",
            );
        }
    }
}
