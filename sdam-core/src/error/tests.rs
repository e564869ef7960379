use alloc::{format, string::ToString};
use core::fmt;

use super::*;

fn refused() -> Error {
    Error::network(Stage::Connect, "refused")
}

#[test]
fn display_names_kind_stage_code_and_text() {
    let error = Error::new(ErrorKind::Command, Stage::Hello, "boom")
        .with_code(91)
        .with_code_name("ShutdownInProgress");
    assert_eq!(error.to_string(), "command error at hello (91 ShutdownInProgress): boom");
}

#[test]
fn an_error_can_be_put_at_another_stage() {
    assert_eq!(refused().at(Stage::Tls).stage(), Stage::Tls);
    assert_eq!(refused().at(Stage::Connect), refused());
}

#[test]
fn one_line_has_all_causes_once_and_programs_get_the_chain_of_sources() {
    let check = |error: &Error, line: &str, sources: &[&str]| {
        assert_eq!([error.to_string(), format!("{error:#}")], [line, line]);
        let chain = core::iter::successors(error.source(), |error| (*error).source());
        let chain: Vec<_> = chain.map(ToString::to_string).collect();
        assert_eq!(chain, sources);
    };
    check(&refused(), "network error at connect: refused", &[]);
    let inner = refused().with_source("by peer");
    let error = Error::network(Stage::Connect, "connecting").with_source(inner);
    let (line, inner) = (
        "network error at connect: connecting: network error at connect: refused: by peer",
        "network error at connect: refused: by peer",
    );
    check(&error, line, &[inner, "by peer"]);
    let named = error.clone().with_address(&ServerAddress::new("a", 1));
    let within = named.clone().within("dialling");
    let line = format!("a:1: network error at connect: dialling: connecting: {inner}");
    check(&within, &line, &[inner, "by peer"]);
    assert_eq!(named.without_context(), error);
}

#[test]
fn a_command_is_named_with_its_server_and_its_retries() {
    let check = |error: &Error, expected: &str| assert_eq!(error.to_string(), expected);
    let error = refused().with_command("ping");
    assert_eq!((error.command(), error.retries()), (Some("ping"), 0));
    check(&error, "`ping` failed: network error at connect: refused");
    let error = Error::pool_closed(&ServerAddress::new("a", 1)).with_command("ping").retried(2);
    let closed = "Attempted to check out a connection from closed connection pool";
    check(&error, &format!("`ping` failed on a:1 after 2 retries: {closed}"));
    assert_eq!(error.retries(), 2);
    assert!(!error.is_timeout());
    let late = error.retried(1).out_of_time();
    assert!(late.is_timeout());
    check(
        &late,
        &format!(
            "`ping` failed on a:1 after 1 retry, and the time limit allows no other attempt: {closed}"
        ),
    );
    check(&late.without_context(), closed);
}

#[test]
fn debug_adds_the_remedy() {
    let error = Error::timeout(Stage::Connect, "no answer").with_source("late");
    let remedy = error.remedy().unwrap();
    let full = format!("timeout at connect: no answer: late; {remedy}");
    assert_eq!(format!("{error:?}"), full);
    let stale = Error::new(ErrorKind::StalePrimary, Stage::Hello, "a newer primary is known");
    assert_eq!(format!("{stale:?}"), "a newer primary is known");
}

#[test]
fn the_source_is_returned_as_its_own_type_and_changes_no_comparison() {
    let error = refused().with_cause(refused().at(Stage::Tls));
    assert_eq!(error.source_as(), Some(&refused().at(Stage::Tls)));
    assert_eq!(error.source_as::<fmt::Error>(), None);
    assert_eq!(error, refused());
    assert_eq!(error.to_string(), refused().to_string());
    assert!(refused().source_as::<Error>().is_none());
    assert_eq!(error.clone().at(Stage::Hello).source_as::<Error>(), error.source_as());
}

#[test]
fn a_change_of_a_clone_leaves_the_original_alone() {
    let error = refused();
    let changed = error.clone().with_label("a").within("connecting").with_code(1);
    assert_eq!(error, refused());
    assert_ne!(changed, error);
    assert_eq!(changed.message(), "connecting: refused");
}

#[test]
fn a_label_is_carried_once() {
    let error = refused().with_labels(["a", "b", "a"]).with_label("b");
    assert_eq!(error.labels().collect::<Vec<_>>(), ["a", "b"]);
    assert!(error.has_label("a") && !error.has_label(""));
    assert!(error.has_label("b") && !error.has_label("c"));
}

#[test]
fn an_error_has_the_size_of_a_pointer() {
    assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
}

#[test]
fn a_time_limit_makes_errors_of_several_kinds_timeouts() {
    let command = |code| Error::new(ErrorKind::Command, Stage::Operation, "").with_code(code);
    assert!(command(MAX_TIME_MS_EXPIRED).is_timeout() && !command(11_600).is_timeout());
    let late = command(11_600).with_command("find").out_of_time();
    assert!(late.is_timeout());
    for (kind, expected) in [
        (ErrorKind::Timeout, true),
        (ErrorKind::WaitQueueTimeout, true),
        (ErrorKind::SelectionTimeout, true),
        (ErrorKind::TimeLimit, true),
        (ErrorKind::Write, true),
        (ErrorKind::Network, false),
        (ErrorKind::Interrupted, false),
    ] {
        let error = Error::new(kind, Stage::Operation, "").with_code(MAX_TIME_MS_EXPIRED);
        assert_eq!(error.is_timeout(), expected, "{kind:?}");
    }
}

#[test]
fn an_error_keeps_the_outcome_of_its_report() {
    assert_eq!(refused().outcome(), None);
    let reported = refused().with_outcome(ErrorOutcome::MarkedUnknown);
    assert_eq!(reported.outcome(), Some(ErrorOutcome::MarkedUnknown));
}

#[test]
fn a_command_that_fails_has_advice_about_credentials_only_during_authentication() {
    let remedy = |stage| Error::new(ErrorKind::Command, stage, "").remedy();
    assert!(remedy(Stage::Auth).unwrap().contains("authSource"));
    assert_eq!(remedy(Stage::Operation), None);
    let closed = Error::pool_closed(&ServerAddress::new("a", 1)).remedy();
    assert!(closed.unwrap().contains("keep the client open"));
}

#[test]
fn the_codes_that_users_meet_have_remedies_of_their_own() {
    let remedy = |code, stage| Error::new(ErrorKind::Command, stage, "").with_code(code).remedy();
    for (code, words) in [
        (13, "role"),
        (18, "authSource"),
        (91, "shutting down"),
        (189, "no longer primary"),
        (354, "loadBalanced=true"),
        (391, "log in again"),
        (8000, "hosting service"),
        (10107, "find the primary"),
        (11600, "shutting down"),
        (11602, "no longer primary"),
        (13435, "readPreference"),
        (13436, "rs.status()"),
    ] {
        for stage in [Stage::Hello, Stage::Auth, Stage::Operation] {
            assert!(remedy(code, stage).unwrap().contains(words), "{code}");
        }
    }
    assert_eq!(remedy(11000, Stage::Operation), None);
}

#[test]
fn texts_are_those_of_the_specification_and_some_errors_are_retryable() {
    // The specifications prescribe each message (F-65, F-68, F-68b, L-36).
    let address = ServerAddress::new("a", 27017);
    let check = |error: Error, kind, text: &str, retryable| {
        assert_eq!(format!("{error:#}"), text);
        assert_eq!(error.kind(), kind);
        let is_in_use = kind == ErrorKind::Interrupted;
        let stage = if is_in_use { Stage::Operation } else { Stage::CheckOut };
        assert_eq!(error.stage(), stage);
        assert_eq!(error.is_retryable_pool(), retryable, "{text}");
        assert_eq!(error.is_retryable_read(), retryable, "{text}");
        assert_eq!(error.is_retryable_write(21), retryable, "{text}");
        assert_eq!(error.address(), Some(&address));
        assert_eq!(error.labels().len(), 0);
    };
    let cause = Error::network(Stage::Operation, "gone");
    let cleared = Error::pool_cleared(&address, &cause);
    assert_eq!(cleared.source_as(), Some(&cause));
    let text = "Connection pool for a:27017 was cleared because another operation failed with: \
                network error at operation: gone";
    check(cleared, ErrorKind::PoolCleared, text, true);
    check(
        Error::stale_connection(&address),
        ErrorKind::PoolCleared,
        "Connection pool for a:27017 was cleared while a connection was opened",
        true,
    );
    check(
        Error::pool_not_ready(&address),
        ErrorKind::PoolNotReady,
        "Connection pool for a:27017 is not ready yet",
        true,
    );
    check(
        Error::interrupted(&address),
        ErrorKind::Interrupted,
        "Connection to a:27017 interrupted due to server monitor timeout",
        true,
    );
    check(
        Error::pool_closed(&address),
        ErrorKind::PoolClosed,
        "Attempted to check out a connection from closed connection pool",
        false,
    );
    check(
        Error::wait_queue_timeout(&address),
        ErrorKind::WaitQueueTimeout,
        "Timed out while checking out a connection from connection pool",
        false,
    );
    check(
        Error::wait_queue_timeout_pinned(&address, 10, 4, 3, 2),
        ErrorKind::WaitQueueTimeout,
        "Timeout waiting for connection from the connection pool. maxPoolSize: 10, connections \
         in use by cursors: 4, connections in use by transactions: 3, connections in use by \
         other operations: 2",
        false,
    );
}

fn no(kind: ErrorKind, code: Option<i32>, labels: &[&str]) -> Error {
    Error::new(kind, Stage::Operation, "no").with_code(code).with_labels(labels.iter().copied())
}

/// Clients label network errors themselves, so the server's label is not needed (I-74, I-75).
#[test]
fn a_broken_connection_allows_to_retry_reads_and_writes() {
    for kind in ErrorKind::ALL {
        let error = no(*kind, None, &[]);
        let expected = error.is_network() || error.is_retryable_pool();
        assert_eq!(error.is_retryable_read(), expected, "{error}");
        assert_eq!(error.is_retryable_write(21), expected, "{error}");
    }
}

/// Servers before 4.4 do not label errors, so clients judge by the code (I-74, I-75).
#[test]
fn codes_decide_for_reads_and_for_writes_of_servers_that_label_no_errors() {
    let check = |code, read, write| {
        let error = no(ErrorKind::Command, Some(code), &[]);
        assert_eq!(error.is_retryable_read(), read, "{error}");
        assert_eq!(error.is_retryable_write(8), write, "{error}");
        assert!(!error.is_retryable_write(9), "{error}");
    };
    for code in kind::WRITE_CODES {
        check(code, true, true);
    }
    check(134, true, false);
    check(13, false, false);
    check(50, false, false);
}

#[test]
fn the_label_decides_for_writes() {
    let labelled = no(ErrorKind::Command, Some(13), &[RETRYABLE_WRITE_ERROR]);
    assert!(labelled.is_retryable_write(21) && !labelled.is_retryable_read());
}

#[test]
fn an_overload_may_be_retried_if_both_labels_say_so() {
    // The label of an overload alone does not allow a retry (I-62).
    let both = [SYSTEM_OVERLOADED_ERROR, RETRYABLE_ERROR];
    for (labels, expected) in [(&both[..], true), (&both[..1], false), (&both[1..], false)] {
        let error = no(ErrorKind::Command, Some(462), labels);
        assert_eq!(error.is_retryable_overload(), expected, "{labels:?}");
    }
}

#[test]
fn codes_take_precedence_over_messages() {
    // The message decides only if there is no code (I-30, I-31).
    let check = |code, message, expected| {
        let found = StateChange::classify(code, message);
        assert_eq!(found, expected, "{code:?} {message}");
    };
    let not_writable = Some(StateChange::NotWritablePrimary);
    let recovering = Some(StateChange::NodeIsRecovering);
    let shutting_down = Some(StateChange::ShuttingDown);
    check(Some(10107), "", not_writable);
    check(Some(13436), "not master", recovering);
    check(Some(91), "", shutting_down);
    check(Some(11600), "", shutting_down);
    check(Some(1), "not master", None);
    check(None, "not master", not_writable);
    check(None, "not master or secondary", recovering);
    check(None, "the node is recovering", recovering);
    check(None, "not primary", None);
}
