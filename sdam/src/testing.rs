//! Simulates checks in the tests of drivers and tools.

use std::time::Duration;

use sdam_core::{deployment::Input, error::Error, hello::HelloReply, ids::ServerId};

use crate::topology::Topology;

/// Applies the outcome of a simulated check of `server`: the BSON document of a reply to hello with
/// its round-trip time, or an error.
///
/// The topology's own checks continue, so a test should make sure that its monitors cannot connect.
/// Must not be called while holding a lock that a pool's `ready`, `clear` or `close` takes.
pub fn play_check<P>(
    topology: &Topology<P>,
    server: ServerId,
    outcome: Result<&[u8], Error>,
    rtt: Duration,
) {
    let outcome = outcome.map(HelloReply::parse);
    topology.shared().handle(Input::Played { server, outcome, rtt });
}
