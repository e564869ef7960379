//! Connections shared with operations.

use std::{vec, vec::Vec};

use bson::doc;

use super::script::*;
use crate::error::ErrorKind;

/// Returns a script of a server that is known since 0 ms, on a connection that operations may have
/// authenticated on.
fn shared(authenticated: bool) -> Vec<(u64, Say, &'static str)> {
    let mut script = [
        (0, Say::Start, "started #1, connect | 10000"),
        (0, Say::Connected, "send isMaster handshake | 10000"),
        (
            0,
            says(old()),
            "sample 0, succeeded #1/42 after 0, report Standalone | 10000",
        ),
    ]
    .to_vec();
    if authenticated {
        script.push((1, Say::Authenticated, "| 10000"));
    }
    script.push((10_000, Say::Due, "started #1/42, send hello | 20000"));
    script
}

fn overloaded() -> Say {
    says(doc! {
        "ok": 0,
        "code": 462,
        "errmsg": "too many requests",
        "errorLabels": ["SystemOverloadedError", "RetryableError"],
    })
}

#[test]
fn an_overload_error_keeps_an_authenticated_connection() {
    // H-9
    let mut script = shared(true);
    script.extend([
        (
            10_005,
            overloaded(),
            "failed #1/42 after 5: Command, report Command | 20005",
        ),
        (20_005, Say::Due, "started #1/42, send hello | 30005"),
        (
            20_006,
            says(old()),
            "sample 1, succeeded #1/42 after 1, report Standalone | 30006",
        ),
        // Any other error reply closes it.
        (30_006, Say::Due, "started #1/42, send hello | 40006"),
        (
            30_007,
            says(refusal()),
            "disconnect, failed #1/42 after 1: Command, report Command | 40007",
        ),
        (40_007, Say::Due, "started #2, connect | 50007"),
        // A new connection is not authenticated.
        (40_007, Say::Connected, "send isMaster handshake | 50007"),
        (
            40_008,
            overloaded(),
            "disconnect, failed #2 after 1: Command, report Command | 50008",
        ),
    ]);
    check(polling(), &script);
}

#[test]
fn any_failed_check_closes_a_connection_without_authentication() {
    // F-50
    let mut script = shared(false);
    script.push((
        10_005,
        overloaded(),
        "disconnect, failed #1/42 after 5: Command, report Command | 20005",
    ));
    check(polling(), &script);
}

#[test]
fn a_connection_that_an_operation_closed_is_replaced_by_the_next_check() {
    let mut script = shared(false);
    script.extend([
        // No operation uses the connection while the check runs.
        (10_001, Say::Disconnected, "| 20000"),
        (
            10_002,
            says(old()),
            "sample 2, succeeded #1/42 after 2, report Standalone | 20002",
        ),
        (10_100, Say::Disconnected, "| 20002"),
        // The server's description is unchanged.
        (20_002, Say::Due, "started #2, connect | 30002"),
        (
            20_003,
            Say::Failed(ErrorKind::Network),
            "disconnect, failed #2 after 1: Network, report Network | 20003",
        ),
    ]);
    check(polling(), &script);
}

#[test]
fn an_abandoned_check_ends_without_an_outcome_and_another_may_begin() {
    // J-31
    let mut script = shared(false);
    script.extend([
        (
            50_000,
            Say::Abandon,
            "disconnect, failed #1/42 after 40000: Cancelled | 50000",
        ),
        (50_000, Say::Abandon, "| 50000"),
        (50_000, Say::Request, "started #2, connect | 60000"),
        // The server's description is unchanged.
        (
            50_001,
            Say::Failed(ErrorKind::Network),
            "disconnect, failed #2 after 1: Network, report Network | 50001",
        ),
    ]);
    check(polling(), &script);
}
