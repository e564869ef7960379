//! Test files against a running topology, on any runtime.
//!
//! The code is that of a real client; only its environment is simulated. Tasks run on a [`Host`].
//! Connections are those of [`Servers`](sdam_testkit::Servers), which reply as the file requires.
//! Time advances only when a file needs it, so nothing waits for real time: [`activity`] detects
//! when the engine has processed its input.

pub mod activity;
mod drive;
mod harness;
mod sdam;
mod selection;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::host::Host;

pub use self::selection::{in_window, rtt, select};

/// Runs a file of `server-discovery-and-monitoring/tests` against a running topology.
///
/// Also checks that the topology processes one check per server at a time, that events are numbered
/// without gaps, that every heartbeat ends, and that closing leaves neither tasks nor connections.
pub fn discovery_and_monitoring(host: &Host, file: &Value) -> Result<(), String> {
    crate::sdam::check(file, |options| sdam::Engine::start(host, options))
}
