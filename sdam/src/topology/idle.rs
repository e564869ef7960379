//! Pauses an idle client automatically.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sdam_core::time::Instant;

/// Decides when an idle topology pauses. There is no timer: each server's task asks after every
/// wake-up, at least once per heartbeat.
#[derive(Debug)]
pub(crate) struct IdlePause {
    after: Duration,
    /// The number of selections when it was last read, and the time since which the topology has
    /// been idle.
    seen: Mutex<(u64, Instant)>,
}

impl IdlePause {
    pub(crate) fn new(after: Duration, now: Instant) -> Self {
        Self { after, seen: Mutex::new((0, now)) }
    }

    /// Returns whether no selection has begun during the configured time. `selections` changes with
    /// every selection; `in_use` is true if operations are in progress or selections wait.
    pub(crate) fn is_due(&self, now: Instant, selections: u64, in_use: bool) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if in_use || seen.0 != selections {
            *seen = (selections, now);
        }
        now.since(seen.1) >= self.after
    }
}
