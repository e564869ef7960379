use sdam_core::error::{Error, ErrorKind, Stage};
use sdam_transport::wire::OpMsg;

use super::*;
use crate::client::error::unselected;

const OVERLOAD: [&str; 2] = ["SystemOverloadedError", "RetryableError"];

fn policy() -> Policy {
    Policy { is_enabled: true, has_limit: false, max_adaptive_retries: 2 }
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

#[test]
fn a_command_is_retried_once_without_a_deadline_and_without_end_before_one() {
    let failures = || (0..9).map(|_| failure(91, &["RetryableWriteError"]));
    assert_eq!(backoffs(policy(), failures()), [Duration::ZERO]);
    let limited = Policy { has_limit: true, ..policy() };
    assert_eq!(backoffs(limited, failures()).len(), 9);
    let disabled = Policy { is_enabled: false, ..policy() };
    assert!(backoffs(disabled, failures()).is_empty());
    assert!(backoffs(policy(), [failure(91, &[])]).is_empty());
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
