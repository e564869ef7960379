//! The suite by which a runtime is tested.
//!
//! A runtime that passes keeps the contracts of [`Clock`],
//! [`Transport`](crate::connect::Transport), [`Connection`](crate::connect::Connection) and
//! [`Spawner`](crate::spawn::Spawner), as far as they can be observed:
//!
//! ```
//! /// Called from a `#[test]` with the runtime under test.
//! fn keeps_its_contracts(runtime: &sdam_transport::runtime::Runtime) {
//!     sdam_transport::conformance::runtime(runtime);
//! }
//! ```
//!
//! All peers are threads of this process on loopback addresses and ports that the system picks.
//! Nothing waits for time to pass except through the clock under test, of which only lower bounds
//! and order are asserted.
//! Each check runs on a thread of its own, and one that hangs fails.

mod clock;
mod connection;
mod dial;
mod peer;
mod shutdown;
mod spawn;

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use futures::{FutureExt as _, channel::oneshot, executor::block_on};

use self::{dial::Dialler, shutdown::Live};
use crate::{
    clock::Clock,
    dial::Dial,
    runtime::{Io, Runtime},
    spawn::Task,
};

/// Functions and their names.
macro_rules! checks {
    (async $($module:ident :: $check:ident),* $(,)?) => {
        [$((stringify!($check), |subject| Box::pin($module::$check(subject)))),*]
    };
    ($($module:ident :: $check:ident),* $(,)?) => {
        [$((stringify!($check), $module::$check)),*]
    };
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

/// Checks clock and transport, their futures being polled by a foreign executor on foreign threads.
///
/// # Panics
///
/// If a check fails, after all have run; the message lists those that failed.
pub fn io(io: &Io) {
    let mut report = Report::default();
    for (name, check) in IO_CHECKS.iter().chain(PENDING_CHECKS) {
        let future = check(io.clone());
        report.run(name, || block_on(future));
    }
    report.finish();
}

/// Checks a clock and a transport whose futures block instead of being pending.
///
/// # Panics
///
/// If a check fails or a future is pending, after all checks have run; the message lists those that
/// failed.
pub fn blocking(io: &Io) {
    let mut report = Report::default();
    for (name, check) in IO_CHECKS {
        let future = check(io.clone());
        report.run(name, || {
            let outcome = future.now_or_never();
            outcome.unwrap_or_else(|| Err("a future is pending".into()))
        });
    }
    report.finish();
}

/// Checks a whole runtime: what [`io`] checks, the same again inside tasks of the runtime, and the
/// spawner.
///
/// # Panics
///
/// If a check fails, after all have run; the message lists those that failed.
pub fn runtime(runtime: &Runtime) {
    io(&runtime.io);
    let mut report = Report::default();
    for (name, check) in IO_CHECKS.iter().chain(PENDING_CHECKS) {
        let (done, outcome) = mpsc::channel();
        let future = check(runtime.io.clone());
        runtime.spawner.spawn(Task::new("conformance", async move {
            // Nobody listens any more if the check took too long.
            let _ = done.send(future.await);
        }));
        report.run(&format!("{name}, in a task"), move || {
            let outcome = outcome.recv();
            outcome.unwrap_or_else(|_| Err("the task was dropped".into()))
        });
    }
    for (name, check) in SPAWN_CHECKS {
        let runtime = runtime.clone();
        report.run(name, move || check(&runtime));
    }
    report.finish();
}

/// Checks a dialler through the transport that is made of it: that of several addresses one that
/// refuses is passed over, and one that is silent is overtaken.
///
/// What can be checked of any transport is checked by [`io`], [`blocking`] and [`runtime`].
///
/// # Panics
///
/// If a check fails, after all have run; the message lists those that failed.
pub fn dial<D: Dial>(dial: D, clock: Arc<dyn Clock>) {
    let dialler = Dialler::new(dial, clock);
    let checks: [(&str, Check<Dialler<D>>); 3] = checks![
        async
        dial::a_refusing_address_is_passed_over,
        dial::a_silent_address_is_overtaken,
        dial::every_address_is_named_if_all_refuse,
    ];
    let mut report = Report::default();
    for (name, check) in checks {
        let future = check(dialler.clone());
        report.run(name, || block_on(future));
    }
    report.finish();
}

/// Checks that a runtime can be shut down: `shut_down` ends it, with tasks of it alive.
///
/// # Panics
///
/// If live tasks are not dropped, or the seams panic or break their contracts afterwards.
pub fn shutdown(runtime: &Runtime, shut_down: impl FnOnce()) {
    let mut report = Report::default();
    let (before, live) = mpsc::channel();
    let starting = runtime.clone();
    report.run("shutdown::tasks_start", move || {
        let live = Live::start(&starting)?;
        before.send(live).map_err(|_| "nobody waits".to_owned())
    });
    shut_down();
    if let Ok(live) = live.try_recv() {
        let runtime = runtime.clone();
        report.run("shutdown::seams_keep_their_contracts", move || {
            live.check_after(&runtime)
        });
    }
    report.finish();
}

/// What is wrong, for people.
type Outcome = Result<(), String>;

type Check<T> = fn(T) -> Pin<Box<dyn Future<Output = Outcome> + Send>>;
type RuntimeCheck = fn(&Runtime) -> Outcome;

/// What `work` yields on a thread of its own.
///
/// The caller must not block meanwhile: its thread may be the one that drives the runtime.
async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (done, outcome) = oneshot::channel();
    thread::spawn(move || done.send(work()));
    outcome.await.map_err(|_| "another thread panicked".into())
}

const IO_CHECKS: &[(&str, Check<Io>)] = &checks![
    async
    clock::now_never_goes_backwards,
    clock::past_deadlines_are_ready_at_once,
    clock::timers_are_ready_in_order_and_never_early,
    connection::messages_travel_both_ways,
    connection::long_messages_travel_whole,
    connection::the_limit_of_a_message_can_be_set,
    connection::host_names_are_looked_up_and_all_families_tried,
    connection::a_host_name_that_cannot_be_fails_at_stage_dns,
    connection::a_refused_connect_is_a_network_error,
    connection::a_connect_without_answer_times_out,
    connection::a_closed_connection_is_a_network_error,
    connection::a_reset_connection_is_a_network_error,
    connection::half_a_message_is_a_network_error,
    connection::an_oversized_message_is_refused_by_its_header,
    connection::silence_ends_at_the_deadline,
    connection::a_dropped_connection_is_closed_at_once,
    connection::unix_sockets_work_where_they_exist,
];

/// What can only be asked of futures that are pending now and then.
const PENDING_CHECKS: &[(&str, Check<Io>)] = &checks![
    async
    clock::a_timer_may_move_to_another_thread,
    clock::timers_may_be_dropped_before_they_are_ready,
    connection::a_dropped_receive_makes_the_connection_unusable,
    connection::a_dropped_connect_is_abandoned,
    connection::a_receive_may_move_to_another_thread,
];

const SPAWN_CHECKS: &[(&str, RuntimeCheck)] = &checks![
    spawn::tasks_never_run_inline,
    spawn::tasks_are_spawned_from_any_thread,
    spawn::tasks_spawn_tasks,
    spawn::a_panic_ends_one_task_alone,
];

/// Collects what went wrong.
#[derive(Default)]
struct Report {
    failures: Vec<String>,
}

impl Report {
    /// Runs `check` on a thread of its own, which is left behind if it takes too long.
    fn run(&mut self, name: &str, check: impl FnOnce() -> Outcome + Send + 'static) {
        let (done, outcome) = mpsc::channel();
        thread::spawn(move || {
            // Nobody listens any more if the check took too long.
            let _ = done.send(check());
        });
        let reason = match outcome.recv_timeout(WATCHDOG) {
            Ok(Ok(())) => return,
            Ok(Err(reason)) => reason,
            Err(RecvTimeoutError::Timeout) => "hangs".into(),
            Err(RecvTimeoutError::Disconnected) => "panicked".into(),
        };
        self.failures.push(format!("{name}: {reason}"));
    }

    fn finish(self) {
        let failures = self.failures.join("\n  ");
        assert!(failures.is_empty(), "contracts are broken:\n  {failures}");
    }
}

/// How long a check may take before it counts as hanging; far more than any needs.
const WATCHDOG: Duration = Duration::from_secs(60);
