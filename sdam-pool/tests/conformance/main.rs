//! Checks that the pool passes the conformance suite for pools, and that the suite detects each
//! faulty pool and names the broken rule.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod doubles;

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::Duration,
};

use sdam_core::{error::Error, options::Options};
use sdam_pool::{Pool, PooledConnection, Pools};
use sdam_testkit::conformance::pools::{self, Claim, PoolUser};
use sdam_transport::async_trait;

use self::doubles::{Fault, Faulty};

/// The time limit for a step: long enough for a working pool, and short enough that a pool that
/// hangs does not delay the tests for long.
const SHORT: Duration = Duration::from_secs(3);

/// Lets the conformance suite use the pool of this crate.
struct Own;

#[async_trait]
impl PoolUser for Own {
    type Factory = Pools;
    type Connection = PooledConnection;

    fn claims(&self) -> &[Claim] {
        Claim::ALL
    }

    fn factory(&self, _: &Options) -> Pools {
        Pools::new()
    }

    async fn check_out(&self, pool: &Pool) -> Result<PooledConnection, Error> {
        pool.check_out().await
    }

    async fn run_command(
        &self,
        connection: &mut PooledConnection,
        command: &[u8],
    ) -> Result<(), Error> {
        let reply = connection.run_command(command, None).await;
        reply.map(drop)
    }

    fn check_in(&self, _: &Pool, connection: PooledConnection) {
        drop(connection);
    }
}

#[test]
fn the_pool_passes() {
    pools::check(Own);
}

/// The rules, each with a pool that breaks it and the expected message.
const BROKEN: &[(&str, Fault, &str)] = &[
    (
        "nothing_is_opened_before_the_pool_is_ready",
        Fault::StartsReady,
        "1 connections are opened when checking out a connection from a pool that was never ready",
    ),
    (
        "a_prepared_pool_opens_at_most_one_socket_and_sends_no_hello",
        Fault::Hurries,
        "a hello is sent before the pool is ready when preparing a pool",
    ),
    (
        "check_outs_from_a_paused_pool_fail",
        Fault::SwallowsPoolErrors,
        "nothing has happened for 1.5s when checking out a connection from a pool that was never",
    ),
    (
        "a_ready_pool_serves_check_outs",
        Fault::IgnoresReady,
        "the check-out fails: Connection pool for a:27017 is not ready yet",
    ),
    (
        "errors_of_opening_are_reported_once",
        Fault::ReportsTwice,
        "instead of [(Connect, Generation(1))]",
    ),
    (
        "handshakes_are_reported_before_connections_are_used",
        Fault::HidesHandshakes,
        "handshakes of the generations [] instead of [Generation(1)] are reported",
    ),
    (
        "reports_are_made_with_no_lock_held",
        Fault::CallsUnderLock,
        "hangs for 3s when reporting a broken command to a topology that calls the pool",
    ),
    (
        "calls_of_the_topology_return_at_once",
        Fault::CallsBack,
        "it calls the topology back within clear",
    ),
    (
        "idle_connections_are_stale_after_a_clear",
        Fault::ForgetsClears,
        "a connection that was idle at a clear is handed out",
    ),
    (
        "connections_in_use_are_stale_after_a_clear",
        Fault::ForgetsClears,
        "a connection that was in use at a clear is handed out again",
    ),
    (
        "connections_being_opened_are_stale_after_a_clear",
        Fault::ForgetsClears,
        "a connection that was being opened at a clear is handed out",
    ),
    (
        "a_clear_without_interruption_leaves_commands_alone",
        Fault::AlwaysInterrupts,
        "a clear ends the command on a connection in use",
    ),
    (
        "an_interrupting_clear_ends_commands",
        Fault::NeverInterrupts,
        "nothing has happened for 1.5s when waiting for a command to be interrupted",
    ),
    (
        "an_interrupting_clear_leaves_newer_connections_alone",
        Fault::InterruptsNewer,
        "the command on a newer connection ends, too",
    ),
    (
        "an_interrupting_clear_ends_the_opening_of_connections",
        Fault::ForgetsInterruptedOpenings,
        "nothing has happened for 1.5s when waiting for a check-out to fail whose connection was being",
    ),
    (
        "a_clear_pauses_the_pool",
        Fault::ForgetsClears,
        "the check-out succeeds when checking out a connection after a clear",
    ),
    (
        "connections_are_used_again",
        Fault::NeverReuses,
        "a connection that was checked in is not used again",
    ),
    (
        "connections_are_used_again",
        Fault::LeaksConnections,
        "a connection that was checked in is not used again",
    ),
    (
        "a_connection_that_cannot_be_opened_leaves_its_place",
        Fault::LeaksFailedOpenings,
        "nothing has happened for 1.5s when checking out a connection after others could not be",
    ),
    (
        "a_connection_that_is_checked_in_ends_the_wait_to_open_one",
        Fault::HoldsReturned,
        "while a check-out waits for its turn to open one (maxConnecting)",
    ),
    (
        "a_check_out_gives_up_after_its_time",
        Fault::IgnoresWaitQueueTimeout,
        "nothing has happened for 1.5s when waiting for a check-out to give up",
    ),
    (
        "a_clear_of_one_service_fails_no_check_out",
        Fault::ClearsAllServices,
        "the check-out fails: Connection pool for a:27017 was cleared",
    ),
    (
        "a_clear_fails_waiting_check_outs",
        Fault::SwallowsPoolErrors,
        "nothing has happened for 1.5s when waiting for check-outs to fail after a clear",
    ),
    (
        "a_closed_pool_fails_check_outs",
        Fault::IgnoresClose,
        "the check-out succeeds when checking out a connection from a closed pool",
    ),
    (
        "a_closed_pool_closes_its_connections",
        Fault::IgnoresClose,
        "nothing has happened for 1.5s when waiting for the idle connection of a closed pool",
    ),
    (
        "closing_fails_waiting_check_outs",
        Fault::IgnoresClose,
        "nothing has happened for 1.5s when waiting for a check-out to fail after the pool was",
    ),
    ("errors_of_the_pool_are_not_reported", Fault::ReportsPoolErrors, "instead of []"),
    (
        "errors_of_commands_are_reported_once",
        Fault::ReportsTwice,
        "instead of [(Operation, Generation(1))]",
    ),
    (
        "connections_with_unfinished_commands_are_not_reused",
        Fault::KeepsAllConnections,
        "a request was made before the reply to the previous one had arrived",
    ),
    (
        "connections_with_bad_replies_are_not_reused",
        Fault::KeepsBadReplies,
        "after a command with a Stray reply, a later one has no reply",
    ),
    (
        "connections_with_bad_replies_are_not_reused",
        Fault::AcceptsBadReplies,
        "the command succeeds with a message that cannot be its reply",
    ),
    (
        "a_dropped_check_out_leaves_nothing",
        Fault::ForgetsDroppedCheckOuts,
        "nothing has happened for 1.5s when checking out a connection",
    ),
    (
        "the_size_of_the_pool_is_limited",
        Fault::IgnoresMaxPoolSize,
        "9 connections were open at the same time",
    ),
    (
        "the_number_of_attempts_is_limited",
        Fault::IgnoresMaxConnecting,
        "when waiting for two connections to be opened",
    ),
    (
        "check_outs_are_served_in_order",
        Fault::ServesLatestFirst,
        "a check-out that began later is served first",
    ),
    (
        "each_counted_connection_ends_once",
        Fault::LeaksConnections,
        "nothing has happened for 1.5s when waiting for the reports of the ends of three",
    ),
    (
        "a_clear_of_one_service_leaves_the_others",
        Fault::ClearsAllServices,
        "the check-out fails: Connection pool for a:27017 was cleared",
    ),
];

#[test]
fn every_broken_rule_is_reported_with_its_name_and_step() {
    // Hanging checks run concurrently to save time.
    thread::scope(|scope| {
        for (name, fault, words) in BROKEN {
            scope.spawn(move || {
                let failures = pools::failures_of(Faulty(*fault), *name, SHORT);
                let [failure] = failures.as_slice() else {
                    panic!("{name} is not broken by {fault:?}: {failures:?}");
                };
                assert!(failure.starts_with(&format!("{name}: ")), "{failure}");
                assert!(failure.contains(words), "`{words}` is not in {failure}");
            });
        }
    });
}

#[test]
fn one_fault_is_one_failure_and_checks_that_rely_on_it_are_not_run() {
    let faults: BTreeMap<_, _> =
        BROKEN.iter().map(|(_, fault, _)| (format!("{fault:?}"), *fault)).collect();
    thread::scope(|scope| {
        for fault in faults.into_values() {
            scope.spawn(move || {
                let failures = pools::failures_of(Faulty(fault), None, SHORT);
                let (first, rest) = failures.split_first().unwrap();
                let broken = BROKEN.iter().filter(|(_, other, _)| *other == fault);
                let is_cause = |(name, ..): &(&str, _, _)| first.starts_with(&format!("{name}: "));
                assert!({ broken }.any(is_cause), "{fault:?}: {failures:#?}");
                let is_note = |text: &String| text.starts_with("these checks were not run");
                assert!(rest.len() < 2 && rest.iter().all(is_note), "{fault:?}: {failures:#?}");
            });
        }
    });
}

#[test]
fn every_rule_is_broken_by_some_double() {
    let names: BTreeSet<_> = pools::names::<Own>(Claim::ALL).into_iter().collect();
    let broken: BTreeSet<_> = BROKEN.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, broken);
}

#[test]
fn a_double_without_a_fault_passes() {
    pools::check(Faulty(Fault::None));
}
