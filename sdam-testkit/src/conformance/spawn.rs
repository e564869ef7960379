//! Checks of the spawner contract, and of the contracts after a runtime has ended.

use std::{
    future::{self, Future},
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use futures::{
    FutureExt as _, StreamExt as _,
    channel::{mpsc, oneshot},
    executor::block_on,
    future::BoxFuture,
};
use sdam_core::time::Instant;
use sdam_transport::{
    connect::Connection,
    race,
    runtime::Runtime,
    spawn::{Task, yield_now},
};

use super::{
    Outcome,
    connection::open,
    ensure,
    peer::{Peer, listen, wait_for_close},
    report::{Report, Rule, Run},
    rule,
};

pub(super) async fn tasks_run_to_completion(runtime: Runtime, run: Run) -> Outcome {
    let (done, ended) = oneshot::channel();
    run.step("waiting for a task to end");
    runtime.spawner.spawn(Task::new("conformance", async move {
        yield_now().await;
        // The receiver is dropped if the check took too long.
        let _ = done.send(());
    }));
    run.wait(ended).await.ok_or_else(|| "the task was dropped".into())
}

pub(super) async fn spawn_returns_without_waiting(runtime: Runtime, run: Run) -> Outcome {
    let clock = &runtime.backend.clock;
    run.step("spawning 32 tasks");
    let durations = (0..32).map(|_| {
        let begun = clock.now();
        runtime.spawner.spawn(Task::new("conformance", async {}));
        clock.now().since(begun)
    });
    // A busy machine may delay some of the calls, but not all of them.
    let fastest = durations.min().unwrap_or_default();
    ensure!(fastest < Duration::from_millis(10), "the fastest call took {fastest:?}");
    Ok(())
}

pub(super) async fn a_pending_task_holds_up_no_other(runtime: Runtime, run: Run) -> Outcome {
    let (open, opened) = oneshot::channel::<()>();
    let (done, ended) = oneshot::channel();
    run.step("waiting for a task that waits for a later one");
    runtime.spawner.spawn(Task::new("earlier", async move {
        // If the later task is dropped, this one ends, too.
        let _ = opened.await;
        // The receiver is dropped if the check took too long.
        let _ = done.send(());
    }));
    runtime.spawner.spawn(Task::new("later", async move { drop(open) }));
    run.wait(ended).await.ok_or_else(|| "the task was dropped".into())
}

pub(super) async fn tasks_never_run_inline(runtime: Runtime, run: Run) -> Outcome {
    let spawning = Arc::new(AtomicBool::new(true));
    let (done, inline) = oneshot::channel();
    let (spawner, seen) = (thread::current().id(), Arc::clone(&spawning));
    run.step("spawning a task");
    runtime.spawner.spawn(Task::new("conformance", async move {
        let here = thread::current().id() == spawner;
        // Relaxed suffices: the flag matters only on the thread that changes it. The receiver is
        // dropped if the check has failed.
        let _ = done.send(here && seen.load(Ordering::Relaxed));
    }));
    spawning.store(false, Ordering::Relaxed);
    run.step("waiting for a task to run");
    let inline = run.wait(inline).await.ok_or("the task was dropped")?;
    ensure!(!inline, "the task ran before `spawn` returned");
    Ok(())
}

pub(super) async fn tasks_are_spawned_from_any_thread(runtime: Runtime, run: Run) -> Outcome {
    let (done, numbers) = mpsc::unbounded();
    run.step("spawning tasks on four threads outside of the runtime");
    for _ in 0..4 {
        let (runtime, done) = (runtime.clone(), done.clone());
        run.on_own_thread(move || {
            for number in 0..16 {
                let done = done.clone();
                runtime.spawner.spawn(Task::new("conformance", async move {
                    // The receiver is dropped if the check has failed.
                    let _ = done.unbounded_send(number);
                }));
            }
        })
        .await?;
    }
    drop(done);
    run.step("waiting for 64 tasks to end");
    let numbers: Vec<u32> = numbers.collect().await;
    let ended = numbers.len();
    ensure!(numbers.iter().sum::<u32>() == 4 * 120, "{ended} of 64 tasks have run to their end");
    Ok(())
}

pub(super) async fn tasks_spawn_tasks(runtime: Runtime, run: Run) -> Outcome {
    let (done, inner) = oneshot::channel();
    let spawner = Arc::clone(&runtime.spawner);
    run.step("waiting for a task that a task has spawned");
    runtime.spawner.spawn(Task::new("outer", async move {
        spawner.spawn(Task::new("inner", async move {
            // The receiver is dropped if the check has failed.
            let _ = done.send(());
        }));
    }));
    let inner = run.wait(inner).await;
    inner.ok_or_else(|| "the inner task was dropped".into())
}

pub(super) async fn a_panic_ends_only_its_task(runtime: Runtime, run: Run) -> Outcome {
    // A panic could end a thread of the runtime, so there are more panics than the runtime has
    // threads.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..(2 * threads).max(64) {
        let (guard, dropped) = oneshot::channel::<()>();
        run.step("waiting for a task that has panicked to be dropped");
        runtime.spawner.spawn(Task::new("panicking", async move {
            let _guard = guard;
            // Unlike `panic!`, this does not call the panic hook.
            panic::resume_unwind(Box::new("a task under test panics"));
        }));
        // The guard sends nothing, so the wait ends when it is dropped.
        run.wait(dropped).await;
    }
    let later = tasks_spawn_tasks(runtime, run).await;
    later.map_err(|reason| format!("{reason} after another task had panicked"))
}

/// The rules about a shutdown, in the order of their checks.
pub(super) const SHUTDOWN_RULES: [Rule; 6] = [
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
pub(super) fn check_shutdown(runtime: &Runtime, shut_down: impl FnOnce(), report: &mut Report) {
    let [start, live_tasks, late_tasks, timers, attempts, connections] = SHUTDOWN_RULES;
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
