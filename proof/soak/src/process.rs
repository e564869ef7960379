//! Counts the descriptors, threads, memory and tasks of this process.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sdam::{Runtime, Spawner, Task};

/// Returns the number of open descriptors.
pub(crate) fn descriptors() -> io::Result<usize> {
    // One of them reads the folder.
    Ok(fs::read_dir("/proc/self/fd")?.count().saturating_sub(1))
}

/// Returns the number of threads.
pub(crate) fn threads() -> io::Result<usize> {
    status("Threads:").map(|threads| threads as usize)
}

/// Returns the resident memory, in KiB.
pub(crate) fn memory() -> io::Result<u64> {
    status("VmRSS:")
}

fn status(name: &str) -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    let value = value.and_then(|value| value.parse().ok());
    value.ok_or_else(|| io::Error::other(format!("/proc/self/status has no {name}")))
}

/// The number of tasks that have been spawned and not ended. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks(Arc<AtomicUsize>);

impl Tasks {
    pub(crate) fn alive(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts the tasks of the runtime.
    pub(crate) fn of(&self, runtime: Runtime) -> Runtime {
        let spawner = Counting { inner: runtime.spawner, tasks: self.clone() };
        Runtime::new(runtime.backend, Arc::new(spawner))
    }
}

/// A spawner that counts its tasks.
#[derive(Debug)]
struct Counting {
    inner: Arc<dyn Spawner>,
    tasks: Tasks,
}

impl Spawner for Counting {
    fn spawn(&self, task: Task) {
        self.tasks.0.fetch_add(1, Ordering::SeqCst);
        let alive = Alive(self.tasks.clone());
        self.inner.spawn(Task::new(task.name(), async move {
            task.await;
            drop(alive);
        }));
    }
}

/// Counts the end of a task, also of one that is dropped or panics.
struct Alive(Tasks);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
