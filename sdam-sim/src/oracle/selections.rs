//! Checks that the events of each selection are complete and in order.

use std::{collections::BTreeMap, sync::Arc};

use sdam_core::event::{Event, EventKind, Selection};

use super::{Oracle, Violation};

/// Checks that every started selection waits at most once and ends exactly once, before the
/// topology is closed (K-7, K-8).
pub(super) fn check_pairs(events: &[Event]) -> Result<(), Violation> {
    let mut open: BTreeMap<*const Selection, OpenSelection<'_>> = BTreeMap::new();
    for event in events {
        let violation = |message: &str, selection: &Selection| {
            let message = format!("K-7: {message}: {selection:?}");
            Err(Oracle::Selection.violated(event.at, message))
        };
        match &event.kind {
            EventKind::ServerSelectionStarted { selection, .. } => {
                let has_waited = false;
                let open_selection = OpenSelection { selection, has_waited };
                if open.insert(Arc::as_ptr(selection), open_selection).is_some() {
                    return violation("a selection has two start events", selection);
                }
            }
            EventKind::ServerSelectionWaiting { selection, .. } => {
                let open_selection = open.get_mut(&Arc::as_ptr(selection));
                if open_selection.is_none_or(|open_selection| {
                    std::mem::replace(&mut open_selection.has_waited, true)
                }) {
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
                if let Some(open_selection) = open.values().next() {
                    return violation("a selection has no end event", open_selection.selection);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The progress of an unfinished selection.
struct OpenSelection<'e> {
    selection: &'e Selection,
    has_waited: bool,
}
