//! Selections that listeners were told of and that have not ended.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, PoisonError},
};

use sdam_core::{event::Selection, time::Instant};

use crate::sync::{Mutex, MutexGuard};

/// The selections whose start was published and whose end was not.
///
/// Closing the topology ends all of them (K-7). So `TopologyClosed` is the last event, and yet it
/// waits for no future that the application holds and does not poll.
///
/// Every step of a selection is published with this lock held: a selection that closing has ended
/// takes no further step. The lock is taken under the topology lock, never the other way round, and
/// only for selections that somebody listens to.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    selections: BTreeMap<u64, Started>,
    /// The number of the newest one.
    last: u64,
    closed: bool,
}

/// A selection, and when it started.
pub(crate) type Started = (Arc<Selection>, Instant);

impl Pending {
    /// Publishes the start of a selection, and gives it a number; `None` if the topology is closed.
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

    /// Publishes a step of a selection that has not ended.
    pub(crate) fn step(&self, number: u64, publish: impl FnOnce()) {
        let state = self.lock();
        if state.selections.contains_key(&number) {
            publish();
        }
    }

    /// Publishes the end of a selection that has not ended; whether it had not.
    pub(crate) fn end(&self, number: u64, publish: impl FnOnce()) -> bool {
        let mut state = self.lock();
        let open = state.selections.remove(&number).is_some();
        if open {
            publish();
        }
        open
    }

    /// Publishes the end of all selections, oldest first, and lets none begin any more.
    pub(crate) fn close(&self, publish: impl FnMut(Started)) {
        let mut state = self.lock();
        state.closed = true;
        mem::take(&mut state.selections)
            .into_values()
            .for_each(publish);
    }

    /// A publication that panics leaves nothing half-changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
