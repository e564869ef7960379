//! Selections that have published their started event, but not yet their last event.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, PoisonError},
};

use sdam_core::{
    event::{EventKind, Selection, SelectionFailure},
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::queue::EventQueue;

use crate::sync::{Mutex, MutexGuard};

/// The selections that have published their started event, but not yet their last event.
///
/// Closing the topology ends these selections (K-7), so that `TopologyClosed` is the last event
/// even if the application holds futures that it does not poll.
///
/// A selection's events are published under this lock, so none of them follows the failed event
/// that closing publishes. This lock may be taken while the topology is locked, but the topology
/// must not be locked while this lock is held. It is taken only for selections whose events a sink
/// wants.
#[derive(Debug, Default)]
pub(crate) struct PendingSelections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    selections: BTreeMap<u64, Started>,
    /// The number of the newest selection.
    last: u64,
    closed: bool,
}

pub(crate) type Started = (Arc<Selection>, Instant);

impl PendingSelections {
    /// Publishes a selection's started event, and returns the selection's number; `None` if the
    /// topology is closed.
    pub(crate) fn begin(&self, started: Started, publish: impl FnOnce()) -> Option<u64> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.last += 1;
        let number = state.last;
        state.selections.insert(number, started);
        publish();
        Some(number)
    }

    /// Publishes an intermediate event of a selection, unless the selection has ended.
    pub(crate) fn step(&self, number: u64, publish: impl FnOnce()) {
        let state = self.lock();
        if state.selections.contains_key(&number) {
            publish();
        }
    }

    /// Publishes a selection's last event, unless the selection has ended. Returns whether the
    /// event was published.
    pub(crate) fn end(&self, number: u64, publish: impl FnOnce()) -> bool {
        let mut state = self.lock();
        let open = state.selections.remove(&number).is_some();
        if open {
            publish();
        }
        open
    }

    /// Publishes a failed event for each selection, oldest first, and refuses new selections.
    pub(crate) fn close(
        &self,
        events: &EventQueue,
        description: &Arc<TopologyDescription>,
        now: Instant,
    ) {
        let mut state = self.lock();
        state.closed = true;
        for (selection, started) in mem::take(&mut state.selections).into_values() {
            let failed = EventKind::ServerSelectionFailed {
                selection,
                description: Arc::clone(description),
                reason: SelectionFailure::Closed,
                failure: CLOSED.into(),
                duration: now.since(started),
            };
            events.push(now, failed);
        }
    }

    /// Locks the state. Poisoning is ignored, because a panic while publishing leaves the state
    /// consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error message of a selection that fails because the topology is closed.
pub(crate) const CLOSED: &str = "the topology is closed: start a new one to select servers";
