//! Tests of failures: retries, reports, and the state that a failure resets.

use std::{borrow::ToOwned, format, vec, vec::Vec};

use super::{super::*, script::*};
use crate::error::ErrorKind;

type Step = (u64, Say, &'static str);

/// Returns the script of a monitor that has known its server since 0 ms and polls it at 10 s.
fn known() -> Vec<Step> {
    [
        (0, Say::Start, "started #1, connect | 10000"),
        (0, Say::Connected, "send isMaster handshake | 10000"),
        (0, says(old()), "sample 0, succeeded #1/42 after 0, report Standalone | 10000"),
        (10_000, Say::Due, "started #1/42, send hello | 20000"),
    ]
    .into()
}

fn run(config: MonitorConfig, rest: &[Step]) {
    check(config, &[&known(), rest].concat());
}

#[test]
fn a_network_error_of_a_known_server_is_retried_once_without_a_pause() {
    // The retry is a separate heartbeat (F-50, F-51, F-52, J-33).
    run(
        polling(),
        &[
            (
                10_005,
                Say::Failed(ErrorKind::Network),
                "disconnect, failed #1/42 after 5: Network, report Network | 10005",
            ),
            (10_005, Say::Due, "started #2, connect | 20005"),
            (
                10_006,
                Say::Failed(ErrorKind::Network),
                "disconnect, failed #2 after 1: Network, report Network | 20006",
            ),
            (10_100, Say::Request, "| 10506"),
            (10_506, Say::Due, "started #3, connect | 20506"),
        ],
    );
}

#[test]
fn a_timeout_counts_as_a_network_error() {
    // The message contains the limit, so that equal failures have equal messages (F-10, F-51).
    run(
        polling(),
        &[
            (19_999, Say::Due, "| 20000"),
            (
                20_000,
                Say::Due,
                "disconnect, failed #1/42 after 10000: Timeout, report Timeout | 20000",
            ),
            (20_000, Say::Due, "started #2, connect | 30000"),
            (
                30_000,
                Say::Due,
                "disconnect, failed #2 after 10000: Timeout, report Timeout | 40000",
            ),
        ],
    );
}

#[test]
fn command_errors_and_malformed_replies_are_not_retried_at_once() {
    // These failures are followed by the normal wait (F-52, J-33).
    run(
        polling(),
        &[(
            10_001,
            says(refusal()),
            "disconnect, failed #1/42 after 1: Command, report Command | 20001",
        )],
    );
    for bytes in [Vec::new(), [0xff; 7].into(), encode(&bson::doc! {})] {
        run(
            polling(),
            &[(
                10_001,
                Say::Bytes(bytes),
                "disconnect, failed #1/42 after 1: Protocol, report Protocol | 20001",
            )],
        );
    }
}

#[test]
fn legacy_retry_reports_only_the_outcome_of_the_retry() {
    // Each heartbeat ends, even if its failure is not reported (F-50, J-33).
    let mut legacy = polling();
    legacy.retry_before_unknown = true;
    let retry = [
        (
            10_001,
            Say::Failed(ErrorKind::Network),
            "disconnect, failed #1/42 after 1: Network | 10001",
        ),
        (10_001, Say::Due, "started #2, connect | 20001"),
    ];
    let run = |rest: &[Step]| run(legacy.clone(), &[&retry[..], rest].concat());
    run(&[
        (10_001, Say::Connected, "send isMaster handshake | 20001"),
        (10_002, says(old()), "sample 1, succeeded #2/42 after 1, report Standalone | 20002"),
    ]);
    run(&[(
        10_002,
        Say::Failed(ErrorKind::Timeout),
        "disconnect, failed #2 after 1: Timeout, report Timeout | 20002",
    )]);
    run(&[
        (10_001, Say::Connected, "send isMaster handshake | 20001"),
        (10_002, says(refusal()), "disconnect, failed #2 after 1: Command, report Command | 20002"),
    ]);
}

#[test]
fn a_deadline_missed_by_a_heartbeat_means_that_the_host_was_suspended() {
    // The interrupted check is extended once, by one second. A reply within that second saves the
    // connection, but it neither measures the round trip nor describes the server's current state.
    let slept = [(50_000, Say::Due, "| 51000")];
    let run = |rest: &[Step]| run(polling(), &[&slept[..], rest].concat());
    run(&[
        (50_010, says(old()), "send hello | 60010"),
        (50_013, says(old()), "sample 3, succeeded #1/42 after 3, report Standalone | 60013"),
    ]);
    run(&[
        (50_010, says(old()), "send hello | 60010"),
        (60_010, Say::Due, "disconnect, failed #1/42 after 10000: Timeout, report Timeout | 60010"),
    ]);
    run(&[(
        90_000,
        Say::Due,
        "disconnect, failed #1/42 after 80000: Timeout, report Timeout | 90000",
    )]);
    self::run(polling(), &[(30_001, Say::Due, "| 31001")]);
    let late = "disconnect, failed #1/42 after 20000: Timeout, report Timeout | 30000";
    self::run(polling(), &[(30_000, Say::Due, late)]);
}

#[test]
fn repeated_network_errors_are_retried_with_a_pause_after_a_burst() {
    // Retries are also limited if a server keeps answering hello and then breaking the connection
    // (F-51).
    let mut script = vec![
        (0, Say::Start, "started #1, connect | 10000".to_owned()),
        (0, Say::Connected, "send isMaster handshake | 10000".into()),
        (0, says(new(1)), "sample 0, succeeded #1/42 after 0, report Standalone | 0".into()),
        (
            0,
            Say::Due,
            "start rtt, started #1/42 awaited, send hello awaiting 11/1 for 10000 exhaust | 20000"
                .into(),
        ),
        (0, streams(new(2)), "succeeded #1/42 awaited after 0, report Standalone | 0".into()),
        (0, Say::Due, "started #1/42 awaited, read | 20000".into()),
    ];
    let breaks = |connection: usize, next: u64| {
        let failed = format!(
            "disconnect, failed #{connection}/42 awaited after 0: Network, report Network | {next}"
        );
        (0, Say::Failed(ErrorKind::Network), failed)
    };
    // Two replies have arrived. Each iteration breaks a connection and replies on a new one.
    for connection in 1..=24 {
        let new_connection = connection + 1;
        script.extend([
            breaks(connection, 0),
            (0, Say::Due, format!("started #{new_connection}, connect | 10000")),
            (0, Say::Connected, "send isMaster handshake | 10000".into()),
            (
                0,
                says(new(2)),
                format!("sample 0, succeeded #{new_connection}/42 after 0, report Standalone | 0"),
            ),
            (
                0,
                Say::Due,
                format!(
                    "started #{new_connection}/42 awaited, \
                     send hello awaiting 11/2 for 10000 exhaust | 20000"
                ),
            ),
        ]);
    }
    script.push(breaks(25, 500));
    let script: Vec<_> =
        script.iter().map(|(at, say, told)| (*at, say.clone(), told.as_str())).collect();
    check(streaming(), &script);
}
