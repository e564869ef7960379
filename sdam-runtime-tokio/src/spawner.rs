//! The spawner.

use sdam_transport::spawn::{Spawner, Task};
use tokio::runtime::Handle;

#[derive(Debug)]
pub(crate) struct TokioSpawner {
    handle: Handle,
}

impl TokioSpawner {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }
}

impl Spawner for TokioSpawner {
    fn spawn(&self, task: Task) {
        // Dropping the join handle detaches the task.
        drop(self.handle.spawn(task));
    }
}
