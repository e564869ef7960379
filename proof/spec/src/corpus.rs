//! The locations of the test files, and the number of files required in each location.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::suite::Suite;

/// A folder of test files, with the required number of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folder {
    /// The location, relative to `source/` in the specifications' repository.
    specifications: Place,
    /// The location, relative to `test/` in a source distribution of PyMongo.
    pymongo: Place,
    /// The names of the files to run, if the location also contains files that do not belong to
    /// this folder.
    only: Option<&'static [&'static str]>,
}

/// A path and the required number of files below it.
type Place = (&'static str, usize);

impl Folder {
    const fn new(specifications: Place, pymongo: Place) -> Self {
        Self { specifications, pymongo, only: None }
    }

    const fn only(mut self, names: &'static [&'static str]) -> Self {
        self.only = Some(names);
        self
    }

    /// Returns the folder's path in the specifications' repository. Reports use this path as the
    /// folder's name.
    pub const fn name(&self) -> &'static str {
        self.specifications.0
    }
}

/// Tests of suitable servers, the latency window and deprioritized servers.
pub const SERVER_SELECTION: Folder = Folder::new(
    ("server-selection/tests/server_selection", 88),
    ("server_selection/server_selection", 88),
);
/// Tests of the frequency with which each server in the latency window is selected.
pub const IN_WINDOW: Folder =
    Folder::new(("server-selection/tests/in_window", 8), ("server_selection/in_window", 8));
/// Tests of average round-trip times.
pub const RTT: Folder = Folder::new(("server-selection/tests/rtt", 7), ("server_selection/rtt", 7));
/// Tests of suitable servers for read preferences with a staleness limit.
pub const MAX_STALENESS: Folder = Folder::new(("max-staleness/tests", 32), ("max_staleness", 32));
/// Tests of connection string options. PyMongo does not support proxies.
pub const URI_OPTIONS: Folder = Folder::new(("uri-options/tests", 12), ("uri_options", 11));
/// Tests of the syntax of connection strings.
pub const CONNECTION_STRING: Folder =
    Folder::new(("connection-string/tests", 8), ("connection_string/test", 8));

/// Tests of SRV seed lists of replica sets. PyMongo has more of these files, because its copy is
/// from a later version.
pub const SRV_REPLICA_SET: Folder = Folder::new(
    ("initial-dns-seedlist-discovery/tests/replica-set", 40),
    ("srv_seedlist/replica-set", 42),
);
/// Tests of SRV seed lists of sharded clusters.
pub const SRV_SHARDED: Folder =
    Folder::new(("initial-dns-seedlist-discovery/tests/sharded", 4), ("srv_seedlist/sharded", 4));
/// Tests of SRV seed lists of load balancers.
pub const SRV_LOAD_BALANCED: Folder = Folder::new(
    ("initial-dns-seedlist-discovery/tests/load-balanced", 9),
    ("srv_seedlist/load-balanced", 9),
);

/// Tests of replica sets: topology descriptions after hello replies.
pub const SDAM_RS: Folder = Folder::new(
    ("server-discovery-and-monitoring/tests/rs", 77),
    ("discovery_and_monitoring/rs", 77),
);
/// Tests of sharded clusters: topology descriptions after hello replies.
pub const SDAM_SHARDED: Folder = Folder::new(
    ("server-discovery-and-monitoring/tests/sharded", 9),
    ("discovery_and_monitoring/sharded", 9),
);
/// Tests of single servers: topology descriptions after hello replies.
pub const SDAM_SINGLE: Folder = Folder::new(
    ("server-discovery-and-monitoring/tests/single", 19),
    ("discovery_and_monitoring/single", 19),
);
/// Tests of load balancers: topology descriptions.
pub const SDAM_LOAD_BALANCED: Folder = Folder::new(
    ("server-discovery-and-monitoring/tests/load-balanced", 1),
    ("discovery_and_monitoring/load-balanced", 1),
);
/// Tests of descriptions and pool generations after operation errors.
pub const SDAM_ERRORS: Folder = Folder::new(
    ("server-discovery-and-monitoring/tests/errors", 72),
    ("discovery_and_monitoring/errors", 72),
);
/// Tests of the events that monitoring publishes.
pub const SDAM_MONITORING: Folder =
    Folder::new(("server-discovery-and-monitoring/tests/monitoring", 8), ("sdam_monitoring", 8));

/// Tests of discovery and monitoring in complete deployments.
pub const SDAM_UNIFIED: Folder = Folder::new(
    ("server-discovery-and-monitoring/tests/unified", 36),
    ("discovery_and_monitoring/unified", 28),
);
/// Tests of log messages about server selection.
pub const SELECTION_LOGGING: Folder =
    Folder::new(("server-selection/tests/logging", 5), ("server_selection_logging", 5));
/// Tests of connection pools.
pub const POOLS: Folder = Folder::new(
    ("connection-monitoring-and-pooling/tests/cmap-format", 33),
    ("connection_monitoring", 31),
);
/// Tests of log messages about connection pools.
pub const POOL_LOGGING: Folder =
    Folder::new(("connection-monitoring-and-pooling/tests/logging", 2), ("connection_logging", 1));
/// Tests of clients behind load balancers.
pub const LOAD_BALANCERS: Folder = Folder::new(("load-balancers/tests", 8), ("load_balancer", 6));
/// Tests of retries after errors from overloaded servers.
pub const BACKPRESSURE: Folder =
    Folder::new(("client-backpressure/tests", 4), ("client-backpressure", 4));
/// Tests of the metadata that clients send.
pub const HANDSHAKE: Folder =
    Folder::new(("mongodb-handshake/tests/unified", 1), ("handshake/unified", 1));
/// Tests of the versioned API.
pub const VERSIONED_API: Folder = Folder::new(("versioned-api/tests", 6), ("versioned-api", 6));

/// Tests of credentials in connection strings.
pub const CREDENTIALS: Folder = Folder::new(("auth/tests/legacy", 1), ("auth/legacy", 1));
/// Tests of sessions. The other files in the folder test causal consistency and snapshots, which
/// are left to drivers.
pub const SESSIONS: Folder = Folder::new(("sessions/tests", 3), ("sessions", 3)).only(&[
    "driver-sessions-dirty-session-errors",
    "driver-sessions-server-support",
    "implicit-sessions-default-causal-consistency",
]);
/// Tests of retryable reads.
pub const RETRYABLE_READS: Folder =
    Folder::new(("retryable-reads/tests/unified", 45), ("retryable_reads/unified", 45));
/// Tests of retryable writes.
pub const RETRYABLE_WRITES: Folder =
    Folder::new(("retryable-writes/tests/unified", 35), ("retryable_writes/unified", 35));
/// Tests of log messages about commands.
pub const COMMAND_LOGGING: Folder =
    Folder::new(("command-logging-and-monitoring/tests/logging", 9), ("command_logging", 9));
/// Tests of command monitoring events.
pub const COMMAND_MONITORING: Folder = Folder::new(
    ("command-logging-and-monitoring/tests/monitoring", 14),
    ("command_monitoring", 14),
);
/// Tests of commands that applications run themselves (`runCommand`).
pub const RUN_COMMAND: Folder = Folder::new(("run-command/tests/unified", 2), ("run_command", 2));

/// Tests of operation timeouts. The other files in the folder test change streams, tailable
/// cursors, GridFS, bulk writes with several commands and the transaction helper. PyMongo has no
/// timeouts for databases and collections.
pub const TIMEOUTS: Folder =
    Folder::new(("client-side-operations-timeout/tests", 18), ("csot", 16)).only(&[
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
    ]);

/// The test files on disk.
#[derive(Clone, Debug)]
pub struct Corpus {
    root: PathBuf,
    layout: Layout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Specifications,
    PyMongo,
}

/// One test file.
#[derive(Clone, Debug)]
pub struct File {
    /// The path below the folder.
    pub name: String,
    /// The content of the file.
    pub json: Value,
}

impl Corpus {
    /// Opens the corpus at `root`. This may be a clone of the specifications' repository, the
    /// clone's `source` folder, a source distribution of PyMongo, or the distribution's `test`
    /// folder.
    pub fn open(root: &Path) -> Result<Self, String> {
        let layouts = [
            ("", Layout::Specifications),
            ("source", Layout::Specifications),
            ("", Layout::PyMongo),
            ("test", Layout::PyMongo),
        ];
        for (below, layout) in layouts {
            let corpus = Self { root: root.join(below), layout };
            if corpus.path(SERVER_SELECTION).is_dir() {
                return Ok(corpus);
            }
        }
        Err(format!(
            "{} is neither the specifications' repository nor a source distribution of PyMongo: \
             there is no {} in it",
            root.display(),
            SERVER_SELECTION.name()
        ))
    }

    /// Returns the root of the corpus, which can be passed to [`open`](Self::open) again.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads the JSON files in `folder` and its subfolders, sorted by path.
    ///
    /// # Errors
    ///
    /// If the folder does not contain the required number of files, or a file cannot be read.
    pub fn files(&self, folder: Folder) -> Result<Vec<File>, String> {
        let path = self.path(folder);
        let files = self.paths(folder)?;
        let files = files.iter().map(|file| {
            let mut file = read(file, &path)?;
            if self.layout == Layout::PyMongo {
                restore_level(&mut file.json);
                remove_refused_option(&mut file.json);
            }
            Ok(file)
        });
        files.collect()
    }

    /// Returns the paths of the JSON files in `folder` and its subfolders, sorted.
    fn paths(&self, folder: Folder) -> Result<Vec<PathBuf>, String> {
        let path = self.path(folder);
        let mut paths = Vec::new();
        collect(&path, &mut paths)?;
        if let Some(names) = folder.only {
            paths.retain(|path| {
                let name = path.file_stem().unwrap_or_default();
                names.iter().any(|own| *own == name)
            });
        }
        if self.layout == Layout::PyMongo {
            paths.retain(|path| !OUTDATED.iter().any(|file| path.ends_with(file)));
            paths.retain(|path| !is_of_refused_option(path));
        }
        paths.sort();
        let (_, expected) = self.place(folder);
        if paths.len() != expected {
            return Err(format!(
                "{} has {} test files, but should have {expected}: the corpus is incomplete or of \
                 another version",
                path.display(),
                paths.len()
            ));
        }
        Ok(paths)
    }

    /// Returns the digest of all files of all suites, with their names: SHA-256, in hexadecimal
    /// digits.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`files`](Self::files).
    pub fn digest(&self) -> Result<String, String> {
        let mut digest = Sha256::new();
        for suite in Suite::ALL {
            let folder = self.path(suite.folder);
            for path in self.paths(suite.folder)? {
                let name = path.strip_prefix(&folder).unwrap_or(&path);
                digest.update(name.to_string_lossy().as_bytes());
                digest.update(fs::read(&path).map_err(|error| unreadable(&path, &error))?);
            }
        }
        Ok(digest
            .finalize()
            .iter()
            .fold(String::new(), |digits, byte| digits + &format!("{byte:02x}")))
    }

    fn place(&self, folder: Folder) -> Place {
        match self.layout {
            Layout::Specifications => folder.specifications,
            Layout::PyMongo => folder.pymongo,
        }
    }

    fn path(&self, folder: Folder) -> PathBuf {
        self.root.join(self.place(folder).0)
    }
}

/// The files whose copies in PyMongo are outdated. In one test, a connection is closed before the
/// pool is cleared; the specification has since corrected this order. In another one, a cursor
/// returns its connection after an error from `getMore`.
const OUTDATED: [&str; 4] = [
    "connection_logging/connection-logging.json",
    "connection_monitoring/pool-create-min-size-error.json",
    "load_balancer/cursors.json",
    "load_balancer/sdam-error-handling.json",
];

/// An option in PyMongo's files that this project does not support, because it disables the rule
/// that servers must belong to the domain of the connection string. The option is treated as
/// unknown.
const REFUSED_OPTION: &str = "srvAllowedHostsSuffix";

fn is_of_refused_option(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(REFUSED_OPTION)
}

fn remove_refused_option(file: &mut Value) {
    let is_of_it = |test: &Value| {
        let uri = test.get("uri").and_then(Value::as_str);
        uri.is_some_and(|uri| uri.contains(REFUSED_OPTION))
    };
    if let Some(Value::Array(tests)) = file.get_mut("tests") {
        tests.retain(|test| !is_of_it(test));
    }
}

/// Restores the level of one log message. PyMongo logs everything at level debug, so its copies of
/// the files contain `debug` where the specification has `info`.
fn restore_level(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(restore_level),
        Value::Object(fields) => {
            let data = fields.get("data");
            let text = data.and_then(|data| data.get("message")?.as_str());
            if text == Some("Waiting for suitable server to become available") {
                fields.insert("level".to_owned(), "info".into());
            }
            fields.values_mut().for_each(restore_level);
        }
        _ => {}
    }
}

/// Adds the JSON files below `folder` to `paths`.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), String> {
    let describe = |error| format!("cannot list {}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(describe)? {
        let path = entry.map_err(describe)?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: &dyn fmt::Display) -> String {
    format!("cannot read {}: {error}", path.display())
}

fn read(path: &Path, folder: &Path) -> Result<File, String> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    Ok(File {
        name: path.strip_prefix(folder).unwrap_or(path).display().to_string(),
        json: serde_json::from_str(&text).map_err(|error| unreadable(path, &error))?,
    })
}

#[cfg(test)]
mod tests;
