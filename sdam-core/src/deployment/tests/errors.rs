//! Tests of operations' errors that change the topology, and of their effects.

use bson::doc;

use super::world::*;
use crate::reply;

/// Returns a `World` with the primary `a`, which has topology version 5, and the seed `b`.
fn world() -> World {
    let mut world = World::open(&polled(&["a", "b"]));
    let _ = world.check("a", member(true, 5));
    world
}

#[test]
fn connection_errors_clear_the_pool_except_of_overload_and_slow_or_malformed_replies() {
    // Errors are handled in the same way, no matter why the connection was opened (I-20; I-10,
    // I-11, I-14 to I-16, F-54, F-63, F-81).
    let check = |error: Error, expected| {
        let mut world = world();
        let (outcome, outputs) =
            world.error("a", &ErrorReport::new(Generation::FIRST, error.clone()));
        assert_eq!(outcome, expected, "{error:?}");
        if expected != ErrorOutcome::Cleared {
            assert!(outputs.is_empty(), "{error:?}");
            return;
        }
        let stage = error.stage();
        let is_obstacle = matches!(stage, Stage::Dns | Stage::Proxy | Stage::Tls);
        let unusable = if is_obstacle { "ServerUnusable a, " } else { "" };
        let unknown = format!(
            "publish, ServerDescriptionChanged a, TopologyDescriptionChanged, {unusable}\
             clear a to 1, disconnect a1"
        );
        assert_eq!(outputs.join(", "), unknown, "{error:?}");
        assert_eq!(world.server("a").error.as_ref().unwrap().stage(), stage);
    };
    let (cleared, ignored) = (ErrorOutcome::Cleared, ErrorOutcome::Irrelevant);
    let network = |stage| Error::network(stage, "broken pipe");
    let timeout = |stage| Error::timeout(stage, "too slow");
    // A message above the connection's size limit does not show that the server is down.
    let protocol = |stage| Error::protocol(stage, "too long");
    for stage in [Stage::Dns, Stage::Proxy, Stage::Auth] {
        check(network(stage), cleared);
        check(timeout(stage), cleared);
        check(protocol(stage), cleared);
    }
    for stage in [Stage::Connect, Stage::Tls, Stage::Hello] {
        check(network(stage), ignored);
        check(timeout(stage), ignored);
        check(protocol(stage), cleared);
    }
    check(Error::auth("no"), cleared);
    check(network(Stage::Operation), cleared);
    check(timeout(Stage::Operation), ignored);
    check(protocol(Stage::Operation), ignored);
    // Errors from the pool itself say nothing about the server.
    check(Error::wait_queue_timeout(&address("a")), ignored);
    check(Error::interrupted(&address("a")), ignored);
}

/// Reports an error reply on a connection with `max_wire_version` to [`world`]'s primary, whose
/// monitor knows wire version 17. Returns the outcome and the outputs.
fn answer(
    stage: Stage,
    reply: &bson::Document,
    max_wire_version: i32,
) -> (ErrorOutcome, String, World) {
    let mut world = world();
    let error = reply::error(&reply.to_vec().unwrap(), stage).unwrap();
    let error = ErrorReport::new(Generation::FIRST, error).with_max_wire_version(max_wire_version);
    let (outcome, outputs) = world.error("a", &error);
    (outcome, outputs.join(", "), world)
}

#[test]
fn state_change_errors_request_a_check_and_clear_only_at_shutdown_or_before_4_2() {
    // A state change error may be reported at any stage (I-17, I-34, I-35, I-36, I-41). The
    // server's version comes from the connection's own handshake, not from the monitor's (E-9).
    let check = |code: i32, max_wire_version, clears: bool| {
        let error = doc! { "ok": 0, "code": code, "errmsg": "no" };
        let (outcome, outputs, world) = answer(Stage::Operation, &error, max_wire_version);
        let (expected, clear) = if clears {
            (ErrorOutcome::Cleared, "clear a to 1, ")
        } else {
            (ErrorOutcome::MarkedUnknown, "")
        };
        assert_eq!(outcome, expected, "{code}");
        let expected = format!(
            "publish, ServerDescriptionChanged a, TopologyDescriptionChanged, {clear}wake a"
        );
        assert_eq!(outputs, expected, "{code}");
        assert_eq!(world.topology().topology_type(), TopologyType::ReplicaSetNoPrimary);
        let lost = world.server("a");
        assert_eq!(lost.error.as_ref().unwrap().code(), Some(code));
        assert_eq!(lost.topology_version, None);
    };
    for code in [10107, 13435, 10058, 11602, 13436, 189] {
        check(code, 17, false);
        check(code, 8, false);
        check(code, 7, true);
    }
    for code in [11600, 91] {
        check(code, 17, true);
    }
}

#[test]
fn other_command_errors_have_no_effect() {
    // Errors that are merely retryable, overload errors and write errors change nothing (I-37,
    // I-60, I-33).
    let overload = doc! { "ok": 0, "code": 462, "errorLabels": ["SystemOverloadedError"] };
    let codes = [6, 7, 89, 9001, 11000, 50].map(|code| doc! { "ok": 0, "code": code });
    for error in codes.into_iter().chain([overload]) {
        let (outcome, outputs, _) = answer(Stage::Operation, &error, 7);
        assert_eq!((outcome, &*outputs), (ErrorOutcome::Irrelevant, ""), "{error}");
    }
    let writes = doc! { "ok": 1, "writeErrors": [{ "index": 0, "code": 91 }] };
    assert_eq!(reply::error(&writes.to_vec().unwrap(), Stage::Operation), None);
}

#[test]
fn a_command_error_before_handshake_completes_clears_unless_the_server_is_overloaded() {
    // Only the overload label prevents a change of the server's state (I-12, I-13, I-14, I-61,
    // I-41).
    let check = |code: i32, labels: &[&str], expected| {
        for stage in [Stage::Hello, Stage::Auth] {
            let labels: Vec<&str> = labels.into();
            let error = doc! { "ok": 0, "code": code, "errorLabels": labels };
            let (outcome, outputs, _) = answer(stage, &error, 17);
            assert_eq!(outcome, expected, "{error}");
            let asks = outputs.contains("wake a");
            assert_eq!(asks, code == 10107, "{error}");
            let cancels = outputs.contains("disconnect a1");
            let clears = outcome == ErrorOutcome::Cleared;
            assert_eq!(cancels, clears && (!asks || stage == Stage::Auth), "{error}");
        }
    };
    check(462, &["SystemOverloadedError"], ErrorOutcome::Irrelevant);
    check(462, &["RetryableError", "SystemOverloadedError"], ErrorOutcome::Irrelevant);
    check(462, &["RetryableError"], ErrorOutcome::Cleared);
    check(10107, &[], ErrorOutcome::Cleared);
    check(18, &[], ErrorOutcome::Cleared);
}

#[test]
fn the_reporters_own_error_is_kept_by_the_description_and_the_cause_of_the_clear() {
    let mut world = world();
    let own = Error::new(ErrorKind::Internal, Stage::Operation, "of the driver");
    let error = Error::new(ErrorKind::Command, Stage::Operation, "").with_code(91);
    let report = ErrorReport::new(Generation::FIRST, error.with_cause(own.clone()));
    assert_eq!(world.error("a", &report).0, ErrorOutcome::Cleared);
    let error = world.server("a").error.as_ref();
    assert_eq!(error.unwrap().source_as(), Some(&own));
    let cause = world.last.iter().find_map(|output| match output {
        Output::PoolClear { clear, .. } => Some(&clear.cause),
        _ => None,
    });
    assert_eq!(cause.unwrap().source_as(), Some(&own));
}
