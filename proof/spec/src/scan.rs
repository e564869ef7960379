//! Test files against a topology in single-threaded mode.
//!
//! There is no runtime and no task: as with blocking sockets, every operation advances the
//! harness's clock and completes. Therefore every future of the topology must be ready at its first
//! poll.

mod drive;
mod harness;
mod sdam;
mod selection;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::selection::file::InWindowFile;

pub use self::{
    sdam::check as discovery_and_monitoring,
    selection::{in_window, rtt, select},
};

/// Returns whether a file of `server-selection/tests/in_window` applies to single-threaded mode.
/// For a malformed file it returns true, so that the check reports the error.
///
/// Server Selection: "Selecting servers within the latency window": a single-threaded client
/// chooses at random. Operation counts yield the same result only if they are equal.
pub fn covers_in_window(file: &Value) -> bool {
    InWindowFile::parse(file).map_or(true, |file| file.is_balanced())
}
