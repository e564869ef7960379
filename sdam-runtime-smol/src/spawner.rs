//! The spawners.

use std::sync::{Arc, Weak};

use sdam_transport::spawn::{Spawner, Task};
use smol::Executor;

/// Spawns on the global executor of the process.
#[derive(Debug)]
pub(crate) struct GlobalSpawner;

impl Spawner for GlobalSpawner {
    fn spawn(&self, task: Task) {
        smol::spawn(task).detach();
    }
}

/// Spawns on the caller's executor while the executor exists.
#[derive(Debug)]
pub(crate) struct OwnSpawner {
    executor: Weak<Executor<'static>>,
}

impl OwnSpawner {
    pub(crate) fn new(executor: &Arc<Executor<'static>>) -> Self {
        Self { executor: Arc::downgrade(executor) }
    }
}

impl Spawner for OwnSpawner {
    fn spawn(&self, task: Task) {
        if let Some(executor) = self.executor.upgrade() {
            executor.spawn(task).detach();
        }
    }
}
