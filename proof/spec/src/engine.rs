//! Runs test files against a running topology, on any runtime.
//!
//! The client is real; only its environment is simulated. Tasks run on a [`Host`]. Connections lead
//! to [`Servers`](sdam_testkit::Servers), which reply as the file requires. Time advances only when
//! a file needs it, so no real time is spent on waiting. [`activity`] detects when the engine has
//! processed its input.

pub mod activity;
mod drive;
mod harness;
mod sdam;
mod selection;
#[cfg(test)]
pub(crate) mod tests;

use serde_json::Value;

use crate::host::Host;

pub use self::selection::{in_window, rtt, select};

/// Runs a file from `server-discovery-and-monitoring/tests` against a running topology.
///
/// Also checks that the topology runs one check per server at a time, that events are numbered
/// without gaps, that every heartbeat ends, and that no task or connection is left after closing.
pub fn discovery_and_monitoring(host: &Host, file: &Value) -> Result<(), String> {
    crate::sdam::check(file, |options| sdam::Engine::start(host, options))
}
