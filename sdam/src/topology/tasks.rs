//! The count of a topology's running tasks.

use futures::future::FutureExt;

use crate::sync::{
    Event,
    atomic::{AtomicUsize, Ordering},
    listen,
};

/// The increment for one task.
const TASK: usize = 2;

/// The flag that is set on closing.
const CLOSED: usize = 1;

/// Counts the tasks of a topology, so that closing can wait for the last of them.
///
/// Closing and the end of the last task may race. Both change the same integer, so exactly one of
/// them observes that no task remains. That one sees everything that the others did before: each
/// change releases to the later ones.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    /// `TASK` for each live task, plus `CLOSED` after closing.
    state: AtomicUsize,
    ended: Event,
}

impl Tasks {
    /// Counts a task that is about to be spawned. After [`close`](Self::close), only a counted task
    /// may start another one.
    pub(crate) fn begin(&self) {
        // Relaxed suffices: the topology's lock, or the task that starts this one, orders the count
        // before closing, and spawning orders it before the end.
        self.state.fetch_add(TASK, Ordering::Relaxed);
    }

    /// Counts a task's end. Returns whether no task is left after [`close`](Self::close).
    pub(crate) fn end(&self) -> bool {
        // Acquire is not needed: the last task notifies, which begins with a full fence.
        let before = self.state.fetch_sub(TASK, Ordering::Release);
        if before / TASK == 1 {
            self.ended.notify(usize::MAX);
        }
        before == TASK | CLOSED
    }

    /// Refuses further tasks. Returns whether no task is alive.
    pub(crate) fn close(&self) -> bool {
        self.state.fetch_or(CLOSED, Ordering::AcqRel) / TASK == 0
    }

    /// Waits until no task is alive.
    pub(crate) async fn finished(&self) {
        loop {
            let ended = listen(&self.ended).fuse();
            if self.state.load(Ordering::Acquire) / TASK == 0 {
                return;
            }
            ended.await;
        }
    }
}
