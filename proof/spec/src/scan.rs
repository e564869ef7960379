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

use crate::{selection::file::InWindowFile, srv};

/// A check of one file; the error is the first difference.
pub type Check = fn(&Value) -> Result<(), String>;

/// The check of a suite in single-threaded mode.
#[derive(Clone, Copy, Debug)]
pub struct ScanCheck {
    /// The check.
    pub check: Check,
    /// Returns whether the file applies to single-threaded mode. An unreadable file does, so that
    /// the check reports the reason.
    pub covers: fn(&Value) -> bool,
}

impl ScanCheck {
    /// `server-discovery-and-monitoring/tests`: each reply of a phase answers one check. Also
    /// checks that the server is not checked more often, that events are numbered without gaps,
    /// that every heartbeat ends, and that closing leaves no connection.
    pub const DISCOVERY_AND_MONITORING: Self = Self::all(sdam::check);
    /// `server-selection/tests/server_selection`: a scan produces the description, and servers are
    /// selected from it, with and without `serverSelectionTryOnce`.
    pub const SERVER_SELECTION: Self = Self::all(selection::server_selection);
    /// `max-staleness/tests`, likewise.
    pub const MAX_STALENESS: Self = Self::all(selection::max_staleness);
    /// `server-selection/tests/rtt`: a server delays its replies.
    pub const RTT: Self = Self::all(selection::rtt);
    /// `server-selection/tests/in_window`: the selection frequency of each server.
    pub const IN_WINDOW: Self = Self {
        check: selection::in_window,
        // Server Selection: "Selecting servers within the latency window": a single-threaded client
        // chooses at random. Operation counts yield the same result only if they are equal.
        covers: |file| InWindowFile::parse(file).map_or(true, |file| file.is_balanced()),
    };

    /// `initial-dns-seedlist-discovery/tests/replica-set`: the seeds lead to the servers.
    pub const SRV_REPLICA_SET: Self = Self::all(srv::scan_replica_set);
    /// `initial-dns-seedlist-discovery/tests/sharded`, likewise.
    pub const SRV_SHARDED: Self = Self::all(srv::scan_sharded);
    /// `initial-dns-seedlist-discovery/tests/load-balanced`, likewise.
    pub const SRV_LOAD_BALANCED: Self = Self::all(srv::scan_load_balanced);

    const fn all(check: Check) -> Self {
        Self { check, covers: |_| true }
    }
}
