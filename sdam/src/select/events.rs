//! The events of a selection.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    event::{EventKind, Selection, SelectionFailure},
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::{queue::EventQueue, sink::Interest};
use sdam_select::{criteria::Criteria, settings::Settings};
use sdam_transport::clock::Clock;

use super::{error::SelectionError, selected::Selected};
use crate::engine::snapshot::Published;

/// The parts of a topology that selection events need.
#[derive(Clone, Copy)]
pub(crate) struct SelectionContext<'t> {
    pub(crate) published: &'t Published,
    pub(crate) events: &'t EventQueue,
    pub(crate) clock: &'t dyn Clock,
    pub(crate) settings: &'t Settings,
}

impl SelectionContext<'_> {
    /// Publishes an event about `selection`.
    fn publish(
        &self,
        selection: &Arc<Selection>,
        event: impl FnOnce(Arc<Selection>, Arc<TopologyDescription>) -> EventKind,
    ) {
        let description = Arc::clone(&self.published.load().description);
        let event = event(Arc::clone(selection), description);
        self.events.push(self.clock.now(), event);
    }
}

/// Publishes the events of a selection, if a sink wants them. If this value is dropped before the
/// last event, it publishes a failed event.
pub(crate) struct SelectionEvents<'t> {
    context: SelectionContext<'t>,
    pub(crate) started: Instant,
    /// The selection with its number in [`Published::pending`].
    selection: Option<(u64, Arc<Selection>)>,
}

impl<'t> SelectionEvents<'t> {
    pub(crate) fn begin(context: SelectionContext<'t>, criteria: &Criteria) -> Self {
        let started = context.clock.now();
        // If the queue drops a selection's started event, none of the selection's later events is
        // published.
        let events = context.events;
        let wanted = events.wants_any(Interest::SELECTION) && events.admits_operation(started);
        let selection =
            wanted.then(|| describe(context.settings, criteria)).and_then(|selection| {
                let publish = || {
                    context.publish(&selection, |selection, description| {
                        EventKind::ServerSelectionStarted { selection, description }
                    });
                };
                let own = (Arc::clone(&selection), started);
                let number = context.published.pending.begin(own, publish)?;
                Some((number, selection))
            });
        Self { context, started, selection }
    }

    /// Publishes that the selection is waiting, for at most `remaining`.
    pub(crate) fn waiting(&self, remaining: Option<Duration>) {
        let Some((number, selection)) = &self.selection else {
            return;
        };
        self.context.published.pending.step(*number, || {
            self.context.publish(selection, |selection, description| {
                EventKind::ServerSelectionWaiting { selection, description, remaining }
            });
        });
    }

    /// Publishes the outcome and returns it. Returns `Closed` if closing the topology has already
    /// ended the selection.
    pub(crate) fn end(
        mut self,
        outcome: Result<Selected, SelectionError>,
    ) -> Result<Selected, SelectionError> {
        let Some((number, selection)) = self.selection.take() else {
            return outcome;
        };
        let open = self.context.published.pending.end(number, || match &outcome {
            Ok(selected) => {
                let (server, address) = (selected.id(), selected.address().clone());
                let duration = self.context.clock.now().since(self.started);
                self.context.publish(&selection, |selection, description| {
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
                self.publish_failure(&selection, error.failure(), error.without_description());
            }
        });
        if open { outcome } else { Err(SelectionError::Closed) }
    }

    fn publish_failure(
        &self,
        selection: &Arc<Selection>,
        reason: SelectionFailure,
        failure: String,
    ) {
        let duration = self.context.clock.now().since(self.started);
        self.context.publish(selection, |selection, description| {
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

impl Drop for SelectionEvents<'_> {
    fn drop(&mut self) {
        if let Some((number, selection)) = self.selection.take() {
            self.context.published.pending.end(number, || {
                let failure = "the selection was cancelled by its caller".to_owned();
                self.publish_failure(&selection, SelectionFailure::Cancelled, failure);
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
