use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sdam_transport::spawn::{Spawner, Task};

/// A spawner that keeps tasks until they are taken. Clones share the tasks.
#[derive(Clone, Debug, Default)]
pub struct HeldTasks(Arc<Mutex<Vec<Task>>>);

impl HeldTasks {
    /// Removes and returns the tasks that were spawned since the last call, in order.
    pub fn take(&self) -> Vec<Task> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Task>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spawner for HeldTasks {
    fn spawn(&self, task: Task) {
        self.lock().push(task);
    }
}

/// A spawner that drops every task, like a runtime that has ended.
#[derive(Clone, Copy, Debug)]
pub struct DroppedTasks;

impl Spawner for DroppedTasks {
    fn spawn(&self, task: Task) {
        drop(task);
    }
}
