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
/// - The caller holds no lock and may be on any thread, inside the runtime or not.
/// - `spawn` does not block and never polls the task before it returns.
/// - The task runs to completion, or is dropped when the runtime ends.
///   It is never leaked, so that drop guards inside it always fire.
/// - Nobody holds a handle to the task: it is detached, and ends by itself when it is told to.
/// - Where the runtime has ended already, the task is dropped, perhaps before `spawn` returns;
///   `spawn` does not panic.
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
