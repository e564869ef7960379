//! Tests of streaming: awaitable requests, streamed replies, and the return to polling.

use std::{format, vec::Vec};

use super::script::*;
use crate::error::ErrorKind;

/// Returns the script of a monitor that sends its first awaitable hello at 1 ms.
fn begin() -> Vec<(u64, Say, &'static str)> {
    [
        (0, Say::Start, "started #1, connect | 10000"),
        (0, Say::Connected, "send isMaster handshake | 10000"),
        (1, says(new(1)), "sample 1, succeeded #1/42 after 1, report Standalone | 1"),
        (
            1,
            Say::Due,
            "start rtt, started #1/42 awaited, \
             send hello awaiting 11/1 for 10000 exhaust | 20001",
        ),
    ]
    .into()
}

fn run(rest: &[(u64, Say, &str)]) {
    check(streaming(), &[&begin(), rest].concat());
}

#[test]
fn streamed_replies_are_reported_one_by_one_and_nothing_is_sent() {
    // Each read is a heartbeat (F-11, F-22, F-23, F-30, F-31, F-32, F-35, G-5, G-8, J-9, J-32).
    run(&[
        (9_000, streams(new(2)), "succeeded #1/42 awaited after 8999, report Standalone | 9000"),
        (9_000, Say::Due, "started #1/42 awaited, read | 29000"),
        (19_000, streams(new(2)), "succeeded #1/42 awaited after 10000, report Standalone | 19000"),
        (19_000, Say::Due, "started #1/42 awaited, read | 39000"),
    ]);
}

#[test]
fn a_stream_without_pauses_is_closed_and_requested_on_another_connection() {
    // The hello before these replies also counts toward the limit of 50.
    let pushed = (2..51).flat_map(|counter| {
        let told = "succeeded #1/42 awaited after 0, report Standalone | 1";
        [(1, streams(new(counter)), told), (1, Say::Due, "started #1/42 awaited, read | 20001")]
    });
    let cut = [
        (
            1,
            streams(new(51)),
            "succeeded #1/42 awaited after 0, report Standalone, disconnect | 501",
        ),
        // A requested check cannot shorten the wait, and an operation's error has nothing to
        // cancel.
        (1, Say::Request, "| 501"),
        (2, Say::Cancel, "| 501"),
        (501, Say::Due, "started #2, connect | 10501"),
    ];
    run(&pushed.chain(cut).collect::<Vec<_>>());
}

#[test]
fn a_stream_of_twenty_replies_a_second_is_never_closed() {
    let pushed = (1..1000).map(|count| {
        let at = 1 + 50 * count;
        let told = format!("succeeded #1/42 awaited after 50, report Standalone | {at}");
        let goes_on = format!("started #1/42 awaited, read | {}", at + 20_000);
        (at, streams(new(count as i64)), told, goes_on)
    });
    let pushed: Vec<_> = pushed.collect();
    let script = pushed.iter().flat_map(|(at, say, told, goes_on)| {
        [(*at, say.clone(), told.as_str()), (*at, Say::Due, goes_on.as_str())]
    });
    run(&script.collect::<Vec<_>>());
}

#[test]
fn a_stream_that_ends_is_requested_again_with_the_last_version() {
    // The next request contains the version of the last reply, even if that is older, from another
    // process, or was rejected by the topology (F-33, F-36, F-37, F-38, J-34).
    run(&[
        (10, says(new(7)), "succeeded #1/42 awaited after 9, report Standalone | 10"),
        (10, Say::Due, "started #1/42 awaited, send hello awaiting 11/7 for 10000 exhaust | 20010"),
        (20, says(new(6)), "succeeded #1/42 awaited after 10, report Standalone | 20"),
        (20, Say::Due, "started #1/42 awaited, send hello awaiting 11/6 for 10000 exhaust | 20020"),
        (
            30,
            streams(new_process(0x22, 0)),
            "succeeded #1/42 awaited after 10, report Standalone | 30",
        ),
        (30, Say::Due, "started #1/42 awaited, read | 20030"),
        (
            40,
            says(new_process(0x22, 1)),
            "succeeded #1/42 awaited after 10, report Standalone | 40",
        ),
        (40, Say::Due, "started #1/42 awaited, send hello awaiting 22/1 for 10000 exhaust | 20040"),
    ]);
}

#[test]
fn a_reply_without_a_version_ends_streaming_unless_more_is_to_come() {
    // Polls measure round trips again, so the separate measurements end (F-22, F-25, G-6, G-8).
    run(&[
        (10, streams(old()), "succeeded #1/42 awaited after 9, report Standalone | 10"),
        (10, Say::Due, "started #1/42 awaited, read | 20010"),
        (20, says(old()), "stop rtt, succeeded #1/42 awaited after 10, report Standalone | 10020"),
        (10_020, Say::Due, "started #1/42, send hello | 20020"),
        (10_023, says(new(3)), "sample 3, succeeded #1/42 after 3, report Standalone | 10023"),
        (
            10_023,
            Say::Due,
            "start rtt, started #1/42 awaited, \
             send hello awaiting 11/3 for 10000 exhaust | 30023",
        ),
    ]);
}

#[test]
fn a_broken_stream_restarts_with_a_handshake_at_once() {
    // The round-trip measurements continue, so they are not restarted (F-34, F-51, G-8, O-1).
    for kind in [ErrorKind::Network, ErrorKind::Timeout] {
        let failed = std::format!(
            "disconnect, failed #1/42 awaited after 999: {kind:?}, report {kind:?} | 1000"
        );
        run(&[
            (1_000, Say::Failed(kind), &failed),
            (1_000, Say::Due, "started #2, connect | 11000"),
            (1_001, Say::Connected, "send isMaster handshake | 11001"),
            (1_002, says(new(9)), "sample 1, succeeded #2/42 after 1, report Standalone | 1002"),
            (
                1_002,
                Say::Due,
                "started #2/42 awaited, send hello awaiting 11/9 for 10000 exhaust | 21002",
            ),
        ]);
    }
}

#[test]
fn a_refused_stream_waits_a_heartbeat() {
    // Only a network error is retried immediately (F-34, F-52, J-33).
    run(&[
        (
            1_000,
            says(refusal()),
            "disconnect, failed #1/42 awaited after 999: Command, report Command | 11000",
        ),
        (2_000, Say::Request, "started #2, connect | 12000"),
    ]);
}
