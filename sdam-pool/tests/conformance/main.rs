//! The pool passes the conformance suite of pools, and the suite names each rule that pools with a
//! fault break.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod doubles;

use std::{collections::BTreeSet, thread, time::Duration};

use sdam_core::options::Options;
use sdam_pool::{Error, Pool, PooledConnection, Pools};
use sdam_transport::{
    async_trait,
    conformance::pools::{self, Claim, Failure, PoolUser},
};

use self::doubles::{Fault, Faulty};

/// The timeout of a step: enough for a working pool, and short for one that hangs.
const SHORT: Duration = Duration::from_secs(3);

/// Uses the pool of this crate.
struct Own;

#[async_trait]
impl PoolUser for Own {
    type Factory = Pools;
    type Connection = PooledConnection;

    fn claims(&self) -> &[Claim] {
        Claim::ALL
    }

    fn factory(&self, options: &Options) -> Pools {
        Pools::new(options).unwrap()
    }

    async fn check_out(&self, pool: &Pool) -> Result<PooledConnection, Failure> {
        pool.check_out().await.map_err(failure)
    }

    async fn run_command(
        &self,
        connection: &mut PooledConnection,
        command: &[u8],
    ) -> Result<(), Failure> {
        let reply = connection.run_command(command, None).await;
        reply.map(drop).map_err(failure)
    }

    fn check_in(&self, _: &Pool, connection: PooledConnection) {
        drop(connection);
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Pool(error) => error.into(),
        Error::Connection(error) => error.into(),
        other => Failure::Other(other.to_string().into()),
    }
}

#[test]
fn the_pool_passes() {
    pools::check(Own);
}

/// Each rule, a pool that breaks it, and the expected message.
const BROKEN: &[(&str, Fault, &str)] = &[
    (
        "nothing_is_opened_before_the_pool_is_ready",
        Fault::StartsReady,
        "1 connections are opened when checking out a connection from a pool that was never ready",
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
        Fault::ReportsUnderLock,
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
        "an_interrupting_clear_ends_commands_of_older_generations_only",
        Fault::NeverInterrupts,
        "nothing has happened for 1.5s when waiting for a command to be interrupted",
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
    (
        "errors_of_the_pool_are_not_reported",
        Fault::ReportsPoolErrors,
        "instead of none",
    ),
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
        "a_dropped_check_out_leaves_nothing",
        Fault::ForgetsDroppedCheckOuts,
        "nothing has happened for 1.5s when checking out a connection",
    ),
    (
        "the_size_of_the_pool_is_limited",
        Fault::IgnoresLimits,
        "9 connections were open at the same time",
    ),
    (
        "the_number_of_attempts_is_limited",
        Fault::IgnoresLimits,
        "when waiting for two connections to be opened",
    ),
    (
        "check_outs_are_served_in_order",
        Fault::OvertakesInQueue,
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
    // Hanging checks run concurrently.
    thread::scope(|scope| {
        for (name, fault, words) in BROKEN {
            scope.spawn(move || {
                let failures = pools::failures_of(Faulty(*fault), name, SHORT);
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
fn every_rule_is_broken_by_some_double() {
    let names: BTreeSet<_> = pools::names::<Own>(Claim::ALL).into_iter().collect();
    let broken: BTreeSet<_> = BROKEN.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, broken);
}

#[test]
fn a_double_without_a_fault_passes() {
    pools::check(Faulty(Fault::None));
}
