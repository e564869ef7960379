//! The tests of what drivers do beyond single commands, which the client does not do.

use serde_json::Value;

const CURSOR: &str = "a cursor beyond its first batch is several commands";
const FILES: &str = "a file of GridFS is several commands";
const SESSION: &str = "the client uses sessions for retried writes alone";
const UNACKNOWLEDGED: &str = "the client waits for the reply to every write";
const TRANSACTION: &str = "a transaction is several commands";

/// The operations whose tests are left out, with the reasons.
const OPERATIONS: &[(&str, &str)] = &[
    ("abortTransaction", TRANSACTION),
    ("commitTransaction", TRANSACTION),
    ("createCommandCursor", CURSOR),
    ("download", FILES),
    ("downloadByName", FILES),
    ("runCursorCommand", CURSOR),
    ("withTransaction", TRANSACTION),
];

/// Other tests that are left out: the description of the file, that of the test, and the reason. No
/// description of a test means all.
const TESTS: &[(&str, &str, &str)] = &[
    ("driver-sessions-dirty-session-errors", "", SESSION),
    ("driver-sessions-server-support", "", SESSION),
    (
        "runCommand",
        "always gossips the $clusterTime on the sent command",
        "the cluster time belongs to the sessions of drivers",
    ),
    ("unacknowledged-write", "", UNACKNOWLEDGED),
    ("unacknowledgedBulkWrite", "", UNACKNOWLEDGED),
    ("unacknowledged-client-bulkWrite", "", UNACKNOWLEDGED),
];

/// Returns the tests of a file that are left out, with the reasons.
pub fn excluded(file: &Value) -> Vec<(&str, &'static str)> {
    let description = file["description"].as_str().unwrap_or_default();
    let tests = file["tests"].as_array().into_iter().flatten();
    let excluded = tests.filter_map(|test| {
        let name = test["description"].as_str()?;
        Some((name, reason(description, name, test)?))
    });
    excluded.collect()
}

/// Removes the excluded tests; returns whether no test is left.
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
    let named = TESTS
        .iter()
        .find(|(own, test, _)| *own == file && (*test == name || test.is_empty()));
    if let Some((.., reason)) = named {
        return Some(reason);
    }
    let operations = test["operations"].as_array().into_iter().flatten();
    let mut names = operations.filter_map(|operation| operation["name"].as_str());
    names.find_map(|name| {
        let own = OPERATIONS.iter().find(|(own, _)| *own == name);
        own.map(|(_, reason)| *reason)
    })
}
