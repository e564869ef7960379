//! Checks that the events of each selection pair up.

use std::{collections::BTreeMap, sync::Arc};

use sdam_core::event::{Event, EventKind, Selection};

use super::{Oracle, Violation};

/// Checks that every selection that was published as started ends exactly once and waits at most
/// once, both before the topology is closed (K-7, K-8).
pub(super) fn pairs(events: &[Event]) -> Result<(), Violation> {
    let mut open: BTreeMap<*const Selection, Step<'_>> = BTreeMap::new();
    for event in events {
        let broken = |message: &str, selection: &Selection| {
            let message = format!("K-7: {message}: {selection:?}");
            Err(Oracle::Selection.violated(event.at, message))
        };
        match &event.kind {
            EventKind::ServerSelectionStarted { selection, .. } => {
                let waits = false;
                let step = Step { selection, waits };
                if open.insert(Arc::as_ptr(selection), step).is_some() {
                    return broken("a selection starts twice", selection);
                }
            }
            EventKind::ServerSelectionWaiting { selection, .. } => {
                let step = open.get_mut(&Arc::as_ptr(selection));
                if step.is_none_or(|step| std::mem::replace(&mut step.waits, true)) {
                    return broken("a selection that is not open waits", selection);
                }
            }
            EventKind::ServerSelectionSucceeded { selection, .. }
            | EventKind::ServerSelectionFailed { selection, .. }
                if open.remove(&Arc::as_ptr(selection)).is_none() =>
            {
                return broken("a selection that is not open ends", selection);
            }
            EventKind::TopologyClosed => {
                if let Some(step) = open.values().next() {
                    return broken("a selection never ends", step.selection);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The progress of a selection that has not ended.
struct Step<'e> {
    selection: &'e Selection,
    waits: bool,
}
