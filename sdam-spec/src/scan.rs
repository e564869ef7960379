//! Files against a topology in single-threaded mode.
//!
//! There is no runtime and no task: whatever takes time moves the world's clock and is done, as
//! with blocking sockets. So every future of the topology has to be ready when it is polled once.

mod lead;
mod sdam;
mod selection;
#[cfg(test)]
mod tests;
mod world;

use serde_json::Value;

use crate::{selection::file::InWindowFile, suite::Check};

/// How the files of a suite are run in single-threaded mode.
#[derive(Clone, Copy, Debug)]
pub struct ScanCheck {
    /// The check.
    pub check: Check,
    /// Whether single-threaded mode has to do what the file says; one that cannot be read is
    /// covered, so that the check says why.
    pub covers: fn(&Value) -> bool,
}

impl ScanCheck {
    /// `server-discovery-and-monitoring/tests`: what a phase lets a server say is said to one check
    /// of it. Checks besides that it is asked no more often, that events are numbered without gaps,
    /// that every heartbeat ends, and that closing leaves no connection.
    pub const DISCOVERY_AND_MONITORING: Self = Self::all(sdam::check);
    /// `server-selection/tests/server_selection`: a scan leads to the description, and servers are
    /// selected from it, with and without `serverSelectionTryOnce`.
    pub const SERVER_SELECTION: Self = Self::all(selection::server_selection);
    /// `max-staleness/tests`, likewise.
    pub const MAX_STALENESS: Self = Self::all(selection::max_staleness);
    /// `server-selection/tests/rtt`: a server takes its time to answer checks.
    pub const RTT: Self = Self::all(selection::rtt);
    /// `server-selection/tests/in_window`: how often each server is selected.
    pub const IN_WINDOW: Self = Self {
        check: selection::in_window,
        // Server Selection: "Selecting servers within the latency window": a single-threaded client
        // chooses at random. That is what operation counts lead to only if they are all equal.
        covers: |file| InWindowFile::parse(file).map_or(true, |file| file.is_balanced()),
    };

    const fn all(check: Check) -> Self {
        Self {
            check,
            covers: |_| true,
        }
    }
}
