//! Checks of the contracts after a runtime has ended.

use std::{
    future::{self, Future},
    time::Duration,
};

use futures::{
    FutureExt as _, StreamExt as _,
    channel::{mpsc, oneshot},
    executor::block_on,
    future::BoxFuture,
};
use sdam_core::time::Instant;

use super::{
    Outcome,
    connect::open,
    ensure,
    peer::{Peer, listen, wait_for_close},
    report::{Report, Rule, Run},
    rule,
};
use sdam_transport::{connect::Connection, race, runtime::Runtime, spawn::Task};

/// The rules in the order of their checks.
pub(super) const RULES: [Rule; 6] = [
    rule!(Spawner: "The task runs to completion, or is dropped when the runtime ends"
        => tasks_start_before_shutdown),
    rule!(Spawner: "The task runs to completion, or is dropped when the runtime ends"
        => running_tasks_are_dropped_at_shutdown),
    rule!(Spawner: "Where the runtime has ended already, the task is dropped"
        => tasks_spawned_after_shutdown_are_dropped),
    rule!(Clock: "All of this holds after the runtime behind the clock has ended, too"
        => timers_continue_after_shutdown),
    rule!(Transport: "After the runtime behind the transport has ended, an attempt succeeds or fails"
        => connects_after_shutdown_end),
    rule!(Connection: "After the runtime behind the connection has ended, `recv` may fail, stay \
        pending or continue to work"
        => connections_close_after_shutdown),
];

/// Starts tasks, ends the runtime with `shut_down`, and then checks the rules.
pub(super) fn check(runtime: &Runtime, shut_down: impl FnOnce(), report: &mut Report) {
    let [start, live_tasks, late_tasks, timers, attempts, connections] = RULES;
    let (before, live) = oneshot::channel();
    let (starting, run) = (runtime.clone(), Run::default());
    let own = run.clone();
    report.run(start, "", &run, move || {
        let live = block_on(Live::start(&starting, &own))?;
        // The receiver has been dropped if this step took too long.
        let _ = before.send(live);
        Ok(())
    });
    shut_down();
    let Some(Ok(live)) = live.now_or_never() else {
        return;
    };
    let Live { tasks, timer, deadline, connection, peers } = live;
    follow(report, live_tasks, runtime, |_, run| live_tasks_are_dropped(tasks, run));
    follow(report, late_tasks, runtime, tasks_spawned_after_shutdown_are_dropped);
    follow(report, timers, runtime, |own, run| timers_go_on(own, timer, deadline, run));
    follow(report, attempts, runtime, connects_after_shutdown_end);
    follow(report, connections, runtime, |own, run| {
        connections_are_closed(own, connection, peers, run)
    });
}

fn follow<F: Future<Output = Outcome> + Send + 'static>(
    report: &mut Report,
    rule: Rule,
    runtime: &Runtime,
    check: impl FnOnce(Runtime, Run) -> F,
) {
    let run = Run::default();
    let work = check(runtime.clone(), run.clone());
    report.run(rule, "", &run, || block_on(work));
}

/// The tasks, timer and connection that are alive when the runtime is shut down.
struct Live {
    /// The channel closes when every task has been dropped.
    tasks: mpsc::UnboundedReceiver<()>,
    timer: BoxFuture<'static, ()>,
    deadline: Instant,
    connection: Box<dyn Connection>,
    peers: [Peer<()>; 2],
}

impl Live {
    /// Starts tasks that never end, and creates a timer and a connection outside those tasks.
    async fn start(runtime: &Runtime, run: &Run) -> Result<Self, String> {
        let (started, mut tasks) = mpsc::unbounded();
        let backend = &runtime.backend;
        let peers = [Peer::start(wait_for_close)?, Peer::start(wait_for_close)?];
        let mut receiving = open(backend, &peers[0].address, run).await?;
        let connection = open(backend, &peers[1].address, run).await?;
        let far = backend.clock.now() + Duration::from_secs(3600);
        let waits: [BoxFuture<'static, ()>; 3] = [
            Box::pin(future::pending()),
            backend.clock.sleep_until(far),
            Box::pin(async move { drop(receiving.recv().await) }),
        ];
        run.step("waiting for three tasks to start");
        for mut wait in waits {
            let started = started.clone();
            runtime.spawner.spawn(Task::new("conformance", async move {
                // The first poll registers the future with the runtime.
                let _ = wait.as_mut().now_or_never();
                // The receiver is dropped if the check has failed.
                let _ = started.unbounded_send(());
                wait.await;
            }));
        }
        drop(started);
        for _ in 0..3 {
            tasks.next().await.ok_or("a task was dropped at once")?;
        }
        let deadline = backend.clock.now() + Duration::from_millis(100);
        let mut timer = backend.clock.sleep_until(deadline);
        let _ = timer.as_mut().now_or_never();
        Ok(Self { tasks, timer, deadline, connection, peers })
    }
}

async fn live_tasks_are_dropped(mut tasks: mpsc::UnboundedReceiver<()>, run: Run) -> Outcome {
    run.step("waiting for tasks to be dropped that were alive at the shutdown");
    // The loop ends once all tasks have dropped their senders. No task sends anything.
    while tasks.next().await.is_some() {}
    Ok(())
}

async fn tasks_spawned_after_shutdown_are_dropped(runtime: Runtime, run: Run) -> Outcome {
    let (guard, later) = oneshot::channel::<()>();
    run.step("waiting for a task to be dropped that was spawned after the shutdown");
    runtime.spawner.spawn(Task::new("late", async move {
        // Only a task that has run sends this, and running the task would be an error.
        let _ = guard.send(());
    }));
    ensure!(later.await.is_err(), "it ran after the runtime had shut down");
    Ok(())
}

async fn timers_go_on(
    runtime: Runtime,
    timer: BoxFuture<'static, ()>,
    deadline: Instant,
    run: Run,
) -> Outcome {
    let clock = &runtime.backend.clock;
    run.step("waiting for a timer that was polled before the shutdown");
    timer.await;
    ensure!(clock.now() >= deadline, "the timer was early");
    run.step("waiting for a timer that was created after the shutdown");
    let deadline = clock.now() + Duration::from_millis(20);
    clock.sleep_until(deadline).await;
    ensure!(clock.now() >= deadline, "the timer was early");
    Ok(())
}

async fn connects_after_shutdown_end(runtime: Runtime, run: Run) -> Outcome {
    let (_listener, address) = listen()?;
    let soon = Some(runtime.backend.clock.now() + Duration::from_millis(20));
    run.step("connecting after the shutdown, by a deadline of 20 milliseconds");
    drop(runtime.backend.transport.connect(&address, soon).await);
    Ok(())
}

async fn connections_are_closed(
    runtime: Runtime,
    mut connection: Box<dyn Connection>,
    peers: [Peer<()>; 2],
    run: Run,
) -> Outcome {
    let clock = &*runtime.backend.clock;
    let soon = Some(clock.now() + Duration::from_millis(20));
    run.step("receiving after the shutdown, for 20 milliseconds");
    let received = race::deadline(clock, soon, connection.recv()).await;
    ensure!(!matches!(received, Ok(Ok(_))), "a message was received, but none was sent");
    drop(connection);
    for peer in peers {
        run.step("waiting for the peer to see that a connection of a stopped runtime is closed");
        peer.finish(&run).await?;
    }
    Ok(())
}
