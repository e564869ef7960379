//! Tests of connections that checks share with operations.

use super::script::*;
use crate::error::ErrorKind;

#[test]
fn a_connection_that_an_operation_closed_is_replaced_by_the_next_check() {
    let script = [
        (0, Say::Start, "started #1, connect | 10000"),
        (0, Say::Connected, "send isMaster handshake | 10000"),
        (0, says(old()), "sample 0, succeeded #1/42 after 0, report Standalone | 10000"),
        (10_000, Say::Due, "started #1/42, send hello | 20000"),
        // No operation uses the connection while the check runs, so this input is ignored.
        (10_001, Say::Disconnected, "| 20000"),
        (10_002, says(old()), "sample 2, succeeded #1/42 after 2, report Standalone | 20002"),
        (10_100, Say::Disconnected, "| 20002"),
        // The closed connection has not changed the server's description.
        (20_002, Say::Due, "started #2, connect | 30002"),
        (
            20_003,
            Say::Failed(ErrorKind::Network),
            "disconnect, failed #2 after 1: Network, report Network | 20003",
        ),
    ];
    check(polling(), &script);
}
