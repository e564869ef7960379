//! The events of a selection.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    address::ServerAddress,
    event::{EventKind, Selection, SelectionFailure},
    ids::ServerId,
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::{queue::EventQueue, sink::Interest};
use sdam_select::criteria::Criteria;

use crate::error::SelectionError;

/// Where a selection takes place.
pub(crate) trait Scene {
    fn events(&self) -> &EventQueue;

    fn now(&self) -> Instant;

    /// What is known now.
    fn description(&self) -> Arc<TopologyDescription>;
}

/// Publishes the steps of a selection, if anybody listens; a selection that is dropped fails.
pub(crate) struct Report<S: Scene> {
    pub(crate) scene: S,
    pub(crate) started: Instant,
    selection: Option<Arc<Selection>>,
}

impl<S: Scene> Report<S> {
    pub(crate) fn begin(scene: S, criteria: &Criteria) -> Self {
        let started = scene.now();
        let wanted = scene.events().wants_any(Interest::SELECTION);
        let selection = wanted.then(|| describe(criteria));
        let report = Self {
            scene,
            started,
            selection,
        };
        report.push(|selection, description| EventKind::ServerSelectionStarted {
            selection,
            description,
        });
        report
    }

    pub(crate) fn waiting(&self, remaining: Option<Duration>) {
        self.push(|selection, description| EventKind::ServerSelectionWaiting {
            selection,
            description,
            remaining,
        });
    }

    pub(crate) fn end(mut self, outcome: Result<(ServerId, &ServerAddress), &SelectionError>) {
        let duration = self.scene.now().since(self.started);
        match outcome {
            Ok((server, address)) => {
                let address = address.clone();
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
            Err(error) => self.fail(error.failure(), || error.without_description()),
        }
        self.selection = None;
    }

    fn fail(&self, reason: SelectionFailure, failure: impl FnOnce() -> String) {
        let duration = self.scene.now().since(self.started);
        self.push(|selection, description| EventKind::ServerSelectionFailed {
            selection,
            description,
            reason,
            failure: failure().into(),
            duration,
        });
    }

    fn push(&self, event: impl FnOnce(Arc<Selection>, Arc<TopologyDescription>) -> EventKind) {
        if let Some(selection) = &self.selection {
            let event = event(Arc::clone(selection), self.scene.description());
            self.scene.events().push(self.scene.now(), event);
        }
    }
}

impl<S: Scene> Drop for Report<S> {
    fn drop(&mut self) {
        if self.selection.is_some() {
            self.fail(SelectionFailure::Cancelled, || {
                "the selection was cancelled by its caller".to_owned()
            });
        }
    }
}

/// What the events of a selection call it.
fn describe(criteria: &Criteria) -> Arc<Selection> {
    let mut selection = Selection::new(criteria.to_string());
    selection.operation = criteria.operation_name().map(Into::into);
    selection.operation_id = criteria.operation_id();
    Arc::new(selection)
}

impl SelectionError {
    fn failure(&self) -> SelectionFailure {
        match self {
            Self::Timeout(_) => SelectionFailure::Timeout,
            Self::Incompatible { .. } => SelectionFailure::Incompatible,
            Self::InvalidCriteria(_) => SelectionFailure::InvalidCriteria,
            Self::TooManyWaiters { .. } => SelectionFailure::TooManyWaiters,
            Self::Closed => SelectionFailure::Closed,
        }
    }

    /// The text for events and logs, which carry the topology description themselves (Server
    /// Selection: "Server Selection Failed Message").
    fn without_description(&self) -> String {
        match self {
            Self::Timeout(timeout) => timeout.without_description(),
            other => other.to_string(),
        }
    }
}
