//! Which tasks are alive.

use futures::future::FutureExt;

use crate::sync::{
    Event,
    atomic::{AtomicUsize, Ordering},
};

/// Counts the tasks of a topology, so that closing can wait for the last of them.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    alive: AtomicUsize,
    ended: Event,
}

impl Tasks {
    /// Counts a task that is about to be spawned.
    pub(crate) fn begin(&self) {
        self.alive.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a task's end; whether it was the last one.
    pub(crate) fn end(&self) -> bool {
        let last = self.alive.fetch_sub(1, Ordering::SeqCst) == 1;
        if last {
            self.ended.notify(usize::MAX);
        }
        last
    }

    /// How many tasks are alive.
    pub(crate) fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }

    /// Ready when no task is alive.
    pub(crate) async fn finished(&self) {
        loop {
            let ended = self.ended.listen().fuse();
            if self.alive() == 0 {
                return;
            }
            ended.await;
        }
    }
}
