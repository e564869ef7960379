//! Tasks, as a seam.

use std::{
    fmt,
    fmt::Debug,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::BoxFuture;

/// Starts tasks that run by themselves.
///
/// # Contract
///
/// - The caller holds no lock, and holds no handle to the task, which ends when it is told to.
/// - `spawn` works on any thread, outside of the runtime and inside its tasks.
/// - `spawn` never polls the task before it returns.
/// - The task runs to completion, or is dropped when the runtime ends: it is never leaked, so that
///   drop guards inside it always fire.
/// - A task that panics is dropped and ends alone; the runtime and its other tasks go on.
/// - Where the runtime has ended already, the task is dropped, perhaps before `spawn` returns, and
///   `spawn` does not panic.
///
/// A runtime that does not catch panics wraps the task in
/// [`catch_unwind`](futures::FutureExt::catch_unwind).
/// [`Remote`](crate::local::Remote) keeps this contract for every executor of one thread.
pub trait Spawner: Send + Sync + Debug + 'static {
    /// Starts `task`.
    fn spawn(&self, task: Task);
}

/// A future that runs by itself, with a name for people.
#[must_use = "a task does nothing until it is spawned"]
pub struct Task {
    name: &'static str,
    future: BoxFuture<'static, ()>,
}

impl Task {
    /// The task that runs `future`, called `name` in whatever lists tasks.
    pub fn new(name: &'static str, future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            name,
            future: Box::pin(future),
        }
    }

    /// What the task does, such as `monitor`.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.future.as_mut().poll(cx)
    }
}

impl Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
