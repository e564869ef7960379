//! Excluded tests. They need features that the client lacks, because it runs only single commands.

use serde_json::Value;

/// The file about cursors behind load balancers.
const CURSORS: &str = "cursors are correctly pinned to connections for load-balanced clusters";
/// The file about the time limits of cursors.
const LIMITS: &str = "timeoutMS behaves correctly for non-tailable cursors";

const CAPPED: &str = "no capped collections are simulated, and no cursors that stay open on them";
const CURSOR: &str = "the client has no cursors, so it checks neither their options nor replies";
const DEPRECATED: &str = "the option is deprecated, and new clients must not support it";
const FILES: &str = "a file of GridFS is several commands";
const ITERATION: &str =
    "the client limits the time on the server in every first command of a cursor";
const ONE_BATCH: &str = "simulated servers return a cursor of several batches for a find alone";
const SESSION: &str = "the session of a caller is its own, which knows whether it is dirty";
const UNACKNOWLEDGED: &str = "the client waits for the reply to every write";
const TRANSACTION: &str = "a transaction is several commands";

/// The operations whose tests are excluded, with the reasons.
const OPERATIONS: &[(&str, &str)] = &[
    ("abortTransaction", TRANSACTION),
    ("assertSessionDirty", SESSION),
    ("assertSessionNotDirty", SESSION),
    ("commitTransaction", TRANSACTION),
    ("createCollection", CAPPED),
    ("download", FILES),
    ("downloadByName", FILES),
    ("withTransaction", TRANSACTION),
];

/// Other excluded tests, each with the description of the file, the description of the test, and
/// the reason. If the description of the test is empty, all tests in the file are excluded.
const TESTS: &[(&str, &str, &str)] = &[
    (CURSORS, "aggregate pins the cursor to a connection", ONE_BATCH),
    (CURSORS, "change streams pin to a connection", ONE_BATCH),
    (CURSORS, "listCollections pins the cursor to a connection", ONE_BATCH),
    (CURSORS, "listIndexes pins the cursor to a connection", ONE_BATCH),
    ("Test commands: deprecation errors", "", "the servers here accept version 1 of the API alone"),
    (
        "connection-pool-options",
        "waitQueueMultiple should be included in connection pool created message when specified",
        DEPRECATED,
    ),
    (
        "connection-pool-options",
        "waitQueueSize should be included in connection pool created message when specified",
        DEPRECATED,
    ),
    (
        "runCursorCommand",
        "error if timeoutMode is cursorLifetime and cursorType is tailableAwait",
        CURSOR,
    ),
    ("runCursorCommand", "errors if the command response is not a cursor", CURSOR),
    ("runCursorCommand", "errors if timeoutMode is set without timeoutMS", CURSOR),
    (
        "runCursorCommand",
        "successfully executes checkMetadataConsistency cursor creating command",
        "no shards are simulated, so there are none to check",
    ),
    ("tests for timeoutMS behavior that applies to all cursor types", "", CURSOR),
    (LIMITS, "aggregate with $merge errors if timeoutMode is iteration", CURSOR),
    (LIMITS, "aggregate with $out errors if timeoutMode is iteration", CURSOR),
    (
        "timeoutMS behaves correctly during command execution",
        "short-circuit is not enabled with only 1 RTT measurement",
        "the second measurement ends together with the handshake that the first command waits for",
    ),
    ("unacknowledged-write", "", UNACKNOWLEDGED),
    ("unacknowledgedBulkWrite", "", UNACKNOWLEDGED),
    ("unacknowledged-client-bulkWrite", "", UNACKNOWLEDGED),
];

/// Returns the excluded tests in a file, with the reasons.
pub fn excluded(file: &Value) -> Vec<(String, &'static str)> {
    let description = file["description"].as_str().unwrap_or_default();
    let tests = file["tests"].as_array().into_iter().flatten();
    let excluded = tests.filter_map(|test| {
        let name = test["description"].as_str()?;
        Some((name.to_owned(), reason(description, name, test)?))
    });
    excluded.collect()
}

/// Removes the excluded tests. Returns whether no test is left.
pub(super) fn remove(file: &mut Value) -> bool {
    let excluded = excluded(file);
    let Some(tests) = file["tests"].as_array_mut() else {
        return false;
    };
    tests.retain(|test| excluded.iter().all(|(name, _)| test["description"] != **name));
    tests.is_empty() && !excluded.is_empty()
}

fn reason(file: &str, name: &str, test: &Value) -> Option<&'static str> {
    let named =
        TESTS.iter().find(|(own, test, _)| *own == file && (*test == name || test.is_empty()));
    if let Some((.., reason)) = named {
        return Some(reason);
    }
    if test.get("skipReason").is_some() {
        return Some("the file says to leave it out");
    }
    let mut operations = test["operations"].as_array().into_iter().flatten();
    operations.find_map(|operation| {
        if operation["arguments"]["timeoutMode"] == "iteration" {
            return Some(ITERATION);
        }
        let own = OPERATIONS.iter().find(|(own, _)| operation["name"] == *own);
        own.map(|(_, reason)| *reason)
    })
}
