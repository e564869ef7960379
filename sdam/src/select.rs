//! Selectors of your own, and the reasons why a selection had no server.
//!
//! A selection chooses from a snapshot, without waiting for a lock. If no server is suitable, it
//! waits for the next snapshot, until its time limit has passed. [`SelectionTimeout`] then has the
//! reasons.

pub(crate) mod error;
pub(crate) mod selected;

use std::{sync::Arc, time::Duration};

use sdam_core::{
    event::{EventKind, Selection, SelectionFailure},
    options::Options,
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::{queue::EventQueue, sink::Interest};
use sdam_select::{
    candidate::Candidate, choose, criteria::Criteria, diagnose::diagnose, explain::explain,
    settings::Settings,
};
pub use sdam_select::{candidate::Candidates, diagnose::Diagnosis, explain::Explanation};
use sdam_transport::clock::Clock;

pub use self::error::{LimitSource, SelectionTimeout};
use self::{error::SelectionError, selected::Selected};
use crate::engine::snapshot::{Published, Snapshot};

/// Selects from `snapshot` without locking, allocating or waiting.
///
/// This function is inlined into its generic callers, so that the result is built in place and not
/// copied.
#[inline]
pub(crate) fn select_from(
    snapshot: &Snapshot,
    settings: &Settings,
    criteria: &Criteria,
    (random, lane): (u64, usize),
) -> Result<Option<Selected>, SelectionError> {
    let chosen = choose_from(snapshot, settings, criteria, random)?;
    let selected = chosen.and_then(|chosen| {
        let server = snapshot.servers.get(chosen.index)?;
        let topology = &snapshot.description;
        Selected::new(server, chosen.server, topology, settings, criteria, lane)
    });
    if selected.is_none() && snapshot.is_abandoned() {
        return Err(SelectionError::RuntimeShutDown);
    }
    Ok(selected)
}

/// Chooses a server of `snapshot`. This function is not generic, so it is compiled only once.
fn choose_from<'s>(
    snapshot: &'s Snapshot,
    settings: &Settings,
    criteria: &Criteria,
    random: u64,
) -> Result<Option<Candidate<'s>>, SelectionError> {
    if snapshot.closed {
        return Err(SelectionError::Closed);
    }
    let topology = &snapshot.description;
    if !topology.is_compatible() {
        return Err(SelectionError::Incompatible { description: Arc::clone(topology) });
    }
    let count = |candidate: Candidate<'_>| snapshot.operation_count(candidate.index);
    choose(topology, settings, criteria, count, random).map_err(SelectionError::InvalidCriteria)
}

/// Explains for each server of `snapshot` why a selection would choose or reject it. For a server
/// that is suspected to have failed, also states how long it has been silent. For a server to which
/// a check is connecting, also states how long the attempt has lasted.
pub(crate) fn explain_from(
    snapshot: &Snapshot,
    settings: &Settings,
    criteria: &Criteria,
    now: Instant,
) -> Explanation {
    let mut explanation = explain(&snapshot.description, settings, criteria);
    for (explained, server) in explanation.servers.iter_mut().zip(snapshot.servers()) {
        let silence = server.silence();
        let answered = silence.answered.filter(|_| silence.suspected.is_some());
        explained.silent_for = answered.map(|answered| now.since(answered));
        explained.connecting_for = server.connecting().map(|since| now.since(since));
    }
    explanation
}

/// The time limit of a selection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) timeout: Duration,
    pub(crate) source: LimitSource,
}

impl Limit {
    /// Returns the configured limit: `serverSelectionTimeoutMS`, or `timeoutMS` if that is
    /// shorter. A `timeoutMS` of zero means no limit (Server Selection: "Timeouts").
    pub(crate) fn configured(options: &Options) -> Self {
        let timeout = options.timeout.filter(|timeout| !timeout.is_zero());
        Self::within(options, timeout, LimitSource::Timeout)
    }

    /// Returns the limit for a call that has `timeout` left: that time, but at most
    /// `serverSelectionTimeoutMS`.
    pub(crate) fn of_call(options: &Options, timeout: Duration) -> Self {
        Self::within(options, Some(timeout), LimitSource::Call)
    }

    fn within(options: &Options, timeout: Option<Duration>, source: LimitSource) -> Self {
        let own = options.server_selection_timeout;
        match timeout.filter(|timeout| *timeout < own) {
            Some(timeout) => Self { timeout, source },
            None => Self { timeout: own, source: LimitSource::ServerSelectionTimeout },
        }
    }

    /// Builds the error for a selection that began at `started` and fails at `at`. The error
    /// contains no history yet.
    pub(crate) fn timed_out(
        self,
        snapshot: &Snapshot,
        settings: &Settings,
        criteria: &Criteria,
        started: Instant,
        at: Instant,
    ) -> Box<SelectionTimeout> {
        let topology = &snapshot.description;
        let explanation = explain_from(snapshot, settings, criteria, at);
        Box::new(SelectionTimeout {
            criteria: criteria.clone(),
            diagnoses: diagnose(topology, &explanation),
            explanation,
            failures: snapshot.servers().map(|server| server.failures()).collect(),
            description: Arc::clone(topology),
            timeout: self.timeout,
            limit_source: self.source,
            waited: at.since(started),
            at,
            history: Vec::new(),
        })
    }
}

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
