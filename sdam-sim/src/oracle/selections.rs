//! Checks that the events of each selection are complete and in order.

use std::{collections::BTreeMap, sync::Arc};

use sdam_core::event::{Event, EventKind, Selection};

use super::{Oracle, Violation};

/// Checks that every started selection waits at most once and ends exactly once, before the
/// topology is closed (K-7, K-8).
pub(super) fn check_pairs(events: &[Event]) -> Result<(), Violation> {
    // The unfinished selections, each with a flag that is true if it has waited.
    let mut open: BTreeMap<*const Selection, (&Selection, bool)> = BTreeMap::new();
    for event in events {
        let violation = |message: &str, selection: &Selection| {
            let message = format!("K-7: {message}: {selection:?}");
            Err(Oracle::Selection.violated(event.at, message))
        };
        match &event.kind {
            EventKind::ServerSelectionStarted { selection, .. }
                if open.insert(Arc::as_ptr(selection), (selection, false)).is_some() =>
            {
                return violation("a selection has two start events", selection);
            }
            EventKind::ServerSelectionWaiting { selection, .. } => {
                let own = open.get_mut(&Arc::as_ptr(selection));
                if own.is_none_or(|(_, has_waited)| std::mem::replace(has_waited, true)) {
                    return violation(
                        "a selection waits twice, or without a start event",
                        selection,
                    );
                }
            }
            EventKind::ServerSelectionSucceeded { selection, .. }
            | EventKind::ServerSelectionFailed { selection, .. }
                if open.remove(&Arc::as_ptr(selection)).is_none() =>
            {
                return violation("a selection ends twice, or without a start event", selection);
            }
            EventKind::TopologyClosed => {
                if let Some((selection, _)) = open.values().next() {
                    return violation("a selection has no end event", selection);
                }
            }
            _ => {}
        }
    }
    Ok(())
}
