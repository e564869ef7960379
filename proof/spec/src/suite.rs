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
    corpus::{self, Folder},
    engine,
    host::Host,
    run::{Offer, Run},
    scan, sdam, selection,
    srv::{self, Kind},
    unified, uri,
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
    /// Returns whether the verdict on a file depends on what the tests do in place of a driver.
    pub stands_in: fn(&Value) -> bool,
}

impl Suite {
    /// All suites, in the order in which they are reported.
    pub const ALL: &[Self] = &[
        Self::sdam(corpus::SDAM_RS),
        Self::sdam(corpus::SDAM_SHARDED),
        Self::sdam(corpus::SDAM_SINGLE),
        Self::sdam(corpus::SDAM_LOAD_BALANCED),
        Self::sdam(corpus::SDAM_ERRORS),
        Self::sdam(corpus::SDAM_MONITORING),
        Self::new(corpus::SERVER_SELECTION, selection::select)
            .through(engine::select, scan::select),
        Self {
            scan_covers: scan::covers_in_window,
            ..Self::new(corpus::IN_WINDOW, selection::in_window)
                .through(engine::in_window, scan::in_window)
        },
        Self::new(corpus::RTT, selection::rtt).through(engine::rtt, scan::rtt),
        Self::new(corpus::MAX_STALENESS, selection::select).through(engine::select, scan::select),
        Self::new(corpus::URI_OPTIONS, uri::check_file),
        Self::new(corpus::CONNECTION_STRING, uri::check_file),
        Self { left_out: auth::left_out, ..Self::new(corpus::CREDENTIALS, auth::check) },
        Self::new(corpus::SRV_REPLICA_SET, srv::check).through(
            |host, file| srv::discover(host, file, Kind::ReplicaSet),
            |file| srv::scan(file, Kind::ReplicaSet),
        ),
        Self::new(corpus::SRV_SHARDED, srv::check).through(
            |host, file| srv::discover(host, file, Kind::Sharded),
            |file| srv::scan(file, Kind::Sharded),
        ),
        Self::new(corpus::SRV_LOAD_BALANCED, srv::check).through(
            |host, file| srv::discover(host, file, Kind::LoadBalanced),
            |file| srv::scan(file, Kind::LoadBalanced),
        ),
        Self::deployed(corpus::SDAM_UNIFIED, unified::runs),
        Self::deployed(corpus::SELECTION_LOGGING, unified::runs),
        Self::deployed(corpus::POOLS, cmap::runs),
        Self::deployed(corpus::POOL_LOGGING, unified::runs),
        Self::deployed(corpus::LOAD_BALANCERS, unified::runs),
        Self::deployed(corpus::BACKPRESSURE, unified::runs),
        Self::deployed(corpus::HANDSHAKE, unified::runs),
        Self::deployed(corpus::VERSIONED_API, unified::runs),
        Self::deployed(corpus::RUN_COMMAND, unified::runs),
        Self::deployed(corpus::SESSIONS, unified::runs),
        Self::deployed(corpus::RETRYABLE_READS, unified::runs),
        Self::deployed(corpus::RETRYABLE_WRITES, unified::runs),
        Self::deployed(corpus::COMMAND_LOGGING, unified::runs),
        Self::deployed(corpus::COMMAND_MONITORING, unified::runs),
        Self::deployed(corpus::TIMEOUTS, unified::runs),
    ];

    const fn new(folder: Folder, pure: Check) -> Self {
        let covers = |_: &Value| true;
        Self {
            folder,
            pure: Some(pure),
            engine: None,
            deployed: None,
            scan: None,
            scan_covers: covers,
            left_out: |_| Vec::new(),
            stands_in: |_| false,
        }
    }

    const fn deployed(folder: Folder, runs: Runs) -> Self {
        Self {
            pure: None,
            deployed: Some(runs),
            left_out: unified::excluded,
            stands_in: unified::stands_in,
            ..Self::new(folder, sdam::pure::check)
        }
    }

    const fn sdam(folder: Folder) -> Self {
        Self::new(folder, sdam::pure::check)
            .through(engine::discovery_and_monitoring, scan::discovery_and_monitoring)
    }

    const fn through(self, engine: HostedCheck, scan: Check) -> Self {
        Self { engine: Some(engine), scan: Some(scan), ..self }
    }

    /// Returns the folder's path in the specifications' repository without the segment `tests`,
    /// such as `server-selection/rtt`.
    pub fn name(&self) -> String {
        let parts = self.folder.name().split('/');
        let parts: Vec<_> = parts.filter(|part| *part != "tests").collect();
        parts.join("/")
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
        let check = |pattern: &str, expected: &[&str]| {
            let meant = Suite::ALL.iter().filter(|suite| suite.matches(pattern));
            assert_eq!(meant.map(Suite::name).collect::<Vec<_>>(), expected, "{pattern}");
        };
        check("server-selection/rtt", &["server-selection/rtt"]);
        check("rtt", &["server-selection/rtt"]);
        check("max-staleness", &["max-staleness"]);
        check(
            "load-balanced",
            &[
                "server-discovery-and-monitoring/load-balanced",
                "initial-dns-seedlist-discovery/load-balanced",
            ],
        );
        check(
            "server-selection",
            &[
                "server-selection/server_selection",
                "server-selection/in_window",
                "server-selection/rtt",
                "server-selection/logging",
            ],
        );
        check(
            "logging",
            &[
                "server-selection/logging",
                "connection-monitoring-and-pooling/logging",
                "command-logging-and-monitoring/logging",
            ],
        );
        check("selection", &[]);
        check("", &[]);
    }
}
