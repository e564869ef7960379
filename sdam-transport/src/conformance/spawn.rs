//! What a spawner promises.

use std::{
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use super::{Outcome, ensure};
use crate::{runtime::Runtime, spawn::Task};

pub(super) fn tasks_never_run_inline(runtime: &Runtime) -> Outcome {
    let spawning = Arc::new(AtomicBool::new(true));
    let (done, inline) = mpsc::channel();
    let (spawner, seen) = (thread::current().id(), Arc::clone(&spawning));
    runtime.spawner.spawn(Task::new("conformance", async move {
        let here = thread::current().id() == spawner;
        // The check is over if nobody listens.
        let _ = done.send(here && seen.load(Ordering::SeqCst));
    }));
    spawning.store(false, Ordering::SeqCst);
    let inline = inline.recv().map_err(|_| "the task was dropped")?;
    ensure!(!inline, "the task ran before `spawn` returned");
    Ok(())
}

pub(super) fn tasks_are_spawned_from_any_thread(runtime: &Runtime) -> Outcome {
    let (done, count) = mpsc::channel();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (runtime, done) = (runtime.clone(), done.clone());
            thread::spawn(move || {
                for number in 0..16 {
                    let done = done.clone();
                    runtime.spawner.spawn(Task::new("conformance", async move {
                        // The check is over if nobody listens.
                        let _ = done.send(number);
                    }));
                }
            })
        })
        .collect();
    drop(done);
    for thread in threads {
        thread.join().map_err(|_| "`spawn` panicked")?;
    }
    let sum: i32 = count.iter().sum();
    ensure!(sum == 4 * 120, "not every task has run to its end");
    Ok(())
}

pub(super) fn tasks_spawn_tasks(runtime: &Runtime) -> Outcome {
    let (done, inner) = mpsc::channel();
    let spawner = Arc::clone(&runtime.spawner);
    runtime.spawner.spawn(Task::new("outer", async move {
        spawner.spawn(Task::new("inner", async move {
            // The check is over if nobody listens.
            let _ = done.send(());
        }));
    }));
    inner
        .recv()
        .map_err(|_| "the inner task was dropped".into())
}

pub(super) fn a_panic_ends_one_task_alone(runtime: &Runtime) -> Outcome {
    let (guard, dropped) = mpsc::channel::<()>();
    runtime.spawner.spawn(Task::new("panicking", async move {
        let _guard = guard;
        // Unlike `panic!`, this prints nothing.
        panic::resume_unwind(Box::new("a task under test panics"));
    }));
    // Ready when the guard is dropped, as nobody sends.
    ensure!(dropped.recv().is_err(), "nobody sent anything");
    tasks_spawn_tasks(runtime)
}
