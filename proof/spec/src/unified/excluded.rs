//! Excluded tests. They need features that the client lacks, because it runs only single commands.

use serde_json::Value;

/// The file about cursors behind load balancers.
const CURSORS: &str = "cursors are correctly pinned to connections for load-balanced clusters";

const CURSOR: &str = "a cursor of several batches is several commands";
const CURSOR_OPTION: &str = "the client has no cursors, so it has none of their options to check";
const DEPRECATED: &str = "the option is deprecated, and new clients must not support it";
const CHANGES: &str = "a change stream is several commands";
const FILES: &str = "a file of GridFS is several commands";
const ITERATION: &str =
    "the client limits the time on the server in every first command of a cursor";
const PINNING: &str = "the client pins no connection to a read that it may retry";
const SESSION: &str = "the session of a caller is its own, which knows whether it is dirty";
const UNACKNOWLEDGED: &str = "the client waits for the reply to every write";
const TRANSACTION: &str = "a transaction is several commands";

/// The operations whose tests are excluded, with the reasons.
const OPERATIONS: &[(&str, &str)] = &[
    ("abortTransaction", TRANSACTION),
    ("assertSessionDirty", SESSION),
    ("assertSessionNotDirty", SESSION),
    ("commitTransaction", TRANSACTION),
    ("createCommandCursor", CURSOR),
    ("download", FILES),
    ("downloadByName", FILES),
    ("withTransaction", TRANSACTION),
];

/// Other excluded tests, each with the description of the file, the description of the test, and
/// the reason. If the description of the test is empty, all tests in the file are excluded.
const TESTS: &[(&str, &str, &str)] = &[
    (CURSORS, "aggregate pins the cursor to a connection", PINNING),
    (CURSORS, "change streams pin to a connection", CHANGES),
    (CURSORS, "listCollections pins the cursor to a connection", PINNING),
    (CURSORS, "listIndexes pins the cursor to a connection", PINNING),
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
    ("runCursorCommand", "accepts an explicit session that is reused across getMores", CURSOR),
    (
        "runCursorCommand",
        "error if timeoutMode is cursorLifetime and cursorType is tailableAwait",
        CURSOR_OPTION,
    ),
    ("runCursorCommand", "errors if timeoutMode is set without timeoutMS", CURSOR_OPTION),
    (
        "runCursorCommand",
        "successfully executes checkMetadataConsistency cursor creating command",
        "no shards are simulated, so there are none to check",
    ),
    ("tests for timeoutMS behavior that applies to all cursor types", "", CURSOR_OPTION),
    (
        "timeoutMS behaves correctly when closing cursors",
        "timeoutMS is refreshed for close",
        "behind a load balancer a cursor whose getMore took too long has lost its connection",
    ),
    (
        "timeoutMS behaves correctly during command execution",
        "short-circuit is not enabled with only 1 RTT measurement",
        "the second measurement ends together with the handshake that the first command waits for",
    ),
    (
        "transactions are correctly pinned to connections for load-balanced clusters",
        "",
        TRANSACTION,
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
    let description = file["description"].as_str().unwrap_or_default().to_owned();
    let Some(tests) = file["tests"].as_array_mut() else {
        return false;
    };
    let count = tests.len();
    tests.retain(|test| {
        let name = test["description"].as_str().unwrap_or_default();
        reason(&description, name, test).is_none()
    });
    tests.is_empty() && count > 0
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
