use bson::{Document, doc};
use sdam_core::{
    error::{ErrorKind, ServerError, Stage},
    pool::PoolError,
};

use super::*;
use crate::client::{Command, CommandErrorKind};

const OVERLOAD: [&str; 2] = ["SystemOverloadedError", "RetryableError"];

fn policy() -> Policy {
    Policy {
        is_enabled: true,
        has_limit: false,
        max_adaptive_retries: 2,
    }
}

/// Returns the failure of a command that was sent, with this code and these labels.
fn failure(code: i32, labels: &[&str]) -> Failure {
    let ping = doc! { "ping": 1 }.to_vec().unwrap();
    let command = Command::new("admin", &ping);
    let mut error = ServerError::new(ErrorKind::Command, Stage::Operation, "no");
    error.code = Some(code);
    error.labels = labels.iter().map(|label| Box::from(*label)).collect();
    Failure {
        error: CommandError::new(&command, CommandErrorKind::Reply(error)),
        is_sent: true,
        is_retryable: labels.contains(&"RetryableWriteError"),
        base_backoff: None,
        accepted: None,
    }
}

fn unsent() -> Failure {
    let empty = Document::new().to_vec().unwrap();
    let command = Command::new("admin", &empty);
    let address = sdam_core::address::ServerAddress::new("a", 1);
    let kind = CommandErrorKind::Pool(PoolError::NotReady { address });
    Failure {
        error: CommandError::new(&command, kind),
        is_sent: false,
        is_retryable: true,
        ..failure(0, &[])
    }
}

/// Fails an operation this often and returns its backoffs, with the greatest jitter.
fn backoffs(policy: Policy, failures: impl IntoIterator<Item = Failure>) -> Vec<Duration> {
    let mut retry = Retry::new(policy);
    failures
        .into_iter()
        .map_while(|failure| retry.failed(failure, u64::MAX))
        .collect()
}

#[test]
fn a_command_is_retried_once_without_a_deadline_and_without_end_before_one() {
    let failures = || (0..9).map(|_| failure(91, &["RetryableWriteError"]));
    assert_eq!(backoffs(policy(), failures()), [Duration::ZERO]);
    let limited = Policy {
        has_limit: true,
        ..policy()
    };
    assert_eq!(backoffs(limited, failures()).len(), 9);
    let disabled = Policy {
        is_enabled: false,
        ..policy()
    };
    assert!(backoffs(disabled, failures()).is_empty());
    assert!(backoffs(policy(), [failure(91, &[])]).is_empty());
}

/// I-62
#[test]
fn overload_is_retried_after_backoffs_that_double_up_to_ten_seconds() {
    let failures = |count| (0..count).map(|_| failure(462, &OVERLOAD));
    let millis = |backoffs: Vec<Duration>| -> Vec<u128> {
        // A jitter is below 1, so the last nanosecond is missing.
        let whole = |backoff: Duration| (backoff + Duration::from_micros(1)).as_millis();
        backoffs.into_iter().map(whole).collect()
    };
    assert_eq!(millis(backoffs(policy(), failures(5))), [200, 400]);
    let patient = Policy {
        max_adaptive_retries: 8,
        ..policy()
    };
    assert_eq!(
        millis(backoffs(patient, failures(9))),
        [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    );
    let none = Policy {
        max_adaptive_retries: 0,
        ..policy()
    };
    assert!(backoffs(none, failures(1)).is_empty());
    let mut suggested = failure(462, &OVERLOAD);
    suggested.base_backoff = Some(Duration::from_millis(7));
    assert_eq!(millis(backoffs(policy(), [suggested])), [14]);
    let mut retry = Retry::new(policy());
    let shortest = retry.failed(failure(462, &OVERLOAD), 0);
    assert_eq!(shortest, Some(Duration::ZERO), "the least jitter");
}

/// I-61, I-62
#[test]
fn overload_without_the_label_of_retryable_errors_is_not_retried() {
    assert!(backoffs(policy(), [failure(462, &OVERLOAD[..1])]).is_empty());
    assert!(backoffs(policy(), [failure(462, &OVERLOAD[1..])]).is_empty());
}

/// I-62: the limit of overload applies to all retries, with and without a deadline.
#[test]
fn an_overload_among_other_errors_changes_the_limit_of_all_retries() {
    let write = || failure(91, &["RetryableWriteError"]);
    let count = |policy, failures: Vec<Failure>| backoffs(policy, failures).len();
    let mixed = || vec![write(), failure(462, &OVERLOAD), write(), write()];
    assert_eq!(count(policy(), mixed()), 2);
    let limited = Policy {
        has_limit: true,
        ..policy()
    };
    assert_eq!(count(limited, mixed()), 2);
}

#[test]
fn the_last_error_of_an_attempt_that_may_have_written_is_returned_else_the_first_one() {
    //
    let check = |failures: Vec<Failure>, code: Option<i32>| {
        let attempts = failures.len();
        let mut retry = Retry::new(Policy {
            has_limit: true,
            ..policy()
        });
        for failure in failures {
            retry.failed(failure, 0);
        }
        let error = retry.give_up(false).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(error.retries() as usize, attempts - 1);
    };
    let write = |code| failure(code, &["RetryableWriteError"]);
    let no_op = |code| failure(code, &["RetryableWriteError", "NoWritesPerformed"]);
    check(vec![write(1), write(2)], Some(2));
    check(vec![write(1), no_op(2)], Some(1));
    check(vec![no_op(1), no_op(2)], Some(1));
    check(vec![no_op(1), write(2), no_op(3)], Some(2));
    check(vec![write(1), unsent()], Some(1));
    check(vec![unsent(), write(2)], Some(2));
    check(vec![unsent(), no_op(2)], None);
}

#[test]
fn without_a_server_the_error_of_the_attempt_before_is_returned() {
    //
    let unselected = || {
        let ping = doc! { "ping": 1 }.to_vec().unwrap();
        CommandError::selection(&Command::new("a", &ping), crate::SelectionError::Closed)
    };
    let retry = Retry::new(policy());
    let error = retry.end(unselected(), false).unwrap_err();
    assert!(matches!(error.kind(), CommandErrorKind::Selection(_)));
    let mut retry = Retry::new(policy());
    retry.failed(failure(91, &["RetryableWriteError"]), 0);
    let error = retry.end(unselected(), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`ping` failed: command error at operation (91): no"
    );
}
