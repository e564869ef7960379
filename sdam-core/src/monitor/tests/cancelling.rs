//! Cancellation: the checks that it affects, and its consequences.

use std::vec::Vec;

use super::script::*;
use crate::error::ErrorKind;

type Step = (u64, Say, &'static str);

/// Returns the script of a monitor whose awaitable hello was sent at 0 ms, under generation 3.
fn awaiting() -> Vec<Step> {
    [
        (0, Say::Pool(3), ""),
        (0, Say::Start, "started #1, connect | 10000"),
        (0, Say::Connected, "send isMaster handshake | 10000"),
        (
            0,
            says(new(1)),
            "sample 0, succeeded #1/42 after 0, report Standalone | 0",
        ),
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
    // F-71, F-73, I-18, J-31, G-14: no report, so neither a description nor a pool changes.
    run(&[
        (
            5_000,
            Say::Cancel(4),
            "disconnect, failed #1/42 awaited after 5000: Cancelled | 15000",
        ),
        (15_000, Say::Due, "started #2, connect | 25000"),
    ]);
}

#[test]
fn a_request_after_a_cancelled_check_waits_for_min_heartbeat_frequency() {
    // F-71, F-41
    run(&[
        (
            5_000,
            Say::Cancel(4),
            "disconnect, failed #1/42 awaited after 5000: Cancelled | 15000",
        ),
        (5_000, Say::Request, "| 5500"),
        (5_500, Say::Due, "started #2, connect | 15500"),
    ]);
}

#[test]
fn only_connections_that_began_under_an_older_generation_are_closed() {
    // F-72
    run(&[
        (1, Say::Cancel(3), "| 20000"),
        (1, Say::Cancel(2), "| 20000"),
    ]);
    run(&[
        (
            1,
            Say::Cancel(4),
            "disconnect, failed #1/42 awaited after 1: Cancelled | 10001",
        ),
        // The second one finds nothing to close.
        (2, Say::Cancel(4), "| 10001"),
        (2, Say::Pool(4), ""),
        (600, Say::Request, "started #2, connect | 10600"),
        (601, Say::Cancel(4), "| 10600"),
        (
            602,
            Say::Cancel(5),
            "disconnect, failed #2 after 2: Cancelled | 10602",
        ),
    ]);
}

#[test]
fn a_server_whose_check_was_cancelled_is_not_retried_at_once() {
    // F-51, F-52: an operation has already marked the server Unknown.
    run(&[
        (
            1,
            Say::Cancel(4),
            "disconnect, failed #1/42 awaited after 1: Cancelled | 10001",
        ),
        (10_001, Say::Due, "started #2, connect | 20001"),
        (
            10_002,
            Say::Failed(ErrorKind::Network),
            "disconnect, failed #2 after 1: Network, report Network | 20002",
        ),
    ]);
}

#[test]
fn a_clear_between_a_reply_and_the_next_read_closes_the_connection() {
    // F-72: the read begins after the clear, but on a connection from before it.
    run(&[
        (
            100,
            streams(new(2)),
            "succeeded #1/42 awaited after 100, report Standalone | 100",
        ),
        (100, Say::Pool(4), ""),
        (100, Say::Due, "started #1/42 awaited, read | 20100"),
        (
            101,
            Say::Cancel(4),
            "disconnect, failed #1/42 awaited after 1: Cancelled | 10101",
        ),
    ]);
}

#[test]
fn a_known_server_whose_connection_is_closed_is_checked_as_soon_as_allowed() {
    // F-71: a reply came after the clear and before its cancellation.
    let known = [
        (100, Say::Pool(4), ""),
        (
            100,
            streams(new(2)),
            "succeeded #1/42 awaited after 100, report Standalone | 100",
        ),
    ];
    run(&[&known[..], &[(300, Say::Cancel(4), "disconnect | 600")]].concat());
    let cancelled = "disconnect, failed #1/42 awaited after 200: Cancelled | 800";
    let reading = [
        (100, Say::Due, "started #1/42 awaited, read | 20100"),
        (300, Say::Cancel(4), cancelled),
    ];
    run(&[&known[..], &reading].concat());
    // The source of the server's description does not matter.
    run(&[
        (100, Say::Pool(4), ""),
        (100, Say::Found, ""),
        (
            200,
            Say::Cancel(4),
            "disconnect, failed #1/42 awaited after 200: Cancelled | 700",
        ),
    ]);
}

#[test]
fn a_cancellation_between_two_streamed_replies_closes_the_connection() {
    // F-71: no heartbeat runs, so none fails; and the next check waits like after a check.
    run(&[
        (
            100,
            streams(new(2)),
            "succeeded #1/42 awaited after 100, report Standalone | 100",
        ),
        (100, Say::Cancel(4), "disconnect | 10100"),
        (100, Say::Request, "| 600"),
        (600, Say::Due, "started #2, connect | 10600"),
    ]);
}

#[test]
fn a_cancellation_closes_an_idle_connection_and_keeps_a_requested_check() {
    // F-71, F-41
    check(
        polling(),
        &[
            (0, Say::Start, "started #1, connect | 10000"),
            (0, Say::Connected, "send isMaster handshake | 10000"),
            (
                0,
                says(old()),
                "sample 0, succeeded #1/42 after 0, report Standalone | 10000",
            ),
            (100, Say::Request, "| 500"),
            (200, Say::Cancel(1), "disconnect | 500"),
            (500, Say::Due, "started #2, connect | 10500"),
        ],
    );
}

#[test]
fn a_connection_opened_after_its_report_has_the_generation_of_the_clear() {
    // F-51, F-72: the report cleared the pool, so the cancellation for that clear has no effect.
    run(&[
        (
            100,
            Say::Failed(ErrorKind::Network),
            "disconnect, failed #1/42 awaited after 100: Network, report Network | 100",
        ),
        (100, Say::Pool(4), ""),
        (100, Say::Due, "started #2, connect | 10100"),
        (101, Say::Cancel(4), "| 10100"),
    ]);
}

#[test]
fn a_check_is_cancelled_while_it_connects() {
    // F-72
    check(
        streaming(),
        &[
            (0, Say::Start, "started #1, connect | 10000"),
            (
                7,
                Say::Cancel(1),
                "disconnect, failed #1 after 7: Cancelled | 10007",
            ),
            // A connection that opens after its cancellation is ignored.
            (8, Say::Connected, "| 10007"),
        ],
    );
}

#[test]
fn stop_completes_the_heartbeat_of_a_check_that_connects() {
    // F-70, J-31
    check(
        streaming(),
        &[
            (0, Say::Start, "started #1, connect | 10000"),
            (
                7,
                Say::Stop,
                "disconnect, failed #1 after 7: Cancelled, exit | never",
            ),
        ],
    );
}
