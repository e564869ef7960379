use sdam_core::error::{Error, ErrorKind, Stage};
use sdam_transport::wire::OpMsg;

use super::*;
use crate::client::unselected;

const OVERLOAD: [&str; 2] = ["SystemOverloadedError", "RetryableError"];

const NOW: Instant = Instant::from_millis(1_000);

fn policy() -> Policy {
    Policy { is_enabled: true, has_limit: false, max_adaptive_retries: 2 }
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Returns the failure of a sent command, with the given error code and labels.
fn failure(code: i32, labels: &[&str]) -> Failure {
    let error = Error::new(ErrorKind::Command, Stage::Operation, "no")
        .with_code(code)
        .with_labels(labels.iter().copied());
    Failure {
        error: error.with_command("ping"),
        is_sent: true,
        is_retryable: labels.contains(&"RetryableWriteError"),
        base_backoff: None,
        accepted: None,
    }
}

/// Fails an operation with each of `failures` in turn, and returns the resulting backoffs for the
/// maximum jitter.
fn backoffs(policy: Policy, failures: impl IntoIterator<Item = Failure>) -> Vec<Duration> {
    let mut retry = Retry::new(policy);
    failures.into_iter().map_while(|failure| retry.failed(failure, u64::MAX)).collect()
}

/// An overload error is retried only if it has both labels (I-61, I-62).
#[test]
fn overload_without_the_label_of_retryable_errors_is_not_retried() {
    assert!(backoffs(policy(), [failure(462, &OVERLOAD[..1])]).is_empty());
    assert!(backoffs(policy(), [failure(462, &OVERLOAD[1..])]).is_empty());
}

#[test]
fn without_a_server_the_error_of_the_attempt_before_is_returned() {
    // The error of the previous attempt is returned.
    let unselected = || unselected(crate::SelectionError::Closed);
    let retry = Retry::new(policy());
    let error = retry.end(unselected(), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Selection);
    let mut retry = Retry::new(policy());
    retry.failed(failure(91, &["RetryableWriteError"]), 0);
    let error = retry.end(unselected(), false).unwrap_err();
    assert_eq!(error.to_string(), "`ping` failed: command error at operation (91): no");
}

#[test]
fn the_error_is_that_of_the_last_attempt_that_may_have_taken_effect_or_else_the_first() {
    for (is_sent, labels, expected) in [
        (true, &[][..], 11600),
        (true, &["NoWritesPerformed"], 91),
        (false, &[], 91),
        (false, &["NoWritesPerformed"], 91),
    ] {
        let mut retry = Retry::new(policy());
        retry.failed(Failure { is_sent: false, ..failure(91, &["RetryableWriteError"]) }, 0);
        retry.failed(Failure { is_sent, ..failure(11600, labels) }, 0);
        let error = retry.give_up(false).unwrap_err();
        assert_eq!(error.code(), Some(expected), "{is_sent} {labels:?}");
    }
}

#[test]
fn an_accepted_reply_is_no_result_once_time_has_run_out() {
    let given_up = |is_late| {
        let mut retry = Retry::new(policy());
        let mut failure = failure(91, &["RetryableWriteError"]);
        let body = bson::doc! { "ok": 1 }.to_vec().unwrap();
        let message = OpMsg { body: &body, ..OpMsg::default() }.encode().unwrap();
        failure.accepted = Some(CommandReply::check(message, |error| error).unwrap());
        retry.failed(failure, 0);
        retry.give_up(is_late)
    };
    assert!(given_up(false).is_ok());
    assert!(given_up(true).unwrap_err().is_timeout());
}

#[test]
fn the_server_gets_what_is_left_less_the_shortest_round_trip() {
    let check = |timeout, rtt, expected: Option<(Duration, i64)>| {
        let budget = Limit::new(Some(timeout), NOW).budget(NOW, rtt, Some(millis(1)));
        let expected = expected
            .map(|(timeout, max_time)| Budget { timeout: Some(timeout), max_time: Some(max_time) });
        assert_eq!(budget, expected, "{timeout:?} {rtt:?}");
    };
    let (long, longest) = (millis(1 << 40), i64::from(i32::MAX));
    check(millis(500), millis(50), Some((millis(500), 450)));
    check(millis(50), millis(50), None);
    check(millis(49), millis(50), None);
    check(millis(1), Duration::from_micros(1), None);
    check(millis(1), Duration::ZERO, Some((millis(1), 1)));
    check(long, Duration::ZERO, Some((long, longest)));
}

#[test]
fn the_limit_of_the_socket_applies_without_time_limit_only() {
    // `socketTimeoutMS` applies only if `timeoutMS` is not set (S-4).
    let socket = Some(millis(7));
    for (timeout, expected) in [(None, socket), (Some(Duration::ZERO), None)] {
        let limit = Limit::new(timeout, NOW);
        let budget = limit.budget(NOW, millis(50), socket).unwrap();
        assert_eq!((budget.timeout, budget.max_time), (expected, None));
        assert_eq!(limit.is_set(), timeout.is_some());
        assert!(!limit.has_passed(NOW + millis(1 << 40)));
    }
}
