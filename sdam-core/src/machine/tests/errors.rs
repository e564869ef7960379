//! Which errors of operations matter, and what they lead to.

use alloc::{string::String, vec::Vec};

use super::*;
use crate::app_error::{AppError, Cause, ErrorOutcome, Phase};

fn report(
    machine: &mut TopologyMachine,
    phase: Phase,
    cause: Cause<'_>,
) -> (ErrorOutcome, Vec<String>) {
    let server = id(machine, "a");
    let generation = machine.generation(server, None).unwrap();
    let error = AppError {
        generation,
        service_id: None,
        phase,
        cause,
        max_wire_version: 17,
    };
    let (outcome, effects) = machine.handle_error(NOW, server, error);
    (outcome, brief(machine, &effects))
}

#[test]
fn network_errors_of_operations_clear_and_cancel_but_do_not_ask_for_a_check() {
    // I-14, I-15, I-16, I-10, I-11, F-54, F-63, F-81
    const UNKNOWN: [&str; 6] = [
        "publish",
        "ServerDescriptionChanged a",
        "TopologyDescriptionChanged",
        "clear a to 1",
        "reset a",
        "cancel a",
    ];
    let network = |timeout, labels| Cause::Network {
        timeout,
        labels,
        message: "broken pipe",
    };
    let overloaded: &[&str] = &["SystemOverloadedError", "RetryableError"];
    let check = |phase, cause, expected| {
        let mut machine = opened(&options(&["a", "b"]));
        let _ = super::check(&mut machine, "a", hello(ServerType::RsPrimary));
        let (outcome, effects) = report(&mut machine, phase, cause);
        assert_eq!(outcome, expected, "{phase:?} {cause:?}");
        let all: &[&str] = if expected == ErrorOutcome::Cleared {
            &UNKNOWN
        } else {
            &[]
        };
        assert_eq!(effects, all, "{phase:?} {cause:?}");
    };
    check(
        Phase::AfterHandshake,
        network(false, &[]),
        ErrorOutcome::Cleared,
    );
    check(
        Phase::AfterHandshake,
        network(true, &[]),
        ErrorOutcome::Irrelevant,
    );
    check(
        Phase::BeforeHandshake,
        network(true, &[]),
        ErrorOutcome::Cleared,
    );
    check(
        Phase::BeforeHandshake,
        Cause::Auth { message: "no" },
        ErrorOutcome::Cleared,
    );
    check(
        Phase::BeforeHello,
        network(false, overloaded),
        ErrorOutcome::Irrelevant,
    );
    check(
        Phase::BeforeHello,
        network(true, overloaded),
        ErrorOutcome::Irrelevant,
    );
    check(
        Phase::BeforeHello,
        network(false, &[]),
        ErrorOutcome::Cleared,
    );
}

#[test]
fn the_knob_lets_every_failed_establishment_mark_unknown() {
    // I-10: handshakeErrorsMarkUnknown
    let mut options = options(&["a", "b"]);
    options.handshake_errors_mark_unknown = true;
    let mut machine = opened(&options);
    let _ = check(&mut machine, "a", hello(ServerType::RsPrimary));
    let cause = Cause::Network {
        timeout: true,
        labels: &["SystemOverloadedError"],
        message: "slow",
    };
    assert_eq!(
        report(&mut machine, Phase::BeforeHello, cause).0,
        ErrorOutcome::Cleared
    );
}

#[test]
fn errors_of_earlier_generations_and_of_strangers_change_nothing() {
    // I-1, I-4
    let mut machine = opened(&options(&["a", "b"]));
    let _ = check(&mut machine, "a", hello(ServerType::RsPrimary));
    let server = id(&machine, "a");
    let error = AppError {
        generation: Generation::FIRST,
        service_id: None,
        phase: Phase::AfterHandshake,
        cause: Cause::Network {
            timeout: false,
            labels: &[],
            message: "broken",
        },
        max_wire_version: 17,
    };
    assert_eq!(
        machine.handle_error(NOW, server, error).0,
        ErrorOutcome::Cleared
    );
    assert_eq!(
        machine.handle_error(NOW, server, error).0,
        ErrorOutcome::Stale
    );
    let stranger = ServerId::from_u64(99);
    assert_eq!(
        machine.handle_error(NOW, stranger, error).0,
        ErrorOutcome::UnknownServer
    );
}

#[test]
fn behind_a_load_balancer_only_the_service_is_cleared() {
    // I-50, I-51, I-52, I-3, F-67
    let mut options = options(&["a"]);
    options.load_balanced = true;
    let service = ObjectId::from_bytes([7; 12]);
    let check = |phase, timeout, expected| {
        let mut machine = opened(&options);
        let before = machine.description().clone();
        let server = id(&machine, "a");
        let error = AppError {
            generation: Generation::FIRST,
            service_id: Some(service),
            phase,
            cause: Cause::Network {
                timeout,
                labels: &[],
                message: "broken",
            },
            max_wire_version: 17,
        };
        let (outcome, _) = machine.handle_error(NOW, server, error);
        assert_eq!(outcome, expected, "{phase:?} {timeout}");
        assert_eq!(*machine.description(), before);
        if expected == ErrorOutcome::ServiceCleared {
            let generation = Generation::FIRST.next();
            assert_eq!(machine.generation(server, Some(service)), Some(generation));
            assert_eq!(machine.generation(server, None), Some(Generation::FIRST));
            assert_eq!(
                machine.handle_error(NOW, server, error).0,
                ErrorOutcome::Stale
            );
        }
    };
    check(Phase::BeforeHello, false, ErrorOutcome::Irrelevant);
    check(Phase::BeforeHandshake, true, ErrorOutcome::ServiceCleared);
    check(Phase::AfterHandshake, false, ErrorOutcome::ServiceCleared);
    check(Phase::AfterHandshake, true, ErrorOutcome::Irrelevant);
}
