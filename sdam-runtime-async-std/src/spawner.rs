//! The spawner.

use async_std::task;
use sdam_transport::spawn::{Spawner, Task};

#[derive(Debug)]
pub(crate) struct AsyncStdSpawner;

impl Spawner for AsyncStdSpawner {
    fn spawn(&self, task: Task) {
        // Dropping the join handle detaches the task.
        drop(task::spawn(task));
    }
}
