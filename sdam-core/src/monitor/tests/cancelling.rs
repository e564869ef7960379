//! Tests of cancellation: the checks that it affects, and its consequences.

use std::vec::Vec;

use super::script::*;

type Step = (u64, Say, &'static str);

/// Returns the script of a monitor whose awaitable hello was sent at 0 ms.
fn awaiting() -> Vec<Step> {
    [
        (0, Say::Start, "started #1, connect | 10000"),
        (0, Say::Connected, "send isMaster handshake | 10000"),
        (0, says(new(1)), "sample 0, succeeded #1/42 after 0, report Standalone | 0"),
        (
            0,
            Say::Due,
            "start rtt, started #1/42 awaited, \
             send hello awaiting 11/1 for 10000 exhaust | 20000",
        ),
    ]
    .into()
}

fn run(rest: &[Step]) {
    check(streaming(), &[&awaiting(), rest].concat());
}

#[test]
fn a_cancelled_check_fails_its_heartbeat_and_the_next_comes_a_heartbeat_later() {
    // Without a report, neither a description nor a pool changes (F-71, F-73, G-14, I-18, J-31).
    run(&[
        (5_000, Say::Cancel, "disconnect, failed #1/42 awaited after 5000: Cancelled | 15000"),
        (15_000, Say::Due, "started #2, connect | 25000"),
    ]);
}
