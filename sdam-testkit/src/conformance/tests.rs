//! Tests that a correct runtime passes the suite, and that the suite detects and names each broken
//! rule.

mod doubles;

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::Duration,
};

use self::doubles::{Base, BrokenDial, Fault, Threads, breaking, dialer};
use super::*;

/// The time limit of a step. It is long enough for a working runtime, and short enough that a
/// hanging one does not delay the test.
const SHORT: Duration = Duration::from_secs(3);

/// Returns the rule of every check.
fn rules() -> Vec<Rule> {
    let backend = BACKEND_CHECKS.iter().chain(PENDING_CHECKS);
    let mut rules: Vec<Rule> = backend.map(|check| check.rule).collect();
    rules.extend(SPAWN_CHECKS.iter().map(|check| check.rule));
    rules.extend(dial_checks::<Threads>().map(|check| check.rule));
    rules.extend(spawn::SHUTDOWN_RULES);
    rules
}

#[test]
fn a_single_threaded_runtime_passes() {
    let base = Base::start();
    runtime(&base.runtime);
    dial(Threads, Arc::clone(&base.runtime.backend.clock));
    shutdown(&base.runtime.clone(), || base.end());
}

#[test]
fn every_suite_panics_with_the_broken_rule() {
    let panics = |suite: &dyn Fn(), words: &str| {
        let panic = catch_unwind(AssertUnwindSafe(suite)).expect_err(words);
        let text = panic.downcast::<String>().unwrap();
        assert!(text.starts_with("contracts are broken:"), "{text}");
        assert!(text.contains(words), "`{words}` is not in {text}");
    };
    let base = breaking(Fault::FailuresAreOfTheProtocol);
    panics(&|| backend(&base.runtime.backend), "a_refused_connect_is_a_network_error: ");
    panics(&|| runtime(&base.runtime), "a_refused_connect_is_a_network_error: ");
    let mut report = Report::new(STEP_TIMEOUT, Duration::MAX);
    for own in BACKEND_CHECKS.iter().filter(|own| own.rule.check.starts_with("a_refused")) {
        own.in_task(&base.runtime, &mut report);
    }
    let place = "a_refused_connect_is_a_network_error, in a task: ";
    assert!(report.failures[0].starts_with(place), "{:?}", report.failures);
    // A port that refuses may answer before the first poll.
    let pending = "a_connect_without_reply_times_out: a future is pending, but it has to block \
                   when connecting to a port that does not answer";
    panics(&|| blocking(&base.runtime.backend), pending);
    let clock = Arc::clone(&base.runtime.backend.clock);
    let late = || dial(BrokenDial(Fault::RefusalsComeLate), Arc::clone(&clock));
    panics(&late, "a_refusing_address_is_skipped: ");
    let outliving = || {
        let base = breaking(Fault::AttemptsPanicLate);
        shutdown(&base.runtime.clone(), || base.end());
    };
    panics(&outliving, "connects_after_shutdown_end: ");
}

/// For each check, a fault that breaks its rule but no earlier rule, and the expected message.
const BROKEN: &[(&str, Fault, &str)] = &[
    ("now_never_goes_backwards", Fault::ClockGoesBack, "`now` returned"),
    ("past_deadlines_are_ready_at_once", Fault::TimersYieldFirst, "is pending at"),
    ("timers_are_never_early", Fault::TimersAreReady, "was ready at"),
    (
        "timers_are_never_early",
        Fault::TimersNeverReady,
        "hangs for 3s when waiting for timers of 1 to 31 milliseconds",
    ),
    ("a_future_that_wakes_itself_wins_its_race", Fault::TimersBlock, "the timer blocks the future"),
    (
        "a_timer_may_move_to_another_thread",
        Fault::TimersWakeTheFirst,
        "hangs for 3s when waiting for a timer on another thread",
    ),
    (
        "timers_may_be_dropped_before_they_are_ready",
        Fault::FarTimersPanic,
        "panics: too far when polling timers of far deadlines",
    ),
    (
        "host_names_are_looked_up_and_all_families_tried",
        Fault::NamesAreUnknown,
        "no name is known when connecting to a port that listens",
    ),
    (
        "an_invalid_host_name_fails_at_stage_dns",
        Fault::FailuresAreOfConnect,
        "expected Network at Dns",
    ),
    (
        "a_refused_connect_is_a_network_error",
        Fault::FailuresAreOfTheProtocol,
        "expected Network at Connect",
    ),
    (
        "a_connect_without_reply_times_out",
        Fault::DeadlinesAreForgotten,
        "hangs for 3s when connecting to a port that does not answer",
    ),
    (
        "unix_sockets_work_or_are_unsupported",
        Fault::FailuresAreOfTheProtocol,
        "expected Network at Connect",
    ),
    (
        "a_dropped_connect_is_abandoned",
        Fault::AttemptsGoOn,
        "hangs for 3s when waiting for the peer to see that the socket of a dropped attempt",
    ),
    (
        "messages_arrive_in_both_directions",
        Fault::RepliesAreRepeated,
        "the reply to 2 is not its echo, but a reply to 1",
    ),
    ("long_messages_arrive_whole", Fault::LimitIsSmall, "more than the 16777216 accepted"),
    (
        "the_message_size_limit_can_be_set",
        Fault::LimitIsFixed,
        "a message of 140 bytes is accepted when receiving a message that is longer",
    ),
    (
        "an_oversized_message_is_refused_by_its_header",
        Fault::LimitIsNone,
        "hangs for 3s when receiving the header of a message of 2 GiB",
    ),
    ("a_closed_connection_is_a_network_error", Fault::ReceivesTimeOut, "expected Network at Hello"),
    ("a_reset_connection_is_a_network_error", Fault::ReceivesTimeOut, "expected Network at Hello"),
    ("a_truncated_message_is_a_network_error", Fault::ReceivesTimeOut, "expected Network at Hello"),
    (
        "a_silent_connection_times_out_at_the_deadline",
        Fault::SendsSucceed,
        "a send succeeded after the connection had failed when using a connection after a receive",
    ),
    (
        "an_idle_connection_can_be_looked_at",
        Fault::LooksBreak,
        "the connection broke when sending a message",
    ),
    (
        "a_dropped_connection_is_closed",
        Fault::ConnectionsLeak,
        "hangs for 3s when waiting for the peer to see that a dropped connection is closed",
    ),
    (
        "a_dropped_receive_makes_the_connection_unusable",
        Fault::SendsSucceed,
        "a send succeeded after the connection had failed when using a connection after a receive",
    ),
    ("a_receive_may_move_to_another_thread", Fault::ReceivesWakeTheFirst, "hangs for 3s when"),
    (
        "tasks_run_to_completion",
        Fault::TasksNeverRun,
        "hangs for 3s when waiting for a task to end",
    ),
    ("spawn_returns_without_waiting", Fault::SpawnBlocks, "the fastest call took 2"),
    (
        "a_pending_task_holds_up_no_other",
        Fault::TasksTakeTurns,
        "hangs for 3s when waiting for a task that waits for a later one",
    ),
    ("tasks_never_run_inline", Fault::TasksRunInline, "before `spawn` returned"),
    ("tasks_are_spawned_from_any_thread", Fault::SpawnsOnlyInside, "0 of 64 tasks have run"),
    ("tasks_spawn_tasks", Fault::SpawnsOnlyOutside, "the inner task was dropped"),
    (
        "a_panic_ends_only_its_task",
        Fault::PanicsEndAll,
        "the inner task was dropped after another task had panicked",
    ),
    (
        "tasks_start_before_shutdown",
        Fault::TasksNeverRun,
        "hangs for 3s when waiting for three tasks to start",
    ),
    (
        "running_tasks_are_dropped_at_shutdown",
        Fault::TasksOutlive,
        "hangs for 3s when waiting for tasks to be dropped that were alive at the shutdown",
    ),
    (
        "tasks_spawned_after_shutdown_are_dropped",
        Fault::TasksOutlive,
        "it ran after the runtime had shut down",
    ),
    (
        "timers_continue_after_shutdown",
        Fault::TimersEnd,
        "hangs for 3s when waiting for a timer that was polled before the shutdown",
    ),
    ("connects_after_shutdown_end", Fault::AttemptsPanicLate, "panics: the runtime has shut down"),
    (
        "connections_close_after_shutdown",
        Fault::ConnectionsLeak,
        "hangs for 3s when waiting for the peer to see that a connection of a stopped runtime",
    ),
    (
        "a_refusing_address_is_skipped",
        Fault::RefusalsComeLate,
        "the socket is closed when sending a message",
    ),
    (
        "the_next_address_overtakes_a_silent_one",
        Fault::DialBlocks,
        "hangs for 3s when connecting to two addresses, of which the first is silent",
    ),
    (
        "an_ipv6_address_keeps_its_zone",
        Fault::ZonesAreLost,
        "the addresses of fe80::1%1 are [[fe80::1]:0]",
    ),
    (
        "tcp_sockets_probe_an_idle_peer",
        Fault::SocketsAreUntuned,
        "the system runs no keep-alive timer for the socket",
    ),
    #[cfg(target_os = "linux")]
    (
        "a_write_to_a_peer_that_vanished_ends",
        Fault::SocketsAreUntuned,
        "hangs for 3s when writing to a peer that has vanished",
    ),
];

#[test]
fn the_cause_is_reported_alone_when_a_spawner_does_not_work() {
    let check = |fault, check: &str| {
        let mut report = Report::new(SHORT, SHORT);
        check_tasks(&breaking(fault).runtime, &mut report);
        assert!(report.failures[0].starts_with(check), "{:?}", report.failures);
        assert_eq!(report.failures.len(), 1, "{:?}", report.failures);
    };
    thread::scope(|scope| {
        scope.spawn(|| check(Fault::TasksNeverRun, "tasks_run_to_completion: "));
        scope.spawn(|| check(Fault::TasksTakeTurns, "a_pending_task_holds_up_no_other: "));
    });
}

/// Runs only `check` on a runtime with the given fault, and returns the failures.
fn complaints(check: &str, fault: Fault) -> Vec<String> {
    let mut report = Report::new(SHORT, Duration::MAX);
    let base = breaking(fault);
    let backend = BACKEND_CHECKS.iter().chain(PENDING_CHECKS);
    for own in backend.filter(|own| own.rule.check == check) {
        own.on_foreign_executor(base.runtime.backend.clone(), &mut report);
    }
    for own in SPAWN_CHECKS.iter().filter(|own| own.rule.check == check) {
        own.on_foreign_executor(base.runtime.clone(), &mut report);
    }
    for own in dial_checks().iter().filter(|own| own.rule.check == check) {
        own.on_foreign_executor(dialer(fault), &mut report);
    }
    if spawn::SHUTDOWN_RULES.iter().any(|rule| rule.check == check) {
        spawn::check_shutdown(&base.runtime.clone(), || base.end(), &mut report);
    }
    report.failures
}

#[test]
fn every_broken_rule_is_reported_with_its_step_and_contract() {
    let rules = rules();
    // The checks run concurrently, because some of them hang until the time limit.
    thread::scope(|scope| {
        for (check, fault, words) in BROKEN {
            let rule = *rules.iter().find(|rule| rule.check == *check).unwrap();
            scope.spawn(move || {
                let complaints = complaints(check, *fault);
                if *fault == Fault::SocketsAreUntuned && dial::control().unwrap().1.is_none() {
                    return assert_eq!(
                        complaints, [""; 0],
                        "complaints about timers that the system does not show"
                    );
                }
                let begins = format!("{check}: ");
                let own = complaints.iter().find(|text| text.starts_with(&begins));
                let own = own.unwrap_or_else(|| panic!("{check} is not in {complaints:#?}"));
                assert!(own.contains(words), "`{words}` is not in {own}");
                let named = format!("broken rule of {}: {}", rule.contract, rule.words);
                assert!(own.ends_with(&named), "`{named}` is not in {own}");
            });
        }
    });
}

#[test]
fn every_rule_is_broken_by_some_double() {
    let checks: BTreeSet<_> = rules().iter().map(|rule| rule.check).collect();
    let broken: BTreeSet<_> = BROKEN.iter().map(|(check, ..)| *check).collect();
    assert_eq!(checks, broken);
}

/// Returns the list items of the contract of the trait `name`, each on one line, as they are
/// written in its source.
fn contract(name: &str) -> Vec<String> {
    let source = match name {
        "Clock" => include_str!("../../../sdam-transport/src/clock.rs"),
        "Spawner" => include_str!("../../../sdam-transport/src/spawn.rs"),
        "Transport" | "Connection" => include_str!("../../../sdam-transport/src/connect.rs"),
        "Dial" => include_str!("../../../sdam-transport/src/dial.rs"),
        _ => panic!("{name} has no contract"),
    };
    let (before, _) = source.split_once(&format!("pub trait {name}:")).unwrap();
    let (_, contract) = before.rsplit_once("/// # Contract").unwrap();
    let mut bullets: Vec<String> = Vec::new();
    for line in contract.lines() {
        if let Some(bullet) = line.strip_prefix("/// - ") {
            bullets.push(bullet.to_owned());
        } else if let (Some(more), Some(bullet)) = (line.strip_prefix("///   "), bullets.last_mut())
        {
            bullet.extend([" ", more]);
        }
    }
    bullets
}

#[test]
fn contracts_and_suite_have_the_same_text() {
    let rules = rules();
    for rule in &rules {
        let bullets = contract(rule.contract);
        assert!(
            bullets.iter().any(|bullet| bullet.contains(rule.words)),
            "the contract of {} does not contain: {}",
            rule.contract,
            rule.words
        );
    }
    for name in ["Clock", "Spawner", "Transport", "Connection", "Dial"] {
        for bullet in contract(name) {
            let checked =
                rules.iter().any(|rule| rule.contract == name && bullet.contains(rule.words));
            assert!(
                checked || bullet.starts_with("The caller holds no lock"),
                "no check covers {name}: {bullet}"
            );
        }
    }
}
