//! Checks of the spawner contract.

use std::{
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use futures::{
    StreamExt as _,
    channel::{mpsc, oneshot},
};

use super::{Outcome, Run, ensure};
use sdam_transport::{
    runtime::Runtime,
    spawn::{Task, yield_now},
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
        // Relaxed suffices: the flag counts only on the thread that changes it. The receiver is
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
    // A panic could end a thread of the runtime, so there are more panics than it has threads.
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
