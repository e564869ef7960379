//! A conformance suite for connection pools, which tests a [`PoolFactory`] and its pools.
//!
//! A pool that passes satisfies the contracts of [`PoolFactory`] and [`PoolHandle`], to the extent
//! that tests can observe them, and the rules of CMAP that it [claims](PoolUser::claims):
//!
//! ```
//! use sdam_testkit::conformance::pools::{self, PoolUser};
//!
//! /// Called from a `#[test]` with the adapter to the pool under test.
//! fn keeps_its_contracts(user: impl PoolUser) {
//!     pools::check(user);
//! }
//! ```
//!
//! A [`PoolUser`] defines how an application creates the factory, checks out a connection, runs a
//! command on it and checks it in. A failure names the rule, the contract and the step that failed.
//! A step that takes 20 seconds counts as hanging.
//!
//! The server, its clock and the topology are simulated. There is no network, and the stand-in for
//! a topology records the pool's reports. Each check creates its own pool. Futures and spawned
//! tasks are polled on the thread of the check. A pool that needs its own runtime may start it in
//! [`PoolUser::factory`]; the suite waits for work on other threads.

mod checking_out;
mod closing;
mod host;
mod seam;
mod server;
mod setup;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sdam_core::{error::Error, options::Options};

use self::setup::Lab;
use super::{
    Outcome, STEP_TIMEOUT, ensure,
    report::{Report, Rule, Run},
    rule,
};
use sdam_transport::pool::PoolFactory;
#[cfg(doc)]
use sdam_transport::pool::PoolHandle;

/// The type of the pools that a user's factory creates.
pub type PoolOf<U> = <<U as PoolUser>::Factory as PoolFactory>::Pool;

/// Uses the pools under test like an application.
#[async_trait]
pub trait PoolUser: Send + Sync + 'static {
    /// The factory under test.
    type Factory: PoolFactory;
    /// A checked out connection.
    type Connection: Send + 'static;

    /// Returns the rules that the pools keep in addition to the contract of [`PoolHandle`], such as
    /// [`Claim::ALL`] for a complete CMAP pool.
    fn claims(&self) -> &[Claim];

    /// Creates a factory whose pools follow `options`. The suite sets some of `maxPoolSize`,
    /// `minPoolSize`, `maxConnecting`, `waitQueueTimeoutMS` and `loadBalanced`. Options that the
    /// pools do not support may be ignored.
    fn factory(&self, options: &Options) -> Self::Factory;

    /// Checks out a connection. The suite may drop the future at any time.
    ///
    /// # Errors
    ///
    /// If the pool provides no connection.
    async fn check_out(&self, pool: &PoolOf<Self>) -> Result<Self::Connection, Error>;

    /// Runs a command, a BSON document with `$db`, and reports its error to the topology. The suite
    /// may drop the future at any time.
    ///
    /// # Errors
    ///
    /// If the connection broke or was interrupted.
    async fn run_command(
        &self,
        connection: &mut Self::Connection,
        command: &[u8],
    ) -> Result<(), Error>;

    /// Checks in the connection, regardless of its state.
    fn check_in(&self, pool: &PoolOf<Self>, connection: Self::Connection);
}

/// An optional rule for pools, checked only if the pool claims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Claim {
    /// A connection that was checked in is handed out again.
    Reuses,
    /// A check-out from a paused pool fails at once with a [retryable](Error::is_retryable_pool)
    /// error.
    Pauses,
    /// A clear and the closing of the pool fail the check-outs that wait.
    EvictsWaiters,
    /// A clear with [`interrupt_in_use`](sdam_core::pool::PoolClear::interrupt_in_use) ends the
    /// commands on older connections, and the opening of connections.
    Interrupts,
    /// `maxPoolSize` limits the connections, and a check-out beyond it waits. A connection that
    /// cannot be opened leaves its place to others.
    MaxPoolSize,
    /// `maxConnecting` limits the connections that are being opened. A check-out that waits for its
    /// turn takes a connection that is checked in meanwhile.
    MaxConnecting,
    /// A check-out that has waited for `waitQueueTimeoutMS` fails with an error of kind
    /// [`ErrorKind::WaitQueueTimeout`](sdam_core::error::ErrorKind::WaitQueueTimeout).
    WaitQueueTimeout,
    /// Check-outs that wait are served in the order in which they began.
    Fair,
    /// The pool works behind a load balancer.
    LoadBalanced,
}

impl Claim {
    /// All claims of a complete CMAP pool.
    pub const ALL: &[Self] = &[
        Self::Reuses,
        Self::Pauses,
        Self::EvictsWaiters,
        Self::Interrupts,
        Self::MaxPoolSize,
        Self::MaxConnecting,
        Self::WaitQueueTimeout,
        Self::Fair,
        Self::LoadBalanced,
    ];
}

/// Checks the pools of a factory.
///
/// # Panics
///
/// If any check failed, panics after all checks have run. The message lists the failures.
pub fn check<U: PoolUser>(user: U) {
    let failures = failures_of(user, None, STEP_TIMEOUT);
    assert!(failures.is_empty(), "contracts are broken:\n  {}", failures.join("\n  "));
}

/// Runs all checks, or only the check called `name`, and returns a message for each broken rule.
/// This is used to test pools that break rules. `patience` is the time after which a step counts as
/// hanging.
///
/// If a check relies on a rule that is broken, it is skipped. The last message lists the skipped
/// checks.
pub fn failures_of<'n, U: PoolUser>(
    user: U,
    name: impl Into<Option<&'n str>>,
    patience: Duration,
) -> Vec<String> {
    let (user, name) = (Arc::new(user), name.into());
    let mut report = Report::new(patience, Duration::MAX);
    let (mut broken, mut left_out) = (Vec::new(), Vec::new());
    let claimed = checks::<U>().into_iter();
    let claimed = claimed.filter(|check| check.is_claimed(user.claims()));
    for check in claimed.filter(|check| name.is_none_or(|name| name == check.rule.check)) {
        if check.needs.iter().any(|need| broken.contains(need)) {
            left_out.push(check.rule.check);
            broken.push(check.rule.check);
            continue;
        }
        let before = report.failures.len();
        let run = Run::default();
        let lab = Lab::new(Arc::clone(&user), run.clone(), patience / 2);
        report.run(check.rule, "", &run, move || (check.run)(&lab));
        if report.failures.len() > before {
            broken.push(check.rule.check);
        }
    }
    if !left_out.is_empty() {
        report.failures.push(format!(
            "these checks were not run, because they rely on what is broken: {}",
            left_out.join(", ")
        ));
    }
    report.failures
}

/// Returns the names of all checks for a pool that makes the given `claims`.
pub fn names<U: PoolUser>(claims: &[Claim]) -> Vec<&'static str> {
    let checks = checks::<U>().into_iter();
    let claimed = checks.filter(|check| check.is_claimed(claims));
    claimed.map(|check| check.rule.check).collect()
}

/// A rule of pools and its check.
struct Check<U> {
    rule: Rule,
    claims: &'static [Claim],
    /// The earlier checks on which this one relies.
    needs: &'static [&'static str],
    run: fn(&Lab<U>) -> Outcome,
}

impl<U> Check<U> {
    fn is_claimed(&self, claims: &[Claim]) -> bool {
        self.claims.iter().all(|claim| claims.contains(claim))
    }
}

/// Lists checks. Each consists of a contract, the claims that it requires, the wording of its rule,
/// and the earlier checks that it requires.
macro_rules! checks {
    ($($contract:ident $(if $claim:ident)*: $words:literal
        => $module:ident :: $check:ident $([$($need:ident),*])?),* $(,)?) => {
        vec![$(Check {
            rule: rule!($contract: $words => $check),
            claims: &[$(Claim::$claim),*],
            needs: &[$($(stringify!($need)),*)?],
            run: $module::$check::<U>,
        }),*]
    };
}

/// Returns all checks, starting with the simplest rules.
#[expect(clippy::too_many_lines, reason = "a table")]
fn checks<U: PoolUser>() -> Vec<Check<U>> {
    checks![
        PoolFactory: "opens no connection before [`PoolHandle::ready`]"
            => checking_out::nothing_is_opened_before_the_pool_is_ready,
        PoolHandle: "Marks the pool ready to open connections"
            => checking_out::a_ready_pool_serves_check_outs,
        Claim if Reuses: "A connection that was checked in is handed out again."
            => checking_out::connections_are_used_again [a_ready_pool_serves_check_outs],
        PoolHandle: "A connection with an unfinished command is not used again."
            => checking_out::connections_with_unfinished_commands_are_not_reused
                [a_ready_pool_serves_check_outs],
        PoolHandle: "A message that cannot be the reply fails the command, and its connection is \
            closed"
            => checking_out::connections_with_bad_replies_are_not_reused
                [connections_are_used_again, connections_with_unfinished_commands_are_not_reused],
        Claim if Pauses: "A check-out from a paused pool fails at once with a \
            [retryable](Error::is_retryable_pool) error."
            => checking_out::check_outs_from_a_paused_pool_fail
                [nothing_is_opened_before_the_pool_is_ready],
        PoolHandle: "It reports each error of a connection once, with the stage and the generation."
            => checking_out::errors_of_opening_are_reported_once [a_ready_pool_serves_check_outs],
        PoolHandle: "It reports each error of a connection once, with the stage and the generation."
            => checking_out::errors_of_commands_are_reported_once
                [errors_of_opening_are_reported_once, connections_are_used_again,
                connections_with_unfinished_commands_are_not_reused],
        PoolHandle: "It reports the reply to each hello before the connection is used."
            => checking_out::handshakes_are_reported_before_connections_are_used
                [a_ready_pool_serves_check_outs],
        PoolHandle: "must not hold any lock that these methods take while it reports an error, a \
            handshake or the end of a connection."
            => seam::reports_are_made_with_no_lock_held [a_ready_pool_serves_check_outs],
        Claim if MaxPoolSize: "`maxPoolSize` limits the connections, and a check-out beyond it waits."
            => checking_out::the_size_of_the_pool_is_limited
                [connections_are_used_again, connections_with_unfinished_commands_are_not_reused],
        Claim if MaxConnecting: "`maxConnecting` limits the connections that are being opened."
            => checking_out::the_number_of_attempts_is_limited [a_ready_pool_serves_check_outs],
        Claim if MaxPoolSize: "A connection that cannot be opened leaves its place to others."
            => checking_out::a_connection_that_cannot_be_opened_leaves_its_place
                [the_size_of_the_pool_is_limited],
        Claim if MaxConnecting: "A check-out that waits for its turn takes a connection that is \
            checked in meanwhile."
            => checking_out::a_connection_that_is_checked_in_ends_the_wait_to_open_one
                [the_number_of_attempts_is_limited, connections_are_used_again,
                connections_with_unfinished_commands_are_not_reused],
        Claim if WaitQueueTimeout if MaxPoolSize: "A check-out that has waited for \
            `waitQueueTimeoutMS` fails with an error of kind"
            => checking_out::a_check_out_gives_up_after_its_time
                [the_size_of_the_pool_is_limited, check_outs_from_a_paused_pool_fail],
        Claim if Fair if MaxPoolSize: "Check-outs that wait are served in the order in which they \
            began."
            => checking_out::check_outs_are_served_in_order [the_size_of_the_pool_is_limited],
        PoolHandle: "Makes all connections of earlier generations stale"
            => closing::idle_connections_are_stale_after_a_clear
                [connections_are_used_again, connections_with_unfinished_commands_are_not_reused],
        PoolHandle: "It sends no hello before it is ready, and closes the socket when it is cleared \
            or closed"
            => checking_out::a_prepared_pool_opens_at_most_one_socket_and_sends_no_hello
                [nothing_is_opened_before_the_pool_is_ready,
                idle_connections_are_stale_after_a_clear],
        PoolHandle: "Makes all connections of earlier generations stale"
            => closing::connections_in_use_are_stale_after_a_clear
                [idle_connections_are_stale_after_a_clear],
        PoolHandle: "Makes all connections of earlier generations stale"
            => closing::connections_being_opened_are_stale_after_a_clear
                [idle_connections_are_stale_after_a_clear, check_outs_from_a_paused_pool_fail],
        Claim if Pauses: "A check-out from a paused pool fails at once with a \
            [retryable](Error::is_retryable_pool) error."
            => closing::a_clear_pauses_the_pool
                [idle_connections_are_stale_after_a_clear, check_outs_from_a_paused_pool_fail],
        Claim if EvictsWaiters if MaxPoolSize: "A clear and the closing of the pool fail the \
            check-outs that wait."
            => closing::a_clear_fails_waiting_check_outs
                [a_clear_pauses_the_pool, the_size_of_the_pool_is_limited],
        PoolHandle: "A clear leaves connections in use alone unless it"
            => closing::a_clear_without_interruption_leaves_commands_alone
                [a_ready_pool_serves_check_outs],
        Claim if Interrupts: "ends the commands on older connections"
            => closing::an_interrupting_clear_ends_commands
                [idle_connections_are_stale_after_a_clear],
        PoolHandle if Interrupts: "affects no connection of the new generation"
            => closing::an_interrupting_clear_leaves_newer_connections_alone
                [an_interrupting_clear_ends_commands],
        Claim if Interrupts: "and the opening of connections."
            => closing::an_interrupting_clear_ends_the_opening_of_connections
                [an_interrupting_clear_ends_commands, check_outs_from_a_paused_pool_fail],
        PoolHandle: "every later check-out fails"
            => closing::a_closed_pool_fails_check_outs
                [connections_with_unfinished_commands_are_not_reused,
                check_outs_from_a_paused_pool_fail],
        PoolHandle: "Idle connections are closed then, and those in use when they are checked in."
            => closing::a_closed_pool_closes_its_connections
                [a_closed_pool_fails_check_outs, connections_are_used_again],
        Claim if EvictsWaiters if MaxPoolSize: "A clear and the closing of the pool fail the \
            check-outs that wait."
            => closing::closing_fails_waiting_check_outs
                [a_closed_pool_fails_check_outs, a_clear_fails_waiting_check_outs],
        PoolHandle: "A check-out may be dropped at any time, and leaves no connection behind."
            => checking_out::a_dropped_check_out_leaves_nothing
                [a_closed_pool_closes_its_connections, idle_connections_are_stale_after_a_clear],
        PoolHandle: "must take constant time, must not block, and must not call back into the \
            topology; sockets are closed later"
            => seam::calls_of_the_topology_return_at_once [a_dropped_check_out_leaves_nothing],
        PoolHandle: "Errors of the pool itself, such as a time-out in the wait queue, are never \
            reported."
            => closing::errors_of_the_pool_are_not_reported
                [a_dropped_check_out_leaves_nothing, errors_of_commands_are_reported_once],
        PoolHandle if LoadBalanced: "It reports the end of each reported connection once, after any \
            error of that connection."
            => seam::each_counted_connection_ends_once
                [handshakes_are_reported_before_connections_are_used,
                errors_of_commands_are_reported_once, a_closed_pool_closes_its_connections],
        PoolHandle if LoadBalanced: "clear of one service leaves connections to the others alone"
            => seam::a_clear_of_one_service_leaves_the_others
                [handshakes_are_reported_before_connections_are_used,
                idle_connections_are_stale_after_a_clear],
        PoolHandle if LoadBalanced if MaxPoolSize: "and fails no check-out."
            => seam::a_clear_of_one_service_fails_no_check_out
                [a_clear_of_one_service_leaves_the_others, the_size_of_the_pool_is_limited],
    ]
}
