//! The list of all suites.
//!
//! This table lists rules that only the official files test, for each folder. Tests next to the
//! code cite the other rules.
//!
//! | folder | rules |
//! | --- | --- |
//! | `rs` | A-1, A-3, A-10 to; C-7, C-9, C-25; D-22 to D-25, D-27 to D-29, D-33, D-37, D-50 to D-56, D-58, D-59, D-80 |
//! | `sharded` | A-1, D-3, D-80 |
//! | `single` | A-1, D-1, D-70, E-2 |
//! | `load-balanced` | A-1, D-81 |
//! | `errors` | I-2, I-17 |
//! | `monitoring` | J-1, J-2, J-4, J-5, J-15 to J-17, J-19, J-21, J-40, J-42 |
//! | `initial-dns-seedlist-discovery` | B-8, B-11, B-12, B-29, B-36; N-1 to N-9, N-11, N-13 |
//! | `unified` | F-65, I-12, J-9, K-6 |
//! | `cmap-format` | F-65, F-68b |
//! | `client-side-operations-timeout` | B-43, I-70 to I-73, S-1 to S-3, S-5 |
//! | `retryable-reads` | I-74, Q-2 |
//! | `retryable-writes` | I-75, Q-1, Q-2, Q-4, Q-7, Q-9 |
//! | `sessions` | R-5 |
//! | `auth` | T-20 to T-22 |
//! | `uri-options` | B-12, B-15, B-22, B-23, B-35; U-3, V-1, V-2 |

use serde_json::Value;

use crate::{
    auth, cmap,
    corpus::Folder,
    engine,
    host::Host,
    requirement::Kind,
    run::{Offer, Run},
    scan, sdam, selection, srv, unified, uri,
};

/// A check of one file. The error describes the first difference from the expected results.
pub type Check = fn(&Value) -> Result<(), String>;

/// A check of one file, run on a host.
pub type HostedCheck = fn(&Host, &Value) -> Result<(), String>;

/// A function that returns the runs of a file in the environments that a host offers.
pub type Runs = fn(&Offer, &Value) -> Result<Vec<Run>, String>;

/// A folder of test files, and the checks that run them.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// The folder with the files.
    pub folder: Folder,
    /// The check without a runtime, or `None` if the files need a running topology.
    pub pure: Option<Check>,
    /// The check through the engine, or `None` if the files do not concern the engine.
    pub engine: Option<HostedCheck>,
    /// The runs on complete deployments, or `None` if the files themselves define the servers'
    /// replies.
    pub deployed: Option<Runs>,
    /// The check in single-threaded mode, or `None` if the files do not concern this mode.
    pub scan: Option<Check>,
    /// Returns whether a file applies to single-threaded mode.
    pub scan_covers: fn(&Value) -> bool,
    /// Returns the tests of a file that are never run, with the reasons.
    pub left_out: fn(&Value) -> Vec<(String, &'static str)>,
    /// Returns whether the verdict on a file depends on code of the tests that replaces parts of a
    /// driver.
    pub stands_in: fn(&Value) -> bool,
}

impl Suite {
    /// All suites, in the order in which they are reported.
    pub const ALL: &[Self] = &[
        Self::sdam("server-discovery-and-monitoring/rs", "discovery_and_monitoring/rs", 77),
        Self::sdam(
            "server-discovery-and-monitoring/sharded",
            "discovery_and_monitoring/sharded",
            9,
        ),
        Self::sdam("server-discovery-and-monitoring/single", "discovery_and_monitoring/single", 19),
        Self::sdam(
            "server-discovery-and-monitoring/load-balanced",
            "discovery_and_monitoring/load-balanced",
            1,
        ),
        Self::sdam("server-discovery-and-monitoring/errors", "discovery_and_monitoring/errors", 72),
        Self::sdam("server-discovery-and-monitoring/monitoring", "sdam_monitoring", 8),
        Self::new(
            "server-selection/server_selection",
            "server_selection/server_selection",
            88,
            selection::select,
        )
        .through(engine::select, scan::select),
        Self {
            scan_covers: scan::covers_in_window,
            ..Self::new(
                "server-selection/in_window",
                "server_selection/in_window",
                8,
                selection::in_window,
            )
            .through(engine::in_window, scan::in_window)
        },
        Self::new("server-selection/rtt", "server_selection/rtt", 7, selection::rtt)
            .through(engine::rtt, scan::rtt),
        Self::new("max-staleness", "max_staleness", 32, selection::select)
            .through(engine::select, scan::select),
        // PyMongo does not support proxies.
        Self::new("uri-options", "uri_options", 12, uri::check_file).in_pymongo(11),
        Self::new("connection-string", "connection_string/test", 8, uri::check_file),
        Self {
            left_out: auth::left_out,
            ..Self::new("auth/legacy", "auth/legacy", 1, auth::check)
        },
        // PyMongo has more of these files, because it contains a later version of the
        // specifications.
        Self::srv("initial-dns-seedlist-discovery/replica-set", "srv_seedlist/replica-set", 40)
            .in_pymongo(42)
            .through(
                |host, file| srv::discover(host, file, Kind::ReplicaSet),
                |file| srv::scan(file, Kind::ReplicaSet),
            ),
        Self::srv("initial-dns-seedlist-discovery/sharded", "srv_seedlist/sharded", 4).through(
            |host, file| srv::discover(host, file, Kind::Sharded),
            |file| srv::scan(file, Kind::Sharded),
        ),
        Self::srv("initial-dns-seedlist-discovery/load-balanced", "srv_seedlist/load-balanced", 9)
            .through(
                |host, file| srv::discover(host, file, Kind::LoadBalanced),
                |file| srv::scan(file, Kind::LoadBalanced),
            ),
        Self::deployed(
            "server-discovery-and-monitoring/unified",
            "discovery_and_monitoring/unified",
            36,
        )
        .in_pymongo(28),
        Self::deployed("server-selection/logging", "server_selection_logging", 5),
        Self {
            deployed: Some(cmap::runs),
            ..Self::deployed(
                "connection-monitoring-and-pooling/cmap-format",
                "connection_monitoring",
                33,
            )
            .in_pymongo(31)
        },
        Self::deployed("connection-monitoring-and-pooling/logging", "connection_logging", 2)
            .in_pymongo(1),
        Self::deployed("load-balancers", "load_balancer", 8).in_pymongo(6),
        Self::deployed("client-backpressure", "client-backpressure", 4),
        Self::deployed("mongodb-handshake/unified", "handshake/unified", 1),
        Self::deployed("versioned-api", "versioned-api", 6),
        Self::deployed("run-command/unified", "run_command", 2),
        // The other files test causal consistency and snapshots, which are left to drivers.
        Self::deployed("sessions", "sessions", 3).only(&[
            "driver-sessions-dirty-session-errors",
            "driver-sessions-server-support",
            "implicit-sessions-default-causal-consistency",
        ]),
        Self::deployed("retryable-reads/unified", "retryable_reads/unified", 45),
        Self::deployed("retryable-writes/unified", "retryable_writes/unified", 35),
        Self::deployed("command-logging-and-monitoring/logging", "command_logging", 9),
        Self::deployed("command-logging-and-monitoring/monitoring", "command_monitoring", 14),
        // The other files test change streams, tailable cursors, GridFS, bulk writes with several
        // commands and the transaction helper. PyMongo has no timeouts for databases and
        // collections.
        Self::deployed("client-side-operations-timeout", "csot", 18).in_pymongo(16).only(&[
            "close-cursors",
            "command-execution",
            "cursors",
            "deprecated-options",
            "error-transformations",
            "global-timeoutMS",
            "legacy-timeouts",
            "non-tailable-cursors",
            "override-collection-timeoutMS",
            "override-database-timeoutMS",
            "override-operation-timeoutMS",
            "retryability-legacy-timeouts",
            "retryability-timeoutMS",
            "runCursorCommand",
            "sessions-inherit-timeoutMS",
            "sessions-override-operation-timeoutMS",
            "sessions-override-timeoutMS",
            "waitQueueTimeout",
        ]),
    ];

    const fn new(name: &'static str, pymongo: &'static str, files: usize, pure: Check) -> Self {
        let covers = |_: &Value| true;
        Self {
            folder: Folder::new(name, pymongo, files),
            pure: Some(pure),
            engine: None,
            deployed: None,
            scan: None,
            scan_covers: covers,
            left_out: |_| Vec::new(),
            stands_in: |_| false,
        }
    }

    const fn sdam(name: &'static str, pymongo: &'static str, files: usize) -> Self {
        Self::new(name, pymongo, files, sdam::pure::check)
            .through(engine::discovery_and_monitoring, scan::discovery_and_monitoring)
    }

    const fn srv(name: &'static str, pymongo: &'static str, files: usize) -> Self {
        Self::new(name, pymongo, files, srv::check)
    }

    const fn deployed(name: &'static str, pymongo: &'static str, files: usize) -> Self {
        Self {
            pure: None,
            deployed: Some(unified::runs),
            left_out: unified::excluded,
            stands_in: unified::stands_in,
            ..Self::new(name, pymongo, files, sdam::pure::check)
        }
    }

    const fn through(self, engine: HostedCheck, scan: Check) -> Self {
        Self { engine: Some(engine), scan: Some(scan), ..self }
    }

    const fn in_pymongo(self, files: usize) -> Self {
        Self { folder: self.folder.in_pymongo(files), ..self }
    }

    const fn only(self, names: &'static [&'static str]) -> Self {
        Self { folder: self.folder.only(names), ..self }
    }

    /// Returns the folder's path in the specifications' repository without the segment `tests`,
    /// such as `server-selection/rtt`.
    pub const fn name(&self) -> &'static str {
        self.folder.name
    }

    /// Returns whether `pattern` is the whole name of this suite, or the first or last segments of
    /// the name.
    pub fn matches(&self, pattern: &str) -> bool {
        let name = self.name();
        let rest = [name.strip_prefix(pattern), name.strip_suffix(pattern)];
        matches!(rest, [Some(tail), _] if tail.is_empty() || tail.starts_with('/'))
            || matches!(rest, [_, Some(head)] if head.ends_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_match_their_names_and_whole_path_components() {
        for (pattern, expected) in [
            ("server-selection/rtt", "server-selection/rtt"),
            ("rtt", "server-selection/rtt"),
            ("max-staleness", "max-staleness"),
            (
                "load-balanced",
                "server-discovery-and-monitoring/load-balanced \
                 initial-dns-seedlist-discovery/load-balanced",
            ),
            (
                "server-selection",
                "server-selection/server_selection server-selection/in_window \
                 server-selection/rtt server-selection/logging",
            ),
            ("selection", ""),
            ("", ""),
        ] {
            let meant = Suite::ALL.iter().filter(|suite| suite.matches(pattern));
            assert_eq!(meant.map(Suite::name).collect::<Vec<_>>().join(" "), expected, "{pattern}");
        }
    }
}
