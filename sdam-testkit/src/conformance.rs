//! The conformance suites: tests of a runtime, and of [connection pools](pools).
//!
//! A runtime that passes satisfies the contracts of [`Clock`],
//! [`Transport`](sdam_transport::connect::Transport),
//! [`Connection`](sdam_transport::connect::Connection), [`Dial`] and
//! [`Spawner`](sdam_transport::spawn::Spawner), to the extent that tests can observe them:
//!
//! ```
//! /// Called from a `#[test]` with the runtime under test.
//! fn keeps_its_contracts(runtime: &sdam_transport::runtime::Runtime) {
//!     sdam_testkit::conformance::runtime(runtime);
//! }
//! ```
//!
//! Each check tests one rule, quoted from the contract. A failure names the rule, the contract and
//! the step that failed. A step that takes 20 seconds counts as hanging. Once a check has failed,
//! no further check begins later than 10 seconds after the start, so a broken runtime is reported
//! after about half a minute.
//!
//! All peers are threads of this process that listen on loopback addresses and system-assigned
//! ports. The suite measures time only with the clock under test, and asserts only lower bounds,
//! except for calls of `spawn`. A check that runs in a task of the runtime never blocks its thread.

mod clock;
mod connection;
mod dial;
mod peer;
pub mod pools;
mod report;
mod spawn;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures::{FutureExt as _, channel::oneshot, executor::block_on, future::BoxFuture};

use self::{
    dial::Dialer,
    report::{Report, Rule, Run},
};
use sdam_transport::{
    clock::Clock,
    dial::Dial,
    runtime::{Backend, Runtime},
    spawn::Task,
};

/// Checks a clock and a transport. An executor outside the runtime polls their futures on its own
/// threads.
///
/// # Panics
///
/// If any check failed, panics after all checks have run. The message lists the failures.
pub fn backend(backend: &Backend) {
    let mut report = Report::new(STEP_TIMEOUT, TIME_WITH_FAILURES);
    check_backend(backend, &mut report);
    report.finish();
}

/// Checks a clock and a transport whose futures block instead of returning `Pending`.
///
/// # Panics
///
/// If any check failed or a future was pending, panics after all checks have run. The message lists
/// the failures.
pub fn blocking(backend: &Backend) {
    let mut report = Report::new(STEP_TIMEOUT, TIME_WITH_FAILURES);
    for check in BACKEND_CHECKS {
        let run = Run::blocking();
        let future = (check.run)(backend.clone(), run.clone());
        report.run(check.rule, "", &run, || {
            let outcome = future.now_or_never();
            outcome.unwrap_or_else(|| Err("a future is pending, but it has to block".into()))
        });
    }
    report.finish();
}

/// Checks a complete runtime: runs the checks of [`backend`], checks the spawner, and, if the
/// spawner works, repeats the checks of [`backend`] inside tasks of the runtime.
///
/// # Panics
///
/// If any check failed, panics after all checks have run. The message lists the failures.
pub fn runtime(runtime: &Runtime) {
    let mut report = Report::new(STEP_TIMEOUT, TIME_WITH_FAILURES);
    check_backend(&runtime.backend, &mut report);
    check_tasks(runtime, &mut report);
    report.finish();
}

/// Checks that a dialer skips an address that refuses the connection, and that it tries the next
/// address while an earlier one does not answer. On Linux, also checks that idle peers are probed,
/// and that a write to a vanished peer fails.
///
/// The rules that apply to all transports are checked by [`backend`], [`blocking`] and [`runtime`].
///
/// # Panics
///
/// If any check failed, panics after all checks have run. The message lists the failures.
pub fn dial<D: Dial>(dial: D, clock: Arc<dyn Clock>) {
    let dialer = Dialer::new(dial, clock);
    let mut report = Report::new(STEP_TIMEOUT, TIME_WITH_FAILURES);
    for check in dial_checks() {
        check.on_foreign_executor(dialer.clone(), &mut report);
    }
    report.finish();
}

/// Checks that a runtime shuts down cleanly. `shut_down` must end the runtime while some of its
/// tasks are still alive.
///
/// # Panics
///
/// If tasks that were alive at the shutdown are not dropped, or if parts of the runtime panic or
/// break their contracts after the shutdown.
pub fn shutdown(runtime: &Runtime, shut_down: impl FnOnce()) {
    let mut report = Report::new(STEP_TIMEOUT, TIME_WITH_FAILURES);
    spawn::check_shutdown(runtime, shut_down, &mut report);
    report.finish();
}

/// The result of a check; the error is a message.
type Outcome = Result<(), String>;

/// A rule and its check.
struct Check<T> {
    rule: Rule,
    run: fn(T, Run) -> BoxFuture<'static, Outcome>,
}

impl<T> Check<T> {
    /// Runs the check on an executor and a thread that do not belong to the runtime.
    fn on_foreign_executor(&self, subject: T, report: &mut Report) {
        let run = Run::default();
        let future = (self.run)(subject, run.clone());
        report.run(self.rule, "", &run, || block_on(future));
    }
}

impl Check<Backend> {
    /// Runs the check in a task of `runtime`.
    fn in_task(&self, runtime: &Runtime, report: &mut Report) {
        let run = Run::default();
        let (done, outcome) = oneshot::channel();
        let future = (self.run)(runtime.backend.clone(), run.clone());
        run.step("waiting for the task of the check to run");
        runtime.spawner.spawn(Task::new("conformance", async move {
            // The receiver is dropped if the check took too long.
            let _ = done.send(future.await);
        }));
        report.run(self.rule, ", in a task", &run, || {
            let outcome = block_on(outcome);
            outcome.unwrap_or_else(|_| Err("the task was dropped or has panicked".into()))
        });
    }
}

/// Checks the spawner and, if it works, the backend inside its tasks.
fn check_tasks(runtime: &Runtime, report: &mut Report) {
    let failures = report.failures.len();
    for check in SPAWN_CHECKS {
        check.on_foreign_executor(runtime.clone(), report);
    }
    if report.failures.len() > failures {
        return;
    }
    for check in BACKEND_CHECKS.iter().chain(PENDING_CHECKS) {
        check.in_task(runtime, report);
    }
}

fn check_backend(backend: &Backend, report: &mut Report) {
    for check in BACKEND_CHECKS.iter().chain(PENDING_CHECKS) {
        check.on_foreign_executor(backend.clone(), report);
    }
}

/// Fails a check unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
use ensure;

/// Creates a [`Rule`] from the trait of its contract, its wording and its check.
macro_rules! rule {
    ($contract:ident: $words:literal => $check:ident) => {
        Rule { check: stringify!($check), contract: stringify!($contract), words: $words }
    };
}
use rule;

/// Builds a table of checks. The checks are grouped by the rule that they test, which consists of a
/// contract and a wording.
macro_rules! checks {
    ($($contract:ident: $words:literal => $module:ident::{$($check:ident),+ $(,)?}),* $(,)?) => {
        [$($(Check {
            rule: rule!($contract: $words => $check),
            run: |subject, run| Box::pin($module::$check(subject, run)),
        }),+),*]
    };
}

const BACKEND_CHECKS: &[Check<Backend>] = &checks![
    Clock: "`now` never goes backwards, whichever thread calls it."
        => clock::{now_never_goes_backwards},
    Clock: "A timer is ready when it is first polled if its deadline has passed by then."
        => clock::{past_deadlines_are_ready_at_once},
    Clock: "A timer is never early: once the future of `sleep_until` is ready, `now` is at or after \
        the deadline."
        => clock::{timers_are_never_early},
    Clock: "A clock whose timers block the thread that polls them reports that in \
        [`blocks`](Self::blocks)."
        => clock::{a_future_that_wakes_itself_wins_its_race},
    Transport: "A host name is looked up, and its addresses are tried until one answers."
        => connection::{host_names_are_looked_up_and_all_families_tried},
    Transport: "An error says at which [`stage`](Error::stage) the attempt failed"
        => connection::{an_invalid_host_name_fails_at_stage_dns, a_refused_connect_is_a_network_error},
    Transport: "The attempt ends with a time-out once `deadline` has passed"
        => connection::{a_connect_without_reply_times_out},
    Transport: "A path is connected to as a Unix domain socket, or refused by \
        [`DialTarget::unsupported`](crate::dial::DialTarget::unsupported)."
        => connection::{unix_sockets_work_or_are_unsupported},
    Connection: "Messages arrive whole, in order, and once."
        => connection::{messages_arrive_in_both_directions, long_messages_arrive_whole},
    Connection: "A message longer than the connection accepts is refused by its header, as a \
        protocol error."
        => connection::{
            the_message_size_limit_can_be_set,
            an_oversized_message_is_refused_by_its_header,
        },
    Connection: "A connection that the server closes or resets, in the middle of a message or \
        before, is a network error at [`Stage::Hello`]."
        => connection::{
            a_closed_connection_is_a_network_error,
            a_reset_connection_is_a_network_error,
            a_truncated_message_is_a_network_error,
        },
    Connection: "A connection that blocks ends `send` and `recv` with a time-out when the deadline \
        that was set has passed."
        => connection::{a_silent_connection_times_out_at_the_deadline},
    Connection: "A `recv` that is dropped or times out while no reply is due, and before a byte has \
        arrived, leaves the connection as it was."
        => connection::{an_idle_connection_can_be_looked_at},
    Connection: "Dropping the connection closes its socket, at once or as soon as the runtime runs"
        => connection::{a_dropped_connection_is_closed},
];

/// The checks for runtimes whose futures may return `Pending`.
const PENDING_CHECKS: &[Check<Backend>] = &checks![
    Clock: "A timer may be polled by any executor, and moved to another thread between two polls."
        => clock::{a_timer_may_move_to_another_thread},
    Clock: "A timer may be dropped before it is ready, on any thread."
        => clock::{timers_may_be_dropped_before_they_are_ready},
    Transport: "Dropping the future abandons the attempt: a socket that it has opened is closed."
        => connection::{a_dropped_connect_is_abandoned},
    Connection: "A `send` or `recv` that failed, or was dropped before it was ready, makes the \
        connection unusable"
        => connection::{a_dropped_receive_makes_the_connection_unusable},
    Connection: "may poll the futures by any executor on any thread, each poll on another one."
        => connection::{a_receive_may_move_to_another_thread},
];

/// The checks of a spawner. Each check relies on the earlier ones.
const SPAWN_CHECKS: &[Check<Runtime>] = &checks![
    Spawner: "The task runs to completion" => spawn::{tasks_run_to_completion},
    Spawner: "`spawn` returns without waiting." => spawn::{spawn_returns_without_waiting},
    Spawner: "A task that is pending holds up no other task."
        => spawn::{a_pending_task_holds_up_no_other},
    Spawner: "`spawn` never polls the task before it returns."
        => spawn::{tasks_never_run_inline},
    Spawner: "`spawn` works on any thread, outside of the runtime and inside its tasks."
        => spawn::{tasks_are_spawned_from_any_thread, tasks_spawn_tasks},
    Spawner: "A task that panics is dropped and ends alone; the runtime and its other tasks continue."
        => spawn::{a_panic_ends_only_its_task},
];

fn dial_checks<D: Dial>() -> [Check<Dialer<D>>; 5] {
    checks![
        Dial: "An address that refuses is an error at once"
            => dial::{a_refusing_address_is_skipped},
        Dial: "one that is silent is pending, unless [`blocks`](Self::blocks) says otherwise."
            => dial::{the_next_address_overtakes_a_silent_one},
        Dial: "An IPv6 address with a zone keeps the zone when it is looked up."
            => dial::{an_ipv6_address_keeps_its_zone},
        Dial: "A TCP socket sends without delay and probes an idle peer"
            => dial::{tcp_sockets_probe_an_idle_peer},
        Dial: "A TCP socket with a [user timeout](DialOptions::user_timeout) breaks once the peer has \
            acknowledged nothing for that time"
            => dial::{a_write_to_a_peer_that_vanished_ends},
    ]
}

/// The time after which a step counts as hanging. No working step needs nearly that long.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// The time after which no further check begins if one has failed.
const TIME_WITH_FAILURES: Duration = Duration::from_secs(10);
