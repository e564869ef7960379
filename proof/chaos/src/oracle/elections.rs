//! Invariant P2: the newest known election is replaced only by a newer one.

use sdam_core::event::{Event, EventKind};
use sdam_model::election::violation;
use sdam_sim::oracle::{Oracle, Violation};

/// Checks every change of the topology.
pub(crate) fn check(events: &[Event]) -> Result<(), Violation> {
    for event in events {
        let EventKind::TopologyDescriptionChanged { previous, new } = &event.kind else {
            continue;
        };
        if new.servers().is_empty() {
            // The topology was closed, or has no servers left.
            continue;
        }
        if let Some(reason) = violation(previous, new) {
            let message = format!("{reason}: {previous} becomes {new}");
            return Err(Oracle::Election.violated(event.at, message));
        }
    }
    Ok(())
}
