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
use sdam_select::{criteria::Criteria, settings::Settings};

use crate::{error::SelectionError, pending::Pending};

/// The environment of a selection.
pub(crate) trait Scene {
    fn events(&self) -> &EventQueue;

    /// Returns the selections that have not ended.
    fn pending(&self) -> &Pending;

    fn now(&self) -> Instant;

    fn description(&self) -> Arc<TopologyDescription>;

    /// Publishes an event about `selection`.
    fn publish(
        &self,
        selection: &Arc<Selection>,
        event: impl FnOnce(Arc<Selection>, Arc<TopologyDescription>) -> EventKind,
    ) {
        let event = event(Arc::clone(selection), self.description());
        self.events().push(self.now(), event);
    }

    /// Publishes the failure of a `selection` that began at `started`.
    fn publish_failure(
        &self,
        selection: &Arc<Selection>,
        started: Instant,
        reason: SelectionFailure,
        failure: String,
    ) {
        let duration = self.now().since(started);
        self.publish(selection, |selection, description| {
            EventKind::ServerSelectionFailed {
                selection,
                description,
                reason,
                failure: failure.into(),
                duration,
            }
        });
    }
}

/// Publishes the failure of all selections in progress when the topology is closed.
pub(crate) fn close(scene: &impl Scene) {
    let error = SelectionError::Closed;
    scene.pending().close(|(selection, started)| {
        scene.publish_failure(&selection, started, error.failure(), error.to_string());
    });
}

/// Publishes the steps of a selection that a sink wants. Dropping it publishes a failure.
pub(crate) struct Report<S: Scene> {
    pub(crate) scene: S,
    pub(crate) started: Instant,
    /// The selection with its number in [`Pending`].
    selection: Option<(u64, Arc<Selection>)>,
}

impl<S: Scene> Report<S> {
    pub(crate) fn begin(scene: S, settings: &Settings, criteria: &Criteria) -> Self {
        let started = scene.now();
        // No step is published of a selection that the queue sheds.
        let events = scene.events();
        let told = events.wants_any(Interest::SELECTION) && events.admits_selection(started);
        let selection = told
            .then(|| describe(settings, criteria))
            .and_then(|selection| {
                let publish = || {
                    scene.publish(&selection, |selection, description| {
                        EventKind::ServerSelectionStarted {
                            selection,
                            description,
                        }
                    });
                };
                let own = (Arc::clone(&selection), started);
                Some((scene.pending().begin(own, publish)?, selection))
            });
        Self {
            scene,
            started,
            selection,
        }
    }

    pub(crate) fn waiting(&self, remaining: Option<Duration>) {
        let Some((number, selection)) = &self.selection else {
            return;
        };
        self.scene.pending().step(*number, || {
            self.scene.publish(selection, |selection, description| {
                EventKind::ServerSelectionWaiting {
                    selection,
                    description,
                    remaining,
                }
            });
        });
    }

    /// Publishes the outcome and returns it, or `Closed` if closing has ended the selection.
    pub(crate) fn end<T>(
        mut self,
        outcome: Result<T, SelectionError>,
        server: impl Fn(&T) -> (ServerId, &ServerAddress),
    ) -> Result<T, SelectionError> {
        let Some((number, selection)) = self.selection.take() else {
            return outcome;
        };
        let open = self.scene.pending().end(number, || match &outcome {
            Ok(selected) => {
                let (server, address) = server(selected);
                let address = address.clone();
                let duration = self.scene.now().since(self.started);
                self.scene.publish(&selection, |selection, description| {
                    EventKind::ServerSelectionSucceeded {
                        selection,
                        description,
                        server,
                        address,
                        duration,
                    }
                });
            }
            Err(error) => {
                let (reason, failure) = (error.failure(), error.without_description());
                self.scene
                    .publish_failure(&selection, self.started, reason, failure);
            }
        });
        if open {
            outcome
        } else {
            Err(SelectionError::Closed)
        }
    }
}

impl<S: Scene> Drop for Report<S> {
    fn drop(&mut self) {
        if let Some((number, selection)) = self.selection.take() {
            self.scene.pending().end(number, || {
                let failure = "the selection was cancelled by its caller".to_owned();
                let reason = SelectionFailure::Cancelled;
                self.scene
                    .publish_failure(&selection, self.started, reason, failure);
            });
        }
    }
}

/// Describes a selection for its events.
fn describe(settings: &Settings, criteria: &Criteria) -> Arc<Selection> {
    let selector = criteria.selector_text(settings).to_string();
    let mut selection = Selection::new(selector);
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
            Self::RuntimeShutDown => SelectionFailure::RuntimeShutDown,
        }
    }

    /// Returns the text for events and logs, which carry the selector and the topology description
    /// themselves (Server Selection: "Server Selection Failed Message").
    fn without_description(&self) -> String {
        match self {
            Self::Timeout(timeout) => timeout.without_description(),
            other => other.to_string(),
        }
    }
}
