//! The executor of a check.

use std::{
    future::Future,
    mem,
    sync::{Arc, Mutex},
};

use futures::{
    executor::LocalPool,
    future::{AbortHandle, abortable},
    task::LocalSpawnExt as _,
};

use super::host::lock;
use sdam_transport::spawn::{Spawner, Task};

/// Runs the tasks of one check on its thread.
#[derive(Debug, Default)]
pub(super) struct Executor {
    running: LocalPool,
    new: NewTasks,
}

/// Tasks that have not started. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct NewTasks(Arc<Mutex<Vec<Task>>>);

/// A future that the executor runs, and its result once it is ready.
pub(super) struct Attempt<T> {
    result: Arc<Mutex<Option<T>>>,
    abort: AbortHandle,
}

impl Executor {
    pub(super) fn spawner(&self) -> Arc<dyn Spawner> {
        Arc::new(self.new.clone())
    }

    /// Starts a future.
    pub(super) fn start<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Attempt<T> {
        let result = Arc::new(Mutex::new(None));
        let own = Arc::clone(&result);
        let (future, abort) = abortable(future);
        self.new.spawn(Task::new("conformance", async move {
            if let Ok(value) = future.await {
                *lock(&own) = Some(value);
            }
        }));
        Attempt { result, abort }
    }

    /// Runs all tasks until none can make progress.
    pub(super) fn settle(&mut self) {
        loop {
            self.running.run_until_stalled();
            let new = mem::take(&mut *lock(&self.new.0));
            if new.is_empty() {
                return;
            }
            for task in new {
                // The executor exists as long as `self`, so spawning cannot fail.
                let _ = self.running.spawner().spawn_local(task);
            }
        }
    }
}

impl Spawner for NewTasks {
    fn spawn(&self, task: Task) {
        lock(&self.0).push(task);
    }
}

impl<T> Attempt<T> {
    /// Returns whether the future has finished.
    pub(super) fn is_ready(&self) -> bool {
        lock(&self.result).is_some()
    }

    /// Takes the result, if there is one.
    pub(super) fn take(&self) -> Option<T> {
        lock(&self.result).take()
    }

    /// Makes the executor drop the future when it runs next.
    pub(super) fn abort(&self) {
        self.abort.abort();
    }
}
