//! Tests of operations' errors that change the topology, and of their effects.

use alloc::{string::String, vec::Vec};

use bson::doc;

use super::*;
use crate::{error::ErrorOutcome, reply, report::ErrorReport};

/// Reports `error` for server `a`. Returns its outcome, and its effects in short form.
fn report(machine: &mut Topology, error: &ErrorReport) -> (ErrorOutcome, String) {
    let server = id(machine, "a");
    let (outcome, effects) = reported(machine, server, error);
    (outcome, brief(machine, &effects))
}

/// Returns the effects of a connection that breaks during an operation.
pub(super) fn network_error(machine: &mut Topology, server: ServerId) -> Vec<Step> {
    let generation = machine.generation(server, None).unwrap();
    let error = ErrorReport::new(generation, Error::network(Stage::Operation, "broken pipe"));
    reported(machine, server, &error).1
}

/// Returns the effects of a reply saying that the primary has stepped down.
pub(super) fn state_change(machine: &mut Topology, server: ServerId) -> Vec<Step> {
    let reply = doc! { "ok": 0, "code": 189, "errmsg": "stepped down" };
    let bytes = reply.to_vec().unwrap();
    let generation = machine.generation(server, None).unwrap();
    let error = reply::error(&bytes, Stage::Operation).unwrap();
    let error = ErrorReport::new(generation, error);
    reported(machine, server, &error).1
}

#[test]
fn connection_errors_clear_the_pool_except_of_overload_and_slow_or_malformed_replies() {
    // Errors are handled in the same way, no matter why the connection was opened (I-20; I-10,
    // I-11, I-14 to I-16, F-54, F-63, F-81).
    let check = |error: ErrorReport, expected| {
        let mut machine = opened(&options(&["a", "b"]));
        let _ = super::check(&mut machine, "a", hello(ServerType::RsPrimary));
        let (outcome, effects) = report(&mut machine, &error);
        assert_eq!(outcome, expected, "{error:?}");
        if expected != ErrorOutcome::Cleared {
            assert_eq!(effects, "", "{error:?}");
            return;
        }
        let stage = error.error.stage();
        let is_obstacle = matches!(stage, Stage::Dns | Stage::Proxy | Stage::Tls);
        let unusable = if is_obstacle { "ServerUnusable a, " } else { "" };
        let unknown = alloc::format!(
            "publish, ServerDescriptionChanged a, TopologyDescriptionChanged, {unusable}\
             reset a, clear a to 1, cancel a"
        );
        assert_eq!(effects, unknown, "{error:?}");
        let lost = machine.description().server(&address("a")).unwrap();
        assert_eq!(lost.error.as_ref().unwrap().stage(), stage);
    };
    let (first, cleared, ignored) =
        (Generation::FIRST, ErrorOutcome::Cleared, ErrorOutcome::Irrelevant);
    let network = |stage| ErrorReport::new(first, Error::network(stage, "broken pipe"));
    let timeout = |stage| ErrorReport::new(first, Error::timeout(stage, "too slow"));
    // A message above the connection's size limit does not show that the server is down.
    let protocol = |stage| ErrorReport::new(first, Error::protocol(stage, "too long"));
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
    check(ErrorReport::new(first, Error::auth("no")), cleared);
    check(network(Stage::Operation), cleared);
    check(timeout(Stage::Operation), ignored);
    check(protocol(Stage::Operation), ignored);
    // Errors from the pool itself say nothing about the server.
    let of_pool = |error| ErrorReport::new(first, error);
    check(of_pool(Error::wait_queue_timeout(&address("a"))), ignored);
    check(of_pool(Error::interrupted(&address("a"))), ignored);
}

/// Reports an error reply on a connection with `max_wire_version` to a primary `a`, whose monitor
/// knows topology version 5 and wire version 17.
fn answer(
    stage: Stage,
    reply: &bson::Document,
    max_wire_version: i32,
) -> (ErrorOutcome, String, Topology) {
    let mut machine = opened(&options(&["a", "b"]));
    let mut news = hello(ServerType::RsPrimary);
    news.topology_version = Some(version(1, 5));
    let _ = super::check(&mut machine, "a", news);
    let bytes = reply.to_vec().unwrap();
    let error = reply::error(&bytes, stage).unwrap();
    let error = ErrorReport::new(Generation::FIRST, error).with_max_wire_version(max_wire_version);
    let server = id(&machine, "a");
    let (outcome, effects) = reported(&mut machine, server, &error);
    let effects = brief(&machine, &effects);
    (outcome, effects, machine)
}

fn version(process: u8, counter: i64) -> TopologyVersion {
    TopologyVersion { process_id: ObjectId::from_bytes([process; 12]), counter }
}

#[test]
fn state_change_errors_request_a_check_and_clear_only_at_shutdown_or_before_4_2() {
    // A state change error may be reported at any stage (I-17, I-34, I-35, I-36, I-41). The
    // server's version comes from the connection's own handshake, not from the monitor's (E-9).
    let check = |code: i32, max_wire_version, clears: bool| {
        let error = doc! { "ok": 0, "code": code, "errmsg": "no" };
        let (outcome, effects, machine) = answer(Stage::Operation, &error, max_wire_version);
        let (expected, clear) = if clears {
            (ErrorOutcome::Cleared, "clear a to 1, ")
        } else {
            (ErrorOutcome::MarkedUnknown, "")
        };
        assert_eq!(outcome, expected, "{code}");
        let expected = alloc::format!(
            "publish, ServerDescriptionChanged a, TopologyDescriptionChanged, reset a, \
             {clear}check a"
        );
        assert_eq!(effects, expected, "{code}");
        let description = machine.description();
        assert_eq!(description.topology_type(), TopologyType::ReplicaSetNoPrimary);
        let lost = description.server(&address("a")).unwrap();
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
    let check = |error: bson::Document| {
        let (outcome, effects, _) = answer(Stage::Operation, &error, 7);
        assert_eq!(outcome, ErrorOutcome::Irrelevant, "{error}");
        assert_eq!(effects, "", "{error}");
    };
    for code in [6, 7, 89, 9001, 11000, 50] {
        check(doc! { "ok": 0, "code": code, "errmsg": "no" });
    }
    check(doc! { "ok": 0, "code": 462, "errorLabels": ["SystemOverloadedError"] });
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
            let (outcome, effects, _) = answer(stage, &error, 17);
            assert_eq!(outcome, expected, "{error}");
            let asks = effects.contains("check a");
            assert_eq!(asks, code == 10107, "{error}");
            let cancels = effects.contains("cancel a");
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
fn errors_of_earlier_generations_and_of_unknown_servers_have_no_effect() {
    // Only errors of the current generation of a known server count (I-1, I-4).
    let mut machine = opened(&options(&["a", "b"]));
    let _ = check(&mut machine, "a", hello(ServerType::RsPrimary));
    let server = id(&machine, "a");
    let error = &ErrorReport::new(Generation::FIRST, Error::network(Stage::Operation, "broken"));
    assert_eq!(reported(&mut machine, server, error).0, ErrorOutcome::Cleared);
    assert_eq!(reported(&mut machine, server, error).0, ErrorOutcome::Stale);
    let stranger = ServerId::from_u64(99);
    assert_eq!(reported(&mut machine, stranger, error).0, ErrorOutcome::UnknownServer);
}

#[test]
fn behind_a_load_balancer_only_the_service_is_cleared() {
    // The description of a load balancer never changes (I-50, I-51, I-52, I-3, F-67).
    let mut options = options(&["a"]);
    options.load_balanced = true;
    let service = ObjectId::from_bytes([7; 12]);
    let first = Generation::FIRST;
    let check = |error: ErrorReport, expected| {
        let mut machine = opened(&options);
        let before = machine.description().clone();
        let server = id(&machine, "a");
        let error = error.with_service(service);
        let (outcome, effects) = reported(&mut machine, server, &error);
        assert_eq!(outcome, expected, "{error:?}");
        assert_eq!(*machine.description(), before);
        if expected == ErrorOutcome::ServiceCleared {
            // The event for the clear names the service (I-53).
            let clear = effects.into_iter().find_map(|effect| match effect {
                Step::Out(Output::PoolClear { clear, .. }) => Some(clear),
                _ => None,
            });
            assert_eq!(clear.unwrap().service_id, Some(service));
            let generation = first.next();
            assert_eq!(machine.generation(server, Some(service)), Some(generation));
            assert_eq!(machine.generation(server, None), Some(first));
            assert_eq!(reported(&mut machine, server, &error).0, ErrorOutcome::Stale);
        }
    };
    let network = |stage| ErrorReport::new(first, Error::network(stage, "broken"));
    let timeout = |stage| ErrorReport::new(first, Error::timeout(stage, "slow"));
    let (cleared, ignored) = (ErrorOutcome::ServiceCleared, ErrorOutcome::Irrelevant);
    check(network(Stage::Dns), ignored);
    check(network(Stage::Hello), ignored);
    check(ErrorReport::new(first, Error::protocol(Stage::Hello, "text")), ignored);
    check(timeout(Stage::Auth), cleared);
    check(network(Stage::Operation), cleared);
    check(timeout(Stage::Operation), ignored);
}

#[test]
fn the_reporters_own_error_is_kept_by_the_description_and_the_cause_of_the_clear() {
    let mut machine = opened(&options(&["a"]));
    let _ = super::check(&mut machine, "a", hello(ServerType::RsPrimary));
    let own = Error::new(ErrorKind::Internal, Stage::Operation, "of the driver");
    let reply = doc! { "ok": 0, "code": 91, "errmsg": "shutting down" };
    let error = reply::error(&reply.to_vec().unwrap(), Stage::Operation).unwrap();
    let report = ErrorReport::new(Generation::FIRST, error.with_cause(own.clone()));
    let server = id(&machine, "a");
    let (outcome, effects) = reported(&mut machine, server, &report);
    assert_eq!(outcome, ErrorOutcome::Cleared);
    let lost = machine.description().server(&address("a")).unwrap();
    assert_eq!(lost.error.as_ref().unwrap().source_as(), Some(&own));
    let mut causes = effects.iter().filter_map(|effect| match effect {
        Step::Out(Output::PoolClear { clear, .. }) => Some(&clear.cause),
        _ => None,
    });
    assert_eq!(causes.next().unwrap().source_as(), Some(&own));
}
