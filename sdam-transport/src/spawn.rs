//! The spawner trait.

use std::{
    fmt::Debug,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::BoxFuture;

/// Spawns background tasks.
///
/// # Contract
///
/// - The caller holds no lock, and keeps no handle to the task.
/// - `spawn` works on any thread, outside of the runtime and inside its tasks.
/// - `spawn` never polls the task before it returns.
/// - `spawn` returns without waiting.
/// - The task runs to completion, or is dropped when the runtime ends: it is never leaked, so that
///   drop guards inside it always fire.
/// - A task that is pending holds up no other task.
/// - A task that panics is dropped and ends alone; the runtime and its other tasks continue.
/// - Where the runtime has ended already, the task is dropped, possibly before `spawn` returns, and
///   `spawn` does not panic.
///
/// A runtime that does not catch panics wraps the task in
/// [`catch_unwind`](futures::FutureExt::catch_unwind).
/// [`Remote`](crate::local::Remote) keeps this contract for every single-threaded executor.
pub trait Spawner: Send + Sync + Debug + 'static {
    /// Starts `task`.
    fn spawn(&self, task: Task);
}

/// A [`Spawner`] that calls a function, which must keep the contract of [`Spawner`].
pub struct SpawnBy<F> {
    /// The name of the runtime, for debugging.
    pub runtime: &'static str,
    /// Starts a task.
    pub spawn: F,
}

impl<F: Fn(Task) + Send + Sync + 'static> Spawner for SpawnBy<F> {
    fn spawn(&self, task: Task) {
        (self.spawn)(task);
    }
}

sdam_core::opaque!(SpawnBy<F>, |this| runtime: this.runtime);

/// Yields once, so that other tasks of the executor can run.
///
/// # Cancel safety
///
/// The future may be dropped at any time.
pub async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A future to spawn, with a name that task lists show.
#[must_use = "a task does nothing until it is spawned"]
pub struct Task {
    name: &'static str,
    future: BoxFuture<'static, ()>,
}

impl Task {
    /// Creates a task that runs `future` and is listed as `name`.
    pub fn new(name: &'static str, future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { name, future: Box::pin(future) }
    }

    /// Returns the name of the task, such as `monitor`.
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

sdam_core::opaque!(Task, |this| name: this.name);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_listed_under_its_name() {
        let task = Task::new("monitor", async {});
        assert_eq!(task.name(), "monitor");
        assert_eq!(format!("{task:?}"), r#"Task { name: "monitor", .. }"#);
    }
}
