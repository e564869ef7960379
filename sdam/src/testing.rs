//! Checks without servers, for tests of drivers and tools.

use std::time::Duration;

use sdam_core::{error::Error, ids::ServerId};

use crate::topology::Topology;

/// Applies the outcome of a check of `server` that the caller plays: the BSON document of a reply to
/// hello and its round-trip time, or an error.
///
/// Meant for a topology whose monitors have no connection; otherwise its own checks go on.
/// Must not be called with a lock held that a pool's `ready`, `clear` or `close` take.
pub fn play_check<P>(
    topology: &Topology<P>,
    server: ServerId,
    outcome: Result<&[u8], Error>,
    rtt: Duration,
) {
    topology.shared().handle_check(server, outcome, rtt);
}
