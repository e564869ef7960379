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
