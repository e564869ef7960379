//! Runs test files against a topology in single-threaded mode.
//!
//! There is no runtime, and there are no tasks. Operations behave as with blocking sockets: each
//! operation advances the clock of the harness and completes. Every future of the topology must
//! therefore be ready at its first poll.

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

/// Returns whether a file from `server-selection/tests/in_window` applies to single-threaded mode.
/// Returns true for a malformed file, so that the check reports the error.
///
/// A single-threaded client chooses at random (Server Selection: "Selecting servers within the
/// latency window"). A choice by operation counts has the same result only if all counts are equal.
pub fn covers_in_window(file: &Value) -> bool {
    InWindowFile::parse(file).map_or(true, |file| file.is_balanced())
}
